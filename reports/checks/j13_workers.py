"""The part of J13 about workers: each live worker claims jobs after the last heal, and goes on claiming (rule 33).

A worker is silent when it claims nothing after the last heal, or nothing in the second half of the time from that heal to the
last enqueue, while the others claim. Both are sound only with enough work for all, and for its own handlers: where it has told
the names of these, other jobs do not count. Idle workers block on one wake list of each class that serves the longest waiting
one first, so with `TRAFFIC_PER_WORKER` claims per live worker a healthy one gets its turn. Only the second half counts, so that
a slow worker has the first half to recover. It ends with the load, because afterwards there is nothing left to claim, and must
last `SWEEPS` sweeps, as a worker that missed a wake-up blocks again after one (rule 22). A worker of a service without a free
place at the deadline can claim nothing: its handlers hang, or take long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Flag, sentence
from reports.facts import MS, Run
from reports.frames import Frames

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: A worker has stopped claiming if it made none of this many claims (calls that got jobs) per live worker; fewer prove nothing.
TRAFFIC_PER_WORKER = 10

#: Silence that is shorter than this many sweep intervals proves nothing.
SWEEPS = 2


def silent_workers(frames: Frames) -> tuple[DataFrame, Flag]:
    """Live workers that stopped claiming. A worker that never claimed is unknown when there was too little work or time."""
    run, heal_ns = frames.run, frames.run.last_heal_ns or 0
    enough = TRAFFIC_PER_WORKER * len(run.live_workers)
    claimed_ns, proc = F.col("claim_done_ns"), F.col("proc")
    load = frames.jobs.agg(F.max("enqueue_sent_ns").alias("last_ns"))
    load = load.withColumn("half_ns", F.expr(f"(last_ns + {heal_ns}L) div 2"))
    late = (claimed_ns > F.col("half_ns")) & (claimed_ns <= F.col("last_ns"))
    # One call may claim a whole batch, but it takes only one turn at the wake list.
    call, name = F.struct(proc, claimed_ns), F.regexp_extract("class", "^[^@~]*", 0)
    kinds = kinds_of(run)
    of_kind = [name.isin(*names) if names else F.lit(True) for names in kinds]
    after = frames.tokens.where(claimed_ns > heal_ns).crossJoin(F.broadcast(load))
    traffic = after.agg(
        F.array(*(F.count_distinct(F.when(mine, call)) for mine in of_kind)).alias("claims_of"),
        F.collect_set("proc").alias("claimed"),
        F.array(*(F.count_distinct(F.when(late & mine, call)) for mine in of_kind)).alias("late_claims_of"),
        F.collect_set(F.when(late, proc)).alias("late_claimed"),
        F.max("half_ns").alias("half_ns"),
        F.max("last_ns").alias("last_ns"),
    )
    never = ~F.array_contains("claimed", F.col("worker.name"))
    there = (F.col("worker.opened_ns") < F.col("half_ns")) & (F.col("worker.closed_ns") > F.col("last_ns"))
    long_enough = F.col("last_ns") - F.col("half_ns") >= SWEEPS * run.sweep_ms * MS
    stopped = there & long_enough & (F.col("late_claims") >= enough) & ~F.array_contains("late_claimed", F.col("worker.name"))
    of_late = sentence("claimed none of the last ", F.col("late_claims"), " claims under load")
    of_all = sentence("claimed none of the ", F.col("claims"), " claims after the last heal")
    known = (F.col("claims") >= enough) & F.lit(run.watched_after(heal_ns))
    workers = traffic.withColumn("worker", F.explode(lives(run)))
    counts = ("claims", "late_claims")
    workers = workers.withColumns({count: F.col(f"{count}_of")[F.col("worker.kind")] for count in counts})
    workers = workers.withColumn("name", F.col("worker.name"))
    level = F.when(known, "violated").otherwise("unknown")
    words = F.when(never, of_all).otherwise(of_late)
    return workers, Flag("silent worker", never | stopped, words, absence=True, level=level, subject="name", timed=True)


def kinds_of(run: Run) -> list[frozenset[str]]:
    """What live workers have handlers for: each set of names once."""
    return sorted({run.names_of(name) for name in run.live_workers}, key=sorted)


def lives(run: Run) -> Column:
    """The live workers with free places as an array of structs: name, start and end of their lifetime (no end without a close
    row), and the place of their names among the kinds."""
    live, kinds = {*run.live_workers} - run.busy, kinds_of(run)
    files = {process.name: run.files[process.file] for process in run.processes if process.name in live}
    return F.array(
        *(
            F.struct(
                F.lit(name).alias("name"),
                F.lit(file.opened_ns).cast("bigint").alias("opened_ns"),
                F.lit(file.closed_ns or 2**62).cast("bigint").alias("closed_ns"),
                F.lit(kinds.index(run.names_of(name))).alias("kind"),
            )
            for name, file in files.items()
        )
    )
