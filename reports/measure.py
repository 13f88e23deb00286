"""The measures of a verdict: counts, exact percentiles per phase, recovery per kill, rates, and the recorder's share of
time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports import percentiles
from reports.by_fault import by_fault
from reports.checks.j19_delayed_on_time import allowed_ms, lateness
from reports.facts import MS, Phase, Run
from reports.frames import Frames
from reports.percentiles import NEVER_MS, shown
from reports.ranks import ALL
from reports.verdict import NO_MEASURES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

#: Percentile ranks of the send lag.
LAG_RANKS = (0.5, 0.99)


def measures(frames: Frames) -> dict[str, Any]:
    """All `measures` of verdict.json except `lost` and `doubled`, which the checks count."""
    run = frames.run
    by_phase = {row["phase"]: row for row in summary(frames).collect()}
    total = by_phase[None]
    dead = run.snapshots["end"].states.get("dead") if "end" in run.snapshots else None
    named = [(name, by_phase[name]) for name in phase_names(run.phases) if name in by_phase]
    return {
        **NO_MEASURES,
        "enqueued": total["enqueued"],
        "finished": total["finished"],
        "refused_stale": total["stale"],
        "dead": dead[0] if dead else total["buried"],
        "dropped": run.dropped,
        "latency": [latency(name, row) for name, row in named],
        "percentiles": [line for name, row in [*named, (ALL, total)] for line in percentiles.lines(name, row)],
        "recovery": recovery(frames),
        "faults": faults(run),
        "by_fault": by_fault(frames),
        "rates": rates(total, run.dropped),
        "send_lag": dict(zip(("p50_ms", "p99_ms"), shown(total["lag_ms"] or [NEVER_MS] * 2), strict=True)),
        "delayed": delayed(frames),
        "recorder_share": recorder_share(run),
        "hosts": hosts(run),
    }


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
        F.count(F.lit(1)).alias("enqueued"),
        F.count_if(finished).alias("finished"),
        F.count_if(F.col("accepted_done_ns").isNull()).alias("unfinished"),
        F.sum("stale_finishes").alias("stale"),
        F.count_if(F.col("buried")).alias("buried"),
        *percentiles.columns(),
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
        F.count(F.lit(1)).alias("jobs"), F.max("recovery_ns").alias("recovery_ns"), F.count("recovery_ns").alias("recovered")
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
    where nobody knows. Its calls are taken to have lasted longer by twice the error (see `reports.host_errors`)."""
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
