"""The rows that the harness writes: bodies for `record.history.HistoryFile.append`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

#: A final snapshot names at most this many jobs in one row.
FINAL_ITEMS_MAX = 1_000


def body(kind: str, **columns: Any) -> str:
    """The inside of the JSON object of one row. Columns that are None are left out."""
    row = {"kind": kind, **{name: value for name, value in columns.items() if value is not None}}
    return json.dumps(row, separators=(",", ":"))[1:-1]


def process(role: str, name: str, file: str) -> str:
    """Manifest row: the process `name` will write `file`."""
    return body("process", role=role, name=name, file=file)


def phase(name: str) -> str:
    """A phase of the run starts; its instant is the row's t_ns."""
    return body("phase", name=name)


def fault(
    fault_id: str, *, name: str, stage: str, target: str, seen: bool, detail: str, items: Sequence[dict[str, Any]] = ()
) -> str:
    """One stage (inject, witness, heal, healed) of a fault, and whether it was seen to happen."""
    result = "ok" if seen else "missing"
    return body(
        "fault", fault=fault_id, name=name, stage=stage, target=target, result=result, detail=detail, items=list(items) or None
    )


def result(op: str, job: str, *, outcome: str | None, crc: int | None, times_ns: tuple[int, int]) -> str:
    """A caller asked for the result of a job, from the first to the second time. `outcome`: how the job has ended, None = it has
    not; `crc`: of the value that came, None = none came."""
    item = {"job": job, "result": outcome, "result_crc": crc}
    items = [{name: value for name, value in item.items() if value is not None}]
    sent_ns, done_ns = times_ns
    return body("operation", f="result", type="ok", op=op, first_send_ns=sent_ns, done_ns=done_ns, items=items)


def clock(*, wall_ns: int, srv_us: int | None) -> str:
    """The machine's wall clock and the server's clock, to be compared with the row's monotonic t_ns."""
    return body("clock", wall_ns=wall_ns, srv_us=srv_us)


def final(name: str, *, state: str, count: int, jobs: Sequence[tuple[str, int]], srv_us: int) -> list[str]:
    """Rows of one state of a snapshot: at most FINAL_ITEMS_MAX jobs each, and one row when there is none.

    `count` is the total as the queue counts it: were it taken from `jobs`, nobody would miss a job that is not listed.
    """
    chunks = [jobs[start : start + FINAL_ITEMS_MAX] for start in range(0, len(jobs), FINAL_ITEMS_MAX)] or [[]]
    return [
        body(
            "final",
            name=name,
            state=state,
            count=count,
            srv_us=srv_us,
            items=[{"job": job, "due_ms": due_ms} for job, due_ms in chunk],
        )
        for chunk in chunks
    ]
