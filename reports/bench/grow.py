"""Grow a recorded run to a history of millions of rows that is as valid as the run.

The calm span at the beginning of the load is repeated before the run itself, with its jobs, claims and server times moved on: so
the drill looks as if its load had gone on calmly for hours before the first fault came.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reports.bench.pattern import Moves, Pattern, compiled
from reports.bench.recorded import MS, SENT, Line, Recorded, Row, Window

#: Files that are written at the same time.
WRITERS = 2

#: A writer collects about this many bytes before it writes.
CHUNK_BYTES = 8_000_000

#: Columns of samples that count from the start of a process.
COUNTED = ("cpu_user_s", "cpu_system_s", "used_cpu_user", "used_cpu_sys", "total_commands_processed", "finished")


@dataclass(frozen=True)
class Parts:
    """One file: the lines before the calm span, the template of a copy of the span, and the template of the rest."""

    name: str
    before: tuple[bytes, ...]
    copy: Pattern
    rest: Pattern

    @property
    def rows(self) -> int:
        """Rows of the file as it was recorded."""
        return len(self.before) + self.rest.rows


def grow(run: Path, rows: int, out: Path) -> int:
    """Write a run with at least that many rows to a new folder, and return how many it has. Raises JudgeError."""
    recorded = Recorded(run)
    window = recorded.window()
    repeated = Repeated(recorded, window)
    parts = [repeated.parts(name) for name in recorded.files]
    per_copy = sum(part.copy.rows for part in parts)
    copies = max(0, -(-(rows - sum(part.rows for part in parts)) // per_copy))
    step = repeated.step()
    (out / "history").mkdir(parents=True)
    with multiprocessing.get_context("fork").Pool(WRITERS) as pool:
        jobs = [(part, out / "history" / part.name, copies, step) for part in sorted(parts, key=lambda p: -p.copy.rows)]
        written = sum(pool.starmap(write, jobs, chunksize=1))
    finish_snapshots(out / "history" / "harness.jsonl", window, copies)
    write_samples(run / "samples", out / "samples", window, copies)
    (out / "spec.json").write_text(json.dumps({**recorded.spec, "id": out.name}, indent=2) + "\n")
    return written


class Repeated:
    """The rows of a run by what becomes of them when its calm span is repeated."""

    def __init__(self, recorded: Recorded, window: Window) -> None:
        self.recorded = recorded
        self.window = window
        self.split = self._operations_across()
        self.counters = max((line.row.get("counter") or 0 for _, line in recorded.job_lines()), default=0)

    def _operations_across(self) -> set[tuple[str, str]]:
        """Operations of which some row is outside of the span."""
        inside, outside = set[tuple[str, str]](), set[tuple[str, str]]()
        for name, line in self.recorded.job_lines():
            if "op" in line.row:
                (inside if self.in_window(line) else outside).add((name, line.row["op"]))
        return inside & outside

    def in_window(self, line: Line) -> bool:
        """True when all instants of the row are inside the span."""
        times = [line.row[name] for name in ("t_ns", *SENT) if name in line.row]
        return self.window.begin_ns <= min(times) and max(times) < self.window.end_ns

    def copied(self, name: str, line: Line) -> bytes | None:
        """The line as a copy has it: with the jobs of the span alone. None when a copy does not have it."""
        row = line.row
        if row["kind"] not in ("operation", "effect", "clock", "drop") or not self.in_window(line):
            return None
        if (name, row.get("op")) in self.split:
            return None
        items: list[Row] = row.get("items") or []
        kept = [item for item in items if item["job"] in self.window.jobs]
        if len(kept) == len(items):
            return line.raw
        if not kept:
            return None
        return json.dumps({**row, "items": kept}, separators=(",", ":")).encode() + b"\n"

    def parts(self, name: str) -> Parts:
        """What becomes of a file."""
        lines = self.recorded.files[name]
        split = next((at for at, line in enumerate(lines) if line.row["t_ns"] >= self.window.begin_ns), len(lines))
        copied = [self.copied(name, line) for line in lines[split:]]
        kept = unanswered_removed([line for line in copied if line is not None])
        # The first copy goes on with the numbers of the lines before it.
        copy = numbered(compiled(kept, copies=True), split)
        rest = numbered(compiled([line.raw for line in lines[split:]], copies=False), split)
        return Parts(name, tuple(line.raw for line in lines[:split]), copy, rest)

    def step(self) -> np.ndarray:
        """By how much each kind of number moves from one copy to the next; that of SEQ depends on the file."""
        step = np.zeros(len(Moves), dtype=np.int64)
        step[Moves.NS] = self.window.length_ms * MS
        step[Moves.US] = self.window.length_ms * 1_000
        step[Moves.MS] = self.window.length_ms
        step[Moves.CLAIM] = self.counters
        step[Moves.COPY] = 1
        return step


def unanswered_removed(lines: list[bytes]) -> list[bytes]:
    """Without the invoke rows of operations whose answer named only jobs of others, and so was left out."""
    rows = [json.loads(line) for line in lines]
    answered = {row["op"] for row in rows if row.get("type") not in (None, "invoke")}
    return [line for line, row in zip(lines, rows, strict=True) if row.get("type") != "invoke" or row["op"] in answered]


def numbered(pattern: Pattern, first: int) -> Pattern:
    """The template with its rows numbered from `first`."""
    base = pattern.base.copy()
    base[pattern.moves == Moves.SEQ] = np.arange(first, first + pattern.rows)
    return Pattern(pattern.text, base, pattern.moves, pattern.rows)


def write(part: Parts, path: Path, copies: int, step: np.ndarray) -> int:
    """Write a file with so many copies, and return its number of rows."""
    step = step.copy()
    step[Moves.SEQ] = part.copy.rows
    total = part.rows + copies * part.copy.rows
    with path.open("wb", buffering=CHUNK_BYTES) as file:
        file.writelines(part.before)
        if part.copy.rows:
            for copy in range(copies):
                file.write(part.copy.render(step * copy))
        rest = part.rest.render(step * copies)
        file.write(rest.replace(b'"kind":"close","rows":%d,' % part.rows, b'"kind":"close","rows":%d,' % total))
    return total


def finish_snapshots(path: Path, window: Window, copies: int) -> None:
    """Let the snapshots list the dead jobs of all copies, and count all jobs that are done."""
    lines: list[bytes] = []
    for line in path.read_bytes().splitlines(keepends=True):
        if b'"kind":"final"' not in line:
            lines.append(line)
            continue
        row = json.loads(line)
        dead = [item for item in row["items"] if row["state"] == "dead" and item["job"] in window.jobs]
        for copy in range(copies):
            row["items"] += [moved(item, copy, window) for item in dead]
        row["count"] += copies * len(dead)
        lines.append(json.dumps(row, separators=(",", ":")).encode() + b"\n")
    path.write_bytes(b"".join(lines))


def moved(item: Row, copy: int, window: Window) -> Row:
    """A listed job as a copy has it."""
    due_ms = item.get("due_ms")
    return {**item, "job": f"copy{copy}.{item['job']}"} | ({"due_ms": due_ms + copy * window.length_ms} if due_ms else {})


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
