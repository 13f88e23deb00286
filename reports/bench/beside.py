"""What is beside the rows of jobs and grows with them: the snapshots, and the samples of the machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reports.bench.recorded import MS, Recorded, Row, Window, dumped

#: Columns of samples that count from the start of a process.
COUNTED = ("cpu_user_s", "cpu_system_s", "used_cpu_user", "used_cpu_sys", "total_commands_processed", "finished")


def finish_snapshots(path: Path, clean: Recorded, window: Window, copies: Sequence[frozenset[str]]) -> None:
    """Let the snapshots list the dead jobs of all copies. `clean`: the run that they were made of; `copies`: the jobs of each."""
    dead = {row["name"]: row["items"] for row in clean.snapshots("dead")}
    lines: list[bytes] = []
    for line in path.read_bytes().splitlines(keepends=True):
        if b'"kind":"final"' in line and b'"state":"dead"' in line:
            row = json.loads(line)
            listed = dead.get(row["name"], ())
            added = [
                {**item, "job": f"copy{copy}.{item['job']}"}
                | ({"due_ms": item["due_ms"] + copy * window.length_ms} if item.get("due_ms") else {})
                for copy, jobs in enumerate(copies)
                for item in listed
                if item["job"] in jobs
            ]
            row["count"] += len(added)
            row["items"] += added
            line = dumped(row)
        lines.append(line)
    path.write_bytes(b"".join(lines))


def write_samples(source: Path, target: Path, window: Window, copies: int) -> None:
    """The samples of the run, those of the calm span once for each copy."""
    target.mkdir()
    for path in sorted(source.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_bytes().splitlines()]
        before = [row for row in rows if row["t_ns"] < window.begin_ns]
        inside = [row for row in rows if window.begin_ns <= row["t_ns"] < window.end_ns]
        grown = grown_by(inside)
        with (target / path.name).open("w") as file:
            file.writelines(sampled(row, 0, window, grown) for row in before)
            for copy in range(copies):
                file.writelines(sampled(row, copy, window, grown) for row in inside)
            file.writelines(sampled(row, copies, window, grown) for row in rows[len(before) :])


def grown_by(rows: Sequence[Row]) -> dict[tuple[Any, str], float]:
    """By how much the counters of each process grow in one copy."""
    found: dict[tuple[Any, str], float] = {}
    for name in COUNTED:
        for proc in {row.get("proc") for row in rows}:
            values = [row[name] for row in rows if row.get("proc") == proc and name in row]
            found[proc, name] = max(values) - min(values) if values else 0
    return found


def sampled(row: Row, copy: int, window: Window, grown: dict[tuple[Any, str], float]) -> str:
    """A sample as a line of a copy."""
    by_ns = copy * window.length_ms * MS
    units = {"t_ns": by_ns, "wall_ns": by_ns, "srv_us": by_ns // 1_000}
    counted = {name: copy * grown.get((row.get("proc"), name), 0) for name in COUNTED}
    moved = {name: row[name] + by for name, by in (units | counted).items() if name in row}
    return json.dumps({**row, **moved}, separators=(",", ":")) + "\n"
