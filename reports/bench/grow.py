"""Grow a recorded run to a history of millions of rows that is as valid as the run.

The calm span at the beginning of the load is repeated before the run itself, with its jobs, claims and server times moved on: so
the drill looks as if its load had gone on calmly for hours before the first fault came. The run itself comes last, and may have
violations planted in it (see `reports.bench.planted`): the copies are made of the run without them.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reports.bench.one_job import OneJob
from reports.bench.pattern import Moves, Pattern, compiled
from reports.bench.recorded import MS, Line, Recorded, Row, Window, dumped
from reports.errors import JudgeError

# What is beside the rows of jobs and grows with them: the snapshots, and the samples of the machine.


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


#: Files that are written at the same time.
WRITERS = 2

#: Below so many rows, to start writers takes longer than to write.
ALONE_ROWS = 200_000

#: A file is written in pieces of about this size.
CHUNK_BYTES = 8_000_000

#: Of so many copies of a skewed history all but one have only the jobs of one lane.
SKEW = 20

#: What a grown history may look like: as recorded; most rows about one job; all jobs in one lane; four of five in one lane.
SHAPES = ("real", "one-job", "hot", "skewed")


@dataclass(frozen=True)
class Parts:
    """What becomes of one file: lines before the calm span, then `first`, the copies, `last`, and the lines after the copies.

    `copies` are templates that take turns: copy number k is made of `copies[turns[k]]`. `last` moves on like the rest.
    """

    name: str
    before: Pattern
    first: Pattern
    copies: tuple[Pattern, ...]
    turns: tuple[int, ...]
    last: Pattern
    rest: Pattern

    @property
    def rows(self) -> int:
        """Rows of the grown file."""
        fixed = self.before.rows + self.first.rows + self.last.rows + self.rest.rows
        return fixed + sum(self.copies[turn].rows for turn in self.turns)


@dataclass(frozen=True)
class Grown:
    """A grown history: its rows, and by how much the recorded run, which comes last in it, is later than it was. What happened
    before `begin_ms` by the server's clock is where it was."""

    rows: int
    later_ms: int
    begin_ms: int


def grow(run: Path, rows: int, out: Path, *, shape: str = "real", ending: Path | None = None) -> Grown:
    """Write a run with at least that many rows to a new folder.

    `ending`: the run that comes last, a copy of `run` with violations planted. Raises JudgeError when the run cannot be read or
    has no calm span.
    """
    if shape not in SHAPES:
        raise JudgeError(f"shape {shape!r} does not exist; choose from {', '.join(SHAPES)}")
    clean = Recorded(run)
    window = clean.window()
    last = clean if ending is None else Recorded(ending)
    plan = Plan(clean, window, rows - last.rows, shape)
    parts = [plan.parts(name, last) for name in last.files]
    (out / "history").mkdir(parents=True)
    written = write_all(parts, out / "history", plan.step)
    finish_snapshots(out / "history" / "harness.jsonl", clean, window, [plan.selected[turn] for turn in plan.turns])
    write_samples(last.folder / "samples", out / "samples", window, len(plan.turns))
    (out / "spec.json").write_text(json.dumps({**last.spec, "id": out.name}, indent=2) + "\n")
    return Grown(written, window.length_ms * len(plan.turns), clean.srv_ms(window.begin_ns))


class Plan:
    """Which copies a grown history is made of."""

    def __init__(self, clean: Recorded, window: Window, rows: int, shape: str) -> None:
        self.clean = clean
        self.window = window
        everything, lane = window.jobs, clean.busiest_lane(window) if shape in ("hot", "skewed") else frozenset[str]()
        self.selected = {"hot": (lane,), "skewed": (lane, everything)}.get(shape, (everything,))
        self.split = self._operations_across()
        self.lines = [self._lines(jobs) for jobs in self.selected]
        sizes = [sum(map(len, lines.values())) for lines in self.lines]
        self.one = OneJob(clean, window, rows, sizes[0]) if shape == "one-job" else None
        self.turns = (0,) * self.one.copies if self.one else turns(rows, sizes)
        self.step = self._step()

    def _step(self) -> np.ndarray:
        """By how much each kind of number moves from one copy to the next; that of SEQ depends on the file."""
        step = np.zeros(len(Moves), dtype=np.int64)
        step[Moves.NS] = self.window.length_ms * MS
        step[Moves.US] = self.window.length_ms * 1_000
        step[Moves.MS] = self.window.length_ms
        step[Moves.CLAIM] = max((line.row.get("counter") or 0 for _, line in self.clean.job_lines()), default=0)
        step[Moves.COPY] = 1
        return step

    def _operations_across(self) -> set[tuple[str, str]]:
        """Operations of which some row is outside of the span."""
        inside, outside = set[tuple[str, str]](), set[tuple[str, str]]()
        for name, line in self.clean.job_lines():
            if "op" in line.row:
                (inside if self.window.holds(line) else outside).add((name, line.row["op"]))
        return inside & outside

    def _lines(self, jobs: frozenset[str]) -> dict[str, list[bytes]]:
        """The lines of a copy with these jobs, by file."""
        idle = jobs == self.window.jobs
        return {
            name: answered([self._copied(name, line, jobs, idle) for line in lines]) for name, lines in self.clean.files.items()
        }

    def _copied(self, name: str, line: Line, jobs: frozenset[str], idle: bool) -> tuple[Row, bytes] | None:
        """The line as a copy has it: with these jobs alone. None when the copy does not have it. `idle`: also claims that got
        nothing."""
        row = line.row
        if row["kind"] not in ("operation", "effect", "clock", "drop") or not self.window.holds(line):
            return None
        if (name, row.get("op")) in self.split:
            return None
        items: list[Row] = row.get("items") or []
        kept = [item for item in items if item["job"] in jobs]
        if len(kept) == len(items):
            wanted = items or idle or row["kind"] != "operation" or row["type"] == "invoke"
            return (row, line.raw) if wanted else None
        if not kept:
            return None
        return row, dumped({**row, "items": kept})

    def parts(self, name: str, last: Recorded) -> Parts:
        """What becomes of a file of the run that comes last."""
        begin_ns, first, end = self.window.begin_ns, *(self.one.ends(name) if self.one else ((), ()))
        times = [(line.row["t_ns"] < begin_ns, line.raw) for line in last.files[name]]
        return Parts(
            name=name,
            before=compiled([line for early, line in times if early], copies=False),
            first=compiled(first, copies=False),
            copies=tuple(self._template(name, of.get(name, [])) for of in self.lines),
            turns=self.turns,
            last=compiled(end, copies=False),
            rest=compiled([line for early, line in times if not early], copies=False, since_ms=self.clean.srv_ms(begin_ns)),
        )

    def _template(self, name: str, lines: list[bytes]) -> Pattern:
        """A copy of one file."""
        return self.one.beside(lines) if self.one and name == self.one.file else compiled(lines, copies=True)


def turns(rows: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """The template of each copy, until there are enough rows: all the first one, and of two each `SKEW`th the second."""
    found: list[int] = []
    while rows > 0:
        found.append(int(len(sizes) > 1 and len(found) % SKEW == SKEW - 1))
        rows -= sizes[found[-1]]
    return tuple(found)


def answered(lines: Sequence[tuple[Row, bytes] | None]) -> list[bytes]:
    """The lines that are kept, without calls whose answer is not."""
    kept = [line for line in lines if line is not None]
    ops = {row["op"] for row, _ in kept if row["kind"] == "operation" and row["type"] != "invoke"}
    return [raw for row, raw in kept if row.get("type") != "invoke" or row["op"] in ops]


def write_all(parts: Sequence[Parts], folder: Path, step: np.ndarray) -> int:
    """Write all files, and return their number of rows."""
    work = [(part, folder / part.name, step) for part in sorted(parts, key=lambda part: -part.rows)]
    if sum(part.rows for part in parts) < ALONE_ROWS:
        return sum(write(*one) for one in work)
    # Not forked: who calls this may have threads.
    with multiprocessing.get_context("spawn").Pool(WRITERS) as pool:
        return sum(pool.starmap(write, work, chunksize=1))


def write(part: Parts, path: Path, step: np.ndarray) -> int:
    """Write a file, and return its number of rows."""
    written, recorded = 0, part.before.rows + part.rest.rows

    def rendered(pattern: Pattern, copy: int) -> bytes:
        nonlocal written
        offsets = step * copy
        offsets[Moves.SEQ] = written
        written += pattern.rows
        return pattern.render(offsets)

    with path.open("wb", buffering=CHUNK_BYTES) as file:
        file.write(rendered(part.before, 0))
        file.write(rendered(part.first, 0))
        for copy, turn in enumerate(part.turns):
            file.write(rendered(part.copies[turn], copy))
        file.write(rendered(part.last, 0))
        rest = rendered(part.rest, len(part.turns))
        file.write(rest.replace(b'"kind":"close","rows":%d,' % recorded, b'"kind":"close","rows":%d,' % written))
    return written
