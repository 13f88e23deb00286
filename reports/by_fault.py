"""The cost of each fault: jobs lost and doubled, stale finishes refused, and the time until work went on.

An event is counted under the latest fault injected before it. A lost job counts at the instant of its last state change, a
doubled job at its last finish, a refused finish at its reply. Events before the first fault are counted under no fault.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports.checks import j4_conservation, j6_exactly_once
from reports.facts import MS, WORKER_FAULTS, Run
from reports.frames import Frames
from reports.meaning import accepted_finish
from reports.windows import Window, processes_hit, windows

if TYPE_CHECKING:
    from pyspark.sql import Column


def by_fault(frames: Frames) -> list[dict[str, Any]]:
    """One line per fault. `recovery_ms`: for a kill or a freeze, from the inject until the last leased job ran on another
    worker; for another fault, from its heal until each worker that it hit had finished a job again; null if that never
    happened."""
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
    """Count by fault the jobs that J4 reports as lost and those that J6 reports as doubled."""
    last = frames.eventful.events.where(accepted_finish()).groupBy("job").agg(F.max("done_ns").alias("again_ns"))
    jobs = frames.eventful.jobs.join(last, "job", "left")
    lost = F.when(condition(frames.run, "lost"), fault_at(F.col("moved_ns"), found))
    doubled = F.when(condition(frames.run, "doubled"), fault_at(F.col("again_ns"), found))
    rows = jobs.select(lost.alias("lost"), doubled.alias("doubled")).where("lost is not null or doubled is not null").collect()
    return Counter(row["lost"] for row in rows), Counter(row["doubled"] for row in rows)


def condition(run: Run, kind: str) -> Column:
    """The condition of the J4 or J6 flag of this kind; false when neither check has such a flag in this run."""
    flags = [*j4_conservation.flags(run).get("jobs", []), *j6_exactly_once.flags(run).get("jobs", [])]
    return next((flag.condition for flag in flags if flag.kind == kind), F.lit(False))


def stale_finishes(frames: Frames, found: tuple[Window, ...]) -> dict[str, int]:
    """Count by fault the finishes that were refused as stale."""
    refused = frames.eventful.events.where((F.col("f") == "finish") & (F.col("result") == "stale"))
    rows = refused.groupBy(fault_at(F.col("done_ns"), found).alias("fault")).agg(F.count(F.lit(1)).alias("n")).collect()
    return {row["fault"]: row["n"] for row in rows}


def ran_elsewhere(frames: Frames, found: tuple[Window, ...]) -> dict[str, float]:
    """Per kill or freeze: ms from the inject until the last leased job started on another worker. Jobs that never did are left
    out."""
    recovered: dict[str, float] = {}
    for window in (one for one in found if one.name in WORKER_FAULTS):
        at_ns = F.lit(window.inject_ns).cast("bigint")
        over_ns = F.least("end_sent_ns", "reap_sent_ns", F.lit(window.next_ns).cast("bigint"))
        held = F.col("proc").isin(*window.targets) & (F.col("claim_done_ns") <= at_ns) & (over_ns > at_ns)
        started = F.col("newer_start_ns") >= at_ns
        row = frames.eventful.tokens.where(held & started).agg(F.max("newer_start_ns").alias("last_ns")).first()
        if row is not None and row["last_ns"] is not None:
            recovered[window.fault] = round((row["last_ns"] - window.inject_ns) / MS, 1)
    return recovered


def back_at_work(frames: Frames, found: tuple[Window, ...]) -> dict[str, float]:
    """Per other fault: ms from the heal until every worker that was hit had finished a job again."""
    healed = [window for window in found if window.name not in WORKER_FAULTS]
    finishes = frames.events.where(accepted_finish())
    workers = {process.name for process in frames.run.processes if process.role == "worker"}
    recovered: dict[str, float] = {}
    for window in healed:
        hit = workers.intersection(processes_hit(frames.run, window))
        after = F.col("first_send_ns").between(F.lit(window.heal_ns), F.lit(window.next_ns)) & F.col("proc").isin(*hit)
        rows = finishes.where(after).groupBy("proc").agg(F.min("done_ns").alias("first_ns")).collect()
        if rows and len(rows) == len(hit):
            recovered[window.fault] = round((max(row["first_ns"] for row in rows) - window.heal_ns) / MS, 1)
    return recovered


def fault_at(instant: Column, found: tuple[Window, ...]) -> Column:
    """The latest fault injected before an instant; null before the first fault."""
    name = F.lit(None).cast("string")
    for window in found:
        name = F.when(instant >= F.lit(window.inject_ns).cast("bigint"), F.lit(window.fault)).otherwise(name)
    return name
