"""An episode as text: all of it for its digest, and the few lines that matter for people."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from chaos.simulate.plan import Result
from chaos.simulate.world import MS, Row

LINES_MAX = 30
_START_NS = 1_000_000 * MS
_WIDTH = 150


def digest(result: Result) -> str:
    """Of every line: two runs of one seed are the same run when theirs are equal."""
    whole = hashlib.sha256()
    for row in result.rows:
        whole.update(f"{row.at_ns} {line(row)}\n".encode())
    whole.update(f"{result.steps} {result.found}".encode())
    return whole.hexdigest()


def line(row: Row) -> str:
    """Time since the start, who, what, and what came of it."""
    mark = "!" if row.fault else " "
    return f"{(row.at_ns - _START_NS) / MS:10.1f} ms {mark} {row.who:<10} {row.what:<26} {row.result}".rstrip()[:_WIDTH]


def readable(result: Result) -> list[str]:
    """At most 30 lines; the last one says which invariant is broken."""
    found = result.found
    about = set(found.jobs) if found is not None else set()
    rows = [row for row in result.rows if _matters(row, about)]
    room = LINES_MAX - 1
    lines = [line(row) for row in rows]
    if len(lines) > room:
        head, tail = room // 3, room - room // 3 - 1
        lines = [*lines[:head], f"{'':10}    ... {len(lines) - head - tail} lines", *lines[-tail:]]
    return [*lines, f"broken: {found}" if found is not None else "nothing found"]


def _matters(row: Row, about: set[str]) -> bool:
    if row.fault or (about and about & set(row.jobs)) or str(row.result).startswith("done: "):
        return True
    return not about and bool(row.result) and row.result != "empty"


def describe_faults(faults: Sequence[tuple[str, int]]) -> str:
    """Counts of faults for one line."""
    return ", ".join(f"{kind} {count}" for kind, count in faults) or "none"
