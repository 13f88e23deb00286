"""The recovery time of each job leased at a kill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.facts import MS

if TYPE_CHECKING:
    from reports.frames import Frames

#: At most this many jobs of one kill are drawn: the slowest.
JOBS_MAX = 500


@dataclass(frozen=True, slots=True)
class Recovery:
    """One job leased at a kill. `connected`: how the worker was (see `Run.connected`). `seconds`: until it ran elsewhere, None =
    never; `ended`: it never ran again because the call that ended its lease took effect, or because it was buried."""

    fault: str
    target: str
    connected: str
    job: str
    seconds: float | None
    ended: bool


def recoveries(frames: Frames) -> list[Recovery]:
    """Every job leased at a witnessed kill, by kill, the slowest first."""
    rows = frames.in_hand.where(F.col("fault") != "").orderBy("fault", F.desc_nulls_first("recovery_ns"), "job")
    found: list[Recovery] = []
    seen: dict[str, int] = {}
    for row in rows.limit(JOBS_MAX * max(1, len(frames.run.kills))).collect():
        seen[row["fault"]] = seen.get(row["fault"], 0) + 1
        if seen[row["fault"]] <= JOBS_MAX:
            took_s = None if row["recovery_ns"] is None else row["recovery_ns"] / MS / 1_000
            way = frames.run.connected(row["target"])
            found.append(Recovery(row["fault"], row["target"], way, row["job"], took_s, bool(row["ended"])))
    return found
