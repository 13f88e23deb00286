"""A recorded run, read whole, and the calm part of it that can be repeated: a span of time and the jobs that lie inside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports.errors import JudgeError

Row = dict[str, Any]

MS = 1_000_000

#: Instants of a row that lie before its writing.
SENT = ("first_send_ns", "intended_ns")

#: The part of the calm span that is tried as its beginning, and the steps in which.
SEARCH_MS = 1_000
STEP_MS = 5

#: Ids of the jobs of schedules begin with this.
TICK = "cron:"

#: Kinds of row that belong to jobs.
OF_JOBS = ("operation", "effect")


@dataclass(frozen=True)
class Line:
    """One line of a history file, as it is and parsed."""

    raw: bytes
    row: Row

    @property
    def times(self) -> list[int]:
        """When the row was written, and what it says was sent before."""
        return [self.row[name] for name in ("t_ns", *SENT) if name in self.row]

    @property
    def jobs(self) -> Iterator[str]:
        """The jobs that the row names."""
        return (item["job"] for item in self.row.get("items") or () if "job" in item)


@dataclass(frozen=True)
class Window:
    """The calm span [begin_ns, end_ns) of a run, and the jobs whose rows are all inside it."""

    begin_ns: int
    end_ns: int
    jobs: frozenset[str]

    def holds(self, line: Line) -> bool:
        """True when all instants of the row are inside the span."""
        times = line.times
        return self.begin_ns <= min(times) and max(times) < self.end_ns

    @property
    def length_ms(self) -> int:
        """Length in ms; a multiple of the interval of every schedule."""
        return (self.end_ns - self.begin_ns) // MS


@dataclass
class Recorded:
    """A recorded run of jobs. `files`: the lines by file name. Raises JudgeError when it cannot be read."""

    folder: Path
    files: dict[str, list[Line]] = field(default_factory=dict)
    spec: Row = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self.spec = json.loads((self.folder / "spec.json").read_text())
            for path in sorted((self.folder / "history").glob("*.jsonl")):
                self.files[path.name] = [read(line) for line in path.read_bytes().splitlines(keepends=True)]
        except (OSError, ValueError) as error:
            raise JudgeError(f"{self.folder.name} is not a whole recorded run: {error}") from error

    @property
    def rows(self) -> int:
        """Lines of all files."""
        return sum(map(len, self.files.values()))

    def job_lines(self) -> Iterator[tuple[str, Line]]:
        """Every line of an operation or effect with its file name, but those of callers who read results after the load."""
        for name, lines in self.files.items():
            of_jobs = (line for line in lines if line.row["kind"] in OF_JOBS and line.row.get("f") != "result")
            yield from ((name, line) for line in of_jobs)

    def window(self) -> Window:
        """The calm span before the first fault. Raises JudgeError when there is none that can be repeated."""
        enqueues = [line for _, line in self.job_lines() if line.row.get("f") == "enqueue"]
        loads = [line.row["t_ns"] for line in self.files["harness.jsonl"] if line.row["kind"] in ("fault", "phase")]
        if not enqueues:
            raise JudgeError(f"{self.folder.name} has no load")
        first_ns = min(min(line.times) for line in enqueues)
        calm_end_ns = min(at for at in loads if at > first_ns)
        spans = self.spans()
        step_ms = 1
        for schedule in self.spec.get("schedules") or ():
            step_ms = max(step_ms, schedule["every_ms"])
        length_ms = (calm_end_ns - first_ns) // MS // step_ms * step_ms - SEARCH_MS // step_ms * step_ms
        ticking = [span for job, span in spans.items() if job.startswith(TICK)]
        for back_ms in range(0, SEARCH_MS, STEP_MS):
            begin_ns = first_ns - (back_ms + 1) * MS
            end_ns = begin_ns + length_ms * MS
            crossed = any(first < begin_ns <= last for first, last in spans.values())
            if not crossed and not any(first < end_ns <= last for first, last in ticking):
                return Window(begin_ns, end_ns, self.inside(begin_ns, end_ns, spans))
        raise JudgeError(f"{self.folder.name} has no calm span that can be repeated")

    def spans(self) -> dict[str, tuple[int, int]]:
        """Job -> the first and the last instant of its rows."""
        found: dict[str, tuple[int, int]] = {}
        for _, line in self.job_lines():
            first_ns, last_ns = min(line.times), line.row["t_ns"]
            for job in line.jobs:
                before = found.get(job, (first_ns, last_ns))
                found[job] = (min(before[0], first_ns), max(before[1], last_ns))
        return found

    def inside(self, begin_ns: int, end_ns: int, spans: dict[str, tuple[int, int]]) -> frozenset[str]:
        """The jobs that lie inside the span with all other jobs that they depend on."""
        jobs = {job for job, (first, last) in spans.items() if begin_ns <= first and last < end_ns}
        return frozenset(closed(jobs, self.related()))

    def related(self) -> dict[str, set[str]]:
        """Job -> the jobs that it needs, or that held its unique key."""
        found: dict[str, set[str]] = {}
        for _, line in self.job_lines():
            for item in line.row.get("items") or ():
                others = [*(item.get("needs") or ()), item.get("holder")]
                found.setdefault(item["job"], set()).update(filter(None, others))
        return found

    def srv_ms(self, at_ns: int) -> int:
        """The server's time at an instant, by the first answer of an operation."""
        row = next(line.row for _, line in self.job_lines() if line.row.get("srv_us") and line.row.get("done_ns"))
        return (row["srv_us"] + (at_ns - row["done_ns"]) // 1_000) // 1_000

    def snapshots(self, state: str) -> list[Row]:
        """The rows of the final snapshots that list jobs in a state."""
        return [line.row for line in self.files["harness.jsonl"] if line.row["kind"] == "final" and line.row["state"] == state]

    def busiest_lane(self, window: Window) -> frozenset[str]:
        """The jobs of the span that stand in the lane with most of them and depend on no others, and those of schedules, which
        must not miss a tick. Lanes with a limit are left out: what a limit allows in one second would not become more."""
        lanes: dict[str, set[str]] = {}
        for item in self.enqueued(window.jobs):
            if self.unlimited(item):
                lanes.setdefault(lane_of(item), set()).add(item["job"])
        if not lanes:
            raise JudgeError(f"{self.folder.name} has no lane without a limit")
        ticks = {job for job in window.jobs if job.startswith(TICK)}
        return frozenset(closed(max(lanes.values(), key=len) | ticks, self.related()))

    def enqueued(self, jobs: frozenset[str]) -> Iterator[Row]:
        """The items of answered enqueues of these jobs."""
        for _, line in self.job_lines():
            if line.row.get("f") == "enqueue" and line.row["type"] == "ok":
                yield from (item for item in line.row["items"] if item["job"] in jobs)

    def unlimited(self, item: Row) -> bool:
        """True when no limit of the spec concerns the lane of a job."""
        limits = self.spec.get("limits") or ()
        named = {limit.get("name") for limit in limits}
        return lane_of(item) == item.get("class") and item.get("name") not in named


def lane_of(item: Row) -> str:
    """The lane of a job: that of its class where it says none."""
    return str(item.get("lane", item.get("class")))


def read(line: bytes) -> Line:
    """A line of a history without blanks between its columns, as the templates have it."""
    row = json.loads(line)
    return Line(dumped(row) if b'": ' in line else line, row)


def dumped(row: Row) -> bytes:
    """The row as a line of a history."""
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def closed(jobs: set[str], related: dict[str, set[str]]) -> set[str]:
    """Those of the jobs whose related jobs are all among them."""
    while left_out := {job for job in jobs if not related.get(job, set()) <= jobs}:
        jobs = jobs - left_out
    return jobs
