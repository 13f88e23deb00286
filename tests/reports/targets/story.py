"""Hand-written histories of a job queue: a few jobs, at instants in seconds, as the processes of a drill write them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from record.history import LoadedFile, upgrade

#: One second, in the unit of rows.
S = 1_000_000_000

AT_LEAST = {"delivery": "at least once", "recovery_bound_ms": 10_000, "defaults": "a lease of 10 s", "source": "its documents"}
AT_MOST = {**AT_LEAST, "delivery": "at most once", "recovery_bound_ms": None}


def spec(promise: dict[str, Any], *faults: str) -> dict[str, Any]:
    """The spec of a run, with a kill of worker-1 for each of the faults."""
    plan = [{"fault": fault, "name": "worker-kill", "target": "worker-1"} for fault in faults]
    head = {"schema": 1, "id": "20260101-000000-target-seed1-rq", "scenario": "target", "target": "rq", "seed": 1}
    more = {"promise": promise, "slack_ms": 2_000, "plan": plan, "harness_errors": [], "ended_utc": "2026-01-01T00:00:00Z"}
    return {**head, **more, "again": "python -m chaos run target rq --seed 1"}


@dataclass
class Story:
    """The rows of a run; each method adds what one process writes, and returns the story."""

    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    operations: int = 0

    def row(self, proc: str, at_s: float, kind: str, **columns: Any) -> Self:
        rows = self.files.setdefault(proc, [])
        head = {"v": 8, "seq": len(rows), "proc": f"{proc}.1", "t_ns": round(at_s * S), "kind": kind}
        rows.append({**head, **columns})
        return self

    def sent(self, job: int, at_s: float, *, kind: str = "ok") -> Self:
        """The producer sends a job, and is answered within a tenth of a second."""
        return self._operation("producer-1", "enqueue", job, at_s, at_s + 0.1, kind)

    def ran(self, job: int, at_s: float, *, took_s: float | None = 0.5, by: str = "worker-2") -> Self:
        """A worker runs a job; None: it never came to the end."""
        return self._operation(by, "handle", job, at_s, None if took_s is None else at_s + took_s, "ok")

    def _operation(self, proc: str, f: str, job: int, at_s: float, end_s: float | None, kind: str) -> Self:
        self.operations += 1
        op = f"{proc}-{self.operations}"
        head = {"f": f, "op": op, "first_send_ns": round(at_s * S), "items": [{"job": str(job), "nonce": op}]}
        self.row(proc, at_s, "operation", **head, type="invoke")
        if end_s is not None:
            self.row(proc, end_s, "operation", **head, type=kind, done_ns=round(end_s * S))
        return self

    def killed(self, fault: str, at_s: float, *jobs: int, by: str = "worker-1", witnessed: bool = True) -> Self:
        """The worker gets SIGKILL while it runs the jobs, and is replaced a second later."""
        for job in jobs:
            self.ran(job, at_s - 0.2, took_s=None, by=by)
        ran = [row for row in self.files.get(by, []) if row["items"][0]["job"] in map(str, jobs)]
        cut = [{"job": row["items"][0]["job"], "fence": 0, "nonce": row["op"]} for row in ran if row["type"] == "invoke"]
        for stage, later_s in (("inject", 0.0), ("witness", 0.1), ("heal", 1.0), ("healed", 1.5)):
            seen = "missing" if stage == "witness" and not witnessed else "ok"
            columns = {"fault": fault, "name": "worker-kill", "stage": stage, "target": by, "result": seen, "detail": "seen"}
            self.row("harness", at_s + later_s, "fault", **columns, items=cut if stage == "witness" else None)
        return self

    def ended(self, at_s: float, *held: int) -> list[LoadedFile]:
        """The producer has ended, and the harness has looked which jobs the keys of the server still hold."""
        self.row("producer-1", at_s - 1, "close")
        items = [{"job": str(job), "due_ms": 0} for job in held]
        self.row("harness", at_s, "final", name="end", state="held", count=len(held), items=items)
        for number, name in enumerate(sorted(self.files)):
            role = "producer" if name == "producer-1" else "harness" if name == "harness" else "sink"
            self.row("manifest", number, "process", name=name, role=role, file=f"{name}.jsonl")
        files = {f"{name}.jsonl": tuple(upgrade(row, name) for row in rows) for name, rows in self.files.items()}
        return [LoadedFile(Path(name), rows, False, ()) for name, rows in files.items()]


def good(*faults: str) -> Story:
    """Six jobs that ran at once; with a fault, job 3 was cut off by it, and ran again on another worker 9 s later."""
    story = Story()
    for job in range(6):
        story.sent(job, 1 + job)
        if not (faults and job == 3):
            story.ran(job, 1.2 + job)
    for fault in faults:
        story.killed(fault, 4.4, 3)
        story.ran(3, 13.4)
    return story.sent(9, 15).ran(9, 15.2)
