"""What each fault cost: jobs lost and doubled, stale finishes refused, and how long until work went on.

An event belongs to the fault that was injected last before it: a loss to the last instant at which its job moved, a doubled job
to its last finish, a refusal to its answer. What happened before the first fault belongs to none.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports.checks import j4_conservation, j6_exactly_once
from reports.facts import MS, Run
from reports.frames import Frames
from reports.meaning import accepted_finish
from reports.windows import Window, windows

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Faults that take a worker away from the jobs in its hands.
OF_WORKERS = ("worker-kill", "worker-freeze")


def by_fault(frames: Frames) -> list[dict[str, Any]]:
    """One line per fault. `recovery_ms`: after a kill or a freeze until the last job in hand ran elsewhere, after a fault of the
    network from its heal until each worker that it hit had finished a job again; null where that never was."""
    found = windows(frames.run)
    if not found:
        return []
    lost, doubled = counted(frames, found)
    stale = stale_finishes(frames, found)
    recovered = {**back_at_work(frames, found), **ran_elsewhere(frames, found)}
    return [
        {
            "fault": window.fault,
            "name": window.name,
            "lost": lost.get(window.fault, 0),
            "doubled": doubled.get(window.fault, 0),
            "stale": stale.get(window.fault, 0),
            "recovery_ms": recovered.get(window.fault),
        }
        for window in found
    ]


def counted(frames: Frames, found: tuple[Window, ...]) -> tuple[dict[str, int], dict[str, int]]:
    """Jobs that J4 calls lost and J6 calls doubled, by fault."""
    last = frames.events.where(accepted_finish()).groupBy("job").agg(F.max("done_ns").alias("again_ns"))
    jobs = frames.jobs.join(last, "job", "left")
    lost = F.when(condition(frames.run, "lost"), fault_at(F.col("moved_ns"), found))
    doubled = F.when(condition(frames.run, "doubled"), fault_at(F.col("again_ns"), found))
    rows = jobs.select(lost.alias("lost"), doubled.alias("doubled")).where("lost is not null or doubled is not null").collect()
    return Counter(row["lost"] for row in rows), Counter(row["doubled"] for row in rows)


def condition(run: Run, kind: str) -> Column:
    """When a check calls a job that; never where it has nothing to go by."""
    flags = [*j4_conservation.flags(run).get("jobs", []), *j6_exactly_once.flags(run).get("jobs", [])]
    return next((flag.condition for flag in flags if flag.kind == kind), F.lit(False))


def stale_finishes(frames: Frames, found: tuple[Window, ...]) -> dict[str, int]:
    """Finishes that were refused, by fault."""
    refused = frames.events.where((F.col("f") == "finish") & (F.col("result") == "stale"))
    rows = refused.groupBy(fault_at(F.col("done_ns"), found).alias("fault")).agg(F.count(F.lit(1)).alias("n")).collect()
    return {row["fault"]: row["n"] for row in rows}


def ran_elsewhere(frames: Frames, found: tuple[Window, ...]) -> dict[str, float]:
    """From the blow until the last of the jobs in hand started in another worker; of those that did."""
    recovered: dict[str, float] = {}
    for window in (one for one in found if one.name in OF_WORKERS):
        at_ns = F.lit(window.inject_ns).cast("bigint")
        over_ns = F.least("end_sent_ns", "reap_sent_ns", F.lit(window.next_ns).cast("bigint"))
        held = F.col("proc").isin(*window.targets) & (F.col("claim_done_ns") <= at_ns) & (over_ns > at_ns)
        started = F.col("newer_start_ns") >= at_ns
        row = frames.tokens.where(held & started).agg(F.max("newer_start_ns").alias("last_ns")).first()
        if row is not None and row["last_ns"] is not None:
            recovered[window.fault] = round((row["last_ns"] - window.inject_ns) / MS, 1)
    return recovered


def back_at_work(frames: Frames, found: tuple[Window, ...]) -> dict[str, float]:
    """From the heal until the last of the workers that were hit had finished a job again."""
    healed = [window for window in found if window.name not in OF_WORKERS]
    finishes = frames.events.where(accepted_finish())
    workers = {process.name for process in frames.run.processes if process.role == "worker"}
    recovered: dict[str, float] = {}
    for window in healed:
        hit = workers.intersection(window.targets)
        after = F.col("first_send_ns").between(F.lit(window.heal_ns), F.lit(window.next_ns)) & F.col("proc").isin(*hit)
        rows = finishes.where(after).groupBy("proc").agg(F.min("done_ns").alias("first_ns")).collect()
        if rows and len(rows) == len(hit):
            recovered[window.fault] = round((max(row["first_ns"] for row in rows) - window.heal_ns) / MS, 1)
    return recovered


def fault_at(instant: Column, found: tuple[Window, ...]) -> Column:
    """The fault that was injected last before an instant; null before the first."""
    name = F.lit(None).cast("string")
    for window in found:
        name = F.when(instant >= F.lit(window.inject_ns).cast("bigint"), F.lit(window.fault)).otherwise(name)
    return name
