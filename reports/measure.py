"""The measures of a verdict: counts, exact percentiles per phase, recovery per kill, rates, and the recorder's share of
time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports.checks import j4_conservation, j6_exactly_once
from reports.checks.j19_delayed_on_time import allowed_ms, lateness
from reports.facts import ALL, MS, RANKS, SERIES, WORKER_FAULTS, Phase, Run, samples_min
from reports.frames import Frames
from reports.meaning import accepted_finish
from reports.verdict import NO_MEASURES
from reports.windows import Window, processes_hit, windows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

# Exact percentiles of the four latency series, per phase and over all phases.
#
# | series | latency of each job, in ms |
# |---|---|
# | service | from the first send of its enqueue to the answer |
# | intended | from the instant at which it should have been sent to that answer: delay from earlier slow replies counts too |
# | queue_delay | by the server's clock: from when it became claimable (enqueue, or the end of its delay) to its first claim |
# | end_to_end | from the intended instant plus its delay to the answer of the accepted finish |
#
# A job that never reached the end of a series counts as infinite there, shown as null; it is not left out.


#: Latency of a job that never got there. Interpolating between it and a finite latency gives infinity as well.
NEVER_MS = inf


def series() -> dict[str, Column]:
    """The latency of a job in each series, in ms, as columns."""
    answered_ns, sent_ns, intended_ns = F.col("created_done_ns"), F.col("enqueue_sent_ns"), F.col("intended_ns")
    due_ns = intended_ns + F.coalesce("delay_ns", F.lit(0))
    return {
        "service": (answered_ns - sent_ns) / MS,
        "intended": (answered_ns - intended_ns) / MS,
        "queue_delay": F.col("claim_srv_us") / 1_000 - F.col("claimable_ms"),
        "end_to_end": (F.col("accepted_done_ns") - due_ns) / MS,
    }


def columns() -> list[Column]:
    """The aggregates: one array of exact percentiles for each series."""
    ranks = [rank / 1_000 for rank in RANKS.values()]
    return [F.percentile(F.coalesce(value, F.lit(NEVER_MS)), ranks).alias(name) for name, value in series().items()]


def lines(phase: str, row: Row) -> list[dict[str, Any]]:
    """One line per series: the number of jobs and the percentiles."""
    return [{"phase": phase, "series": name, "n": row["enqueued"], **stated(row["enqueued"], row[name])} for name in SERIES]


def stated(count: int, values_ms: Sequence[float] | None) -> dict[str, float | None]:
    """The percentiles that this number of samples supports, None for the others; the maximum is always included."""
    values = shown(values_ms or [NEVER_MS] * len(RANKS))
    enough = [count >= samples_min(name) for name in RANKS]
    return {name: value if ok else None for name, value, ok in zip(RANKS, values, enough, strict=True)}


def shown(values_ms: Sequence[float]) -> list[float | None]:
    """Percentiles rounded to a microsecond; None for infinite ones."""
    return [round(value, 3) if isfinite(value) else None for value in values_ms]


# The cost of each fault: jobs lost and doubled, stale finishes refused, and the time until work went on.
#
# An event is counted under the latest fault injected before it. A lost job counts at the instant of its
# last state change, a doubled job at its last finish, a refused finish at its reply. Events before the
# first fault are counted under no fault.


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
    rows = refused.groupBy(fault_at(F.col("done_ns"), found).alias("fault")).agg(F.count("*").alias("n")).collect()
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


#: Percentile ranks of the send lag.
LAG_RANKS = (0.5, 0.99)


def measures(frames: Frames) -> dict[str, Any]:
    """All `measures` of verdict.json except `lost` and `doubled`, which the checks count."""
    run = frames.run
    by_phase = {row["phase"]: row for row in summary(frames).collect()}
    total = by_phase[None]
    named = [(name, by_phase[name]) for name in phase_names(run.phases) if name in by_phase]
    return {
        **NO_MEASURES,
        "enqueued": total["enqueued"],
        "finished": total["finished"],
        "refused_stale": total["stale"],
        "dead": dead(run, total["buried"]),
        "dropped": run.dropped,
        "latency": [latency(name, row) for name, row in named],
        "percentiles": [line for name, row in [*named, (ALL, total)] for line in lines(name, row)],
        "recovery": recovery(frames),
        "faults": faults(run),
        "by_fault": by_fault(frames),
        "rates": rates(total, run.dropped),
        "send_lag": dict(zip(("p50_ms", "p99_ms"), shown(total["lag_ms"] or [NEVER_MS] * 2), strict=True)),
        "delayed": delayed(frames),
        "recorder_share": recorder_share(run),
        "hosts": hosts(run),
    }


def dead(run: Run, buried: int) -> int:
    """How many jobs are dead: as the snapshot at the end says, or where it does not, as many as were buried."""
    listed = run.snapshots["end"].states.get("dead") if "end" in run.snapshots else None
    return listed[0] if listed else buried


def summary(frames: Frames) -> DataFrame:
    """One row per phase that has jobs, and one with phase null for all of them.

    Latency is end to end: from the intended instant of the enqueue plus the job's delay to the reply of the accepted finish. A
    job counts for the phase that contains this intended instant.
    """
    jobs = frames.jobs.where(F.col("created") | F.col("claim_done_ns").isNotNull())
    finished = F.col("accepted") | (F.array_contains("end_states", "done") & ~F.col("dropped"))
    lag_ms = (F.col("enqueue_sent_ns") - F.col("intended_ns")) / MS
    with_phase = jobs.withColumn("phase", phase_of(F.col("intended_ns"), frames.run.phases))
    return with_phase.rollup("phase").agg(
        F.count("*").alias("enqueued"),
        F.count_if(finished).alias("finished"),
        F.count_if(F.col("accepted_done_ns").isNull()).alias("unfinished"),
        F.sum("stale_finishes").alias("stale"),
        F.count_if(F.col("buried")).alias("buried"),
        *columns(),
        F.percentile(lag_ms, list(LAG_RANKS)).alias("lag_ms"),
        F.min("intended_ns").alias("first_ns"),
        F.max("intended_ns").alias("last_ns"),
        F.max("accepted_done_ns").alias("done_ns"),
    )


def delayed(frames: Frames) -> dict[str, Any]:
    """How late delayed jobs started, outside of faults. Not measured when the spec sets no bound for it."""
    if not allowed_ms(frames.run):
        return dict(NO_MEASURES["delayed"])
    row = lateness(frames).collect()[0]
    return {"n": row["n"], **dict(zip(("p50_ms", "p99_ms", "max_ms"), shown(row["late_ms"] or [NEVER_MS] * 3), strict=True))}


def phase_of(instant: Column, phases: Sequence[Phase]) -> Column:
    """The name of the phase that contains an instant."""
    name = F.lit("before")
    for phase in phases:
        name = F.when(instant >= F.lit(phase.t_ns).cast("bigint"), F.lit(phase.name)).otherwise(name)
    return name


def phase_names(phases: Sequence[Phase]) -> list[str]:
    """Names of the phases in order of their start, `before` (the time before the first phase) included."""
    return list(dict.fromkeys(["before", *(phase.name for phase in phases)]))


def latency(phase: str, row: Row) -> dict[str, Any]:
    """One line of the latency table. A percentile that falls among unfinished jobs is null."""
    p50_ms, _, p99_ms, *_ = shown(row["end_to_end"])
    return {"phase": phase, "n": row["enqueued"], "unfinished": row["unfinished"], "p50_ms": p50_ms, "p99_ms": p99_ms}


def recovery(frames: Frames) -> list[dict[str, Any]]:
    """One line per witnessed kill: how its process was connected, the number of leased jobs, and the slowest recovery in ms (null
    when one never ran again)."""
    kills = frames.run.kills
    if not kills:
        return []
    held = frames.in_hand.where(~F.col("ended")).groupBy("fault")
    slowest = held.agg(
        F.count("*").alias("jobs"), F.max("recovery_ns").alias("recovery_ns"), F.count("recovery_ns").alias("recovered")
    )
    found = {row["fault"]: row for row in slowest.collect()}
    lines: list[dict[str, Any]] = []
    for kill in kills:
        row = found.get(kill.fault)
        complete = row is not None and row["jobs"] == row["recovered"]
        lines.append(
            {
                "fault": kill.fault,
                "target": kill.target,
                "connected": frames.run.connected(kill.target),
                "jobs": row["jobs"] if row else 0,
                "recovery_ms": round(row["recovery_ns"] / MS, 1) if row and complete else None,
                "bound_ms": frames.run.recovery_bound_ms,
            }
        )
    return lines


def hosts(run: Run) -> list[dict[str, Any]]:
    """One line per host beside the harness's: by how much its clock was ahead of the harness's, and how well that is known; null
    where nobody knows. Its calls are taken to have lasted longer by twice the error (see `reports.meaning`)."""
    return [
        {
            "host": host.name,
            "boot_id": host.boot_id,
            "files": list(host.files),
            "ahead_ms": host.ahead_ms,
            "error_ms": round(host.error_ns / MS, 3) if host.at_ns else None,
        }
        for host in run.hosts[1:]
    ]


def faults(run: Run) -> list[dict[str, Any]]:
    """One line per fault, with the detail that its witness recorded."""
    lines: list[dict[str, Any]] = []
    for fault in dict.fromkeys(stage.fault for stage in run.stages):
        stages = {stage.stage: stage for stage in run.stages if stage.fault == fault}
        witness, healed = stages.get("witness"), stages.get("healed")
        some = next(iter(stages.values()))
        lines.append(
            {
                "fault": fault,
                "name": some.name,
                "target": some.target,
                "witnessed": witness is not None and witness.ok,
                "healed": healed is not None and healed.ok,
                "detail": witness.detail if witness else "",
                "healed_detail": healed.detail if healed else "",
            }
        )
    return lines


def rates(total: Row, dropped: int) -> dict[str, float | None]:
    """Jobs offered and finished per second, each from the first to the last such event."""
    first_ns, last_ns, done_ns = total["first_ns"], total["last_ns"], total["done_ns"]
    return {
        "offered_per_s": per_s(total["enqueued"] + dropped, first_ns, last_ns),
        "finished_per_s": per_s(total["finished"], first_ns, done_ns),
    }


def per_s(count: int, start_ns: int | None, end_ns: int | None) -> float | None:
    """A rate per second, or None without a time span."""
    if start_ns is None or end_ns is None or end_ns <= start_ns:
        return None
    return round(count * 1e9 / (end_ns - start_ns), 2)


def recorder_share(run: Run, of: Sequence[str] = ("worker", "producer", "sink")) -> float | None:
    """The share of the lifetime of the processes of these roles that their recorders took. A sink runs inside its worker, so
    its lifetime is not added."""
    roles = {process.file: process.role for process in run.processes}
    recorded = [file for file in run.files.values() if roles.get(file.name) in of]
    lived_ns = sum(
        file.closed_ns - file.opened_ns
        for file in recorded
        if roles[file.name] != "sink" and file.closed_ns is not None and file.opened_ns is not None
    )
    return round(sum(file.recorder_ns for file in recorded) / lived_ns, 5) if lived_ns else None
