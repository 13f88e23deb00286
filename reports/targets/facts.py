"""A run of another job queue as plain values: its rows, the stages of its faults, and the instants that the checks use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record.history import HistoryError, LoadedFile, load_folder
from reports.checks.h1_faults_bit import disordered, missing
from reports.errors import JudgeError
from reports.facts import MS, Stage
from reports.targets.promise import Promise, promise_of

Row = Mapping[str, Any]

#: A queue that has run a job to its end so shortly before the end of the wait still moves: what is left says nothing yet.
MOVING_MS = 3_000


@dataclass(frozen=True)
class TargetRun:
    """`healed_ns`: when the last fault was healed, 0 without faults; `ended_ns`: when it was looked what is left; `outage_ns`:
    for how long the network was cut or a worker stood still; `moving`: jobs still ran to their end just before that."""

    spec: Mapping[str, Any]
    promise: Promise
    rows: Sequence[Row]
    stages: Sequence[Stage]
    healed_ns: int
    ended_ns: int
    outage_ns: int
    moving: bool
    #: What is wrong with the history (H0), and which faults were not seen to bite (H1).
    holes: Sequence[str]
    unseen: Sequence[str]

    @property
    def faulty(self) -> bool:
        """Whether the plan has faults."""
        return bool(self.spec["plan"])

    def windows(self, *names: str) -> list[tuple[int, int]]:
        """From when to when each fault of these kinds was in force."""
        begun = {one.fault: one.t_ns for one in self.stages if one.stage == "inject" and one.name in names}
        return [(begun[one.fault], one.t_ns) for one in self.stages if one.stage == "heal" and one.fault in begun]

    @property
    def in_force(self) -> list[tuple[int, int]]:
        """From when to when each planned fault was in force; what it did to jobs may show until they were to be recovered."""
        return self.windows(*(str(one["name"]) for one in self.spec["plan"]))

    @property
    def waited_ms(self) -> int:
        """For how long what is left was waited for."""
        return (self.ended_ns - self.healed_ns) // MS


def read(run: Path, spec: Mapping[str, Any]) -> TargetRun:
    """The run in a folder. Raises JudgeError when a file cannot be read."""
    try:
        files = list(load_folder(run / "history"))
    except HistoryError as error:
        raise JudgeError(str(error)) from error
    return collect(spec, files)


def collect(spec: Mapping[str, Any], files: Sequence[LoadedFile]) -> TargetRun:
    """The run that these files tell of."""
    rows = [row for file in files for row in file.rows]
    stages = sorted((stage(row) for row in rows if row["kind"] == "fault"), key=lambda one: one.t_ns)
    planned = {str(one["fault"]) for one in spec["plan"]}
    healed_ns = max((one.t_ns for one in stages if one.stage == "heal" and one.fault in planned), default=0)
    final_ns = max((row["t_ns"] for row in rows if row["kind"] == "final"), default=0)
    ended_ns = final_ns or max((row["t_ns"] for row in rows), default=0)
    last_end_ns = max((row["t_ns"] for row in rows if row.get("f") == "handle" and row["type"] == "ok"), default=0)
    unseen = [f"the harness could not carry out the drill: {error}" for error in spec.get("harness_errors", ())]
    for fault in sorted(planned):
        of_fault = [one for one in stages if one.fault == fault]
        unseen += missing(fault, of_fault) + disordered(fault, of_fault)
    return TargetRun(
        spec=spec,
        promise=promise_of(spec),
        rows=rows,
        stages=stages,
        healed_ns=healed_ns,
        ended_ns=ended_ns,
        outage_ns=outage_ns(stages),
        moving=ended_ns - last_end_ns < MOVING_MS * MS,
        holes=[*holes(files), *([] if final_ns else ["nobody looked at what was left in the end"])],
        unseen=unseen,
    )


def stage(row: Row) -> Stage:
    """A fault row; its leases are the operations of the handlers that it names."""
    leases = tuple(f"{item['job']} {item['nonce']}" for item in row["items"] or ())
    fault, name, of, target, detail = (str(row[column] or "") for column in ("fault", "name", "stage", "target", "detail"))
    return Stage(fault, name, of, target, row["result"] == "ok", detail, row["t_ns"], leases)


def outage_ns(stages: Sequence[Stage]) -> int:
    """For how long some process was cut off or stood still, all faults together."""
    found = 0
    for fault in {one.fault for one in stages if one.name != "worker-kill"}:
        at_ns = {one.stage: one.t_ns for one in stages if one.fault == fault}
        found += max(0, at_ns.get("heal", 0) - at_ns.get("inject", 0)) if "heal" in at_ns else 0
    return found


def holes(files: Sequence[LoadedFile]) -> list[str]:
    """What is missing in the files: rows, whole files, or the end of the producer's."""
    found: list[str] = []
    present = {file.path.name: file for file in files}
    announced = [row for file in files for row in file.rows if row["kind"] == "process"]
    found += [f"{row['file']} was announced and is missing" for row in announced if row["file"] not in present]
    for file in files:
        if file.corrupt_lines:
            found.append(f"{file.path.name} has {len(file.corrupt_lines)} lines that are no rows")
        numbers: dict[str, list[int]] = {}
        for row in file.rows:
            numbers.setdefault(str(row["proc"]), []).append(row["seq"])
        for proc, seen in numbers.items():
            if seen != list(range(len(seen))):
                found.append(f"rows of {proc} in {file.path.name} are missing or out of order")
    for row in announced:
        file = present.get(row["file"])
        if row["role"] == "producer" and file and not any(one["kind"] == "close" for one in file.rows):
            found.append(f"{row['file']} has no end: its process did not close it")
    return found
