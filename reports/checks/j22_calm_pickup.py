"""J22: outside of faults no job waits for its first claim for `pickup_bound_ms` (of the spec) while a worker is idle.

Such a wait is proved by one whole stretch of that length, inside the job's wait and outside of every fault and of the catch-up
after it, in which one and the same worker had room: fewer leases than its `concurrency`, counting each from before its claim was
sent until its handler had ended and its end was answered. The worker must have written rows all the time, as one does at least
once per sweep; otherwise the machine may not have let it run. A wait begins when the answer to the enqueue has come and the delay
is over, and ends when the first claim was sent.

Only jobs that any worker may claim at once are judged: no needs, no unique key, no wish for a certain worker, and no limit of
their name or key. A job of low priority may have to wait for others, but not while a worker is idle. The check cannot see jobs
whose first claim is not recorded (J4 and J13 find those that are never claimed), waits while all workers are full, and workers
that do nothing at all for longer than `SILENCE_SWEEPS` sweeps. Pauses are not in the history, so a scenario that pauses sets no
bound. A run in which no worker was ever idle for that long proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.caching import kept
from reports.catch_up import spans
from reports.checks.base import Check, Flag, milliseconds, sentence
from reports.checks.j1_no_overlap import doubts
from reports.checks.j12_limits_hold import limited
from reports.facts import MS, SLOT_NS, Run, whole
from reports.meaning import ENQUEUE_NS, NEVER_NS
from reports.windows import Span

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.frames import Frames

#: Resolution in ns of the leases that a worker holds: in a slot it counts as full when it may have been full at any time in it.
STEP_NS = 50 * MS

#: A worker that writes no row for this many sweeps may not have run.
SILENCE_SWEEPS = 1.5


def bound_ns(run: Run) -> int:
    """The bound of the spec in ns; 0 = none."""
    return whole(run.spec, "pickup_bound_ms", 0) * MS


def waits(frames: Frames) -> DataFrame:
    """The jobs that any worker might have claimed at once and that waited longer than the bound, with the span of the wait."""
    run, first = frames.run, F.col("first_claim")
    ready_ns = F.col("created_done_ns") + F.coalesce("delay_ns", F.lit(0))
    special = F.col("wants").isNotNull() | F.col("needs").isNotNull() | F.col("unique").isNotNull()
    simple = frames.jobs.where(F.col("created") & first.isNotNull() & ~special)
    long = simple.where(first["claim_sent_ns"] - ready_ns >= bound_ns(run))
    waited = long.select("job", ready_ns.alias("ready_ns"), "first_claim.*")
    return waited.where(~reduce(or_, (limited(limit).isNotNull() for limit in run.spec.get("limits") or ()), F.lit(False)))


def busy(frames: Frames) -> DataFrame:
    """Spans (worker, from_ns, to_ns) in which a worker may have been full, or may not have claimed for another reason."""
    places, step = whole(frames.run.spec, "concurrency", 1), Window.partitionBy("worker").orderBy("step")
    counted = steps(frames).groupBy("worker", "step").agg(F.sum("begun").alias("begun"), F.sum("over").alias("over"))
    before = F.coalesce(F.sum(F.col("begun") - F.col("over")).over(step.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    held = counted.withColumns({"before": before, "next_step": F.coalesce(F.lead("step").over(step), F.lit(NEVER_NS // STEP_NS))})
    after = F.col("before") + F.col("begun") - F.col("over")
    until = F.when(after >= places, F.col("next_step")).otherwise(F.col("step") + 1)
    full = held.where(F.col("before") + F.col("begun") >= places)
    spans_of = (F.col("step") * STEP_NS).alias("from_ns"), (until * STEP_NS).alias("to_ns")
    return full.select("worker", *spans_of).unionByName(outside(counted)).unionByName(asleep(frames))


def steps(frames: Frames) -> DataFrame:
    """When each lease of a live worker began, and when it was certainly over, if ever; counted in steps of `STEP_NS`."""
    ran_out, end_sent_ns = (F.col("handlings") == 0) | F.col("handled_ns").isNotNull(), F.col("end_sent_ns")
    # A call that is not answered is given up after ENQUEUE_NS.
    ended_ns = F.greatest(F.coalesce(F.col("ended.done_ns"), end_sent_ns + ENQUEUE_NS), "handled_ns")
    over_ns = F.when(ran_out & end_sent_ns.isNotNull(), ended_ns)
    leases = frames.tokens.where(F.col("claim_sent_ns").isNotNull() & F.col("proc").isin(*frames.run.live_workers))

    def step(at_ns: Column, begun: int) -> Column:
        return F.struct(F.floor(at_ns / STEP_NS).alias("step"), F.lit(begun).alias("begun"), F.lit(1 - begun).alias("over"))

    both = F.array(step(F.col("claim_sent_ns"), 1), step(over_ns, 0))
    each = leases.select(F.col("proc").alias("worker"), F.explode(both).alias("at")).select("worker", "at.*")
    return each.where(F.col("step").isNotNull())


def outside(counted: DataFrame) -> DataFrame:
    """The time before the first claim of a worker and after its last one: then it may not have begun, or may be stopping."""
    begun = F.when(F.col("begun") > 0, F.col("step"))
    life = counted.groupBy("worker").agg(F.min(begun).alias("first"), F.max(begun).alias("last"))
    never = F.struct(F.lit(0).cast("bigint").alias("from_ns"), ((F.col("first") + 1) * STEP_NS).alias("to_ns"))
    no_more = F.struct((F.col("last") * STEP_NS).alias("from_ns"), F.lit(NEVER_NS).cast("bigint").alias("to_ns"))
    return life.select("worker", F.explode(F.array(never, no_more)).alias("span")).select("worker", "span.*")


def asleep(frames: Frames) -> DataFrame:
    """The time in which a worker wrote no rows for too long, and that of faults with their catch-up."""
    found = [(name, span) for name in frames.run.live_workers for span in (*spans(frames.run), *silences(frames.run, name))]
    rows = [
        F.struct(
            F.lit(name).alias("worker"),
            F.lit(from_ns).cast("bigint").alias("from_ns"),
            F.lit(to_ns).cast("bigint").alias("to_ns"),
        )
        for name, (from_ns, to_ns) in found or [("", (0, 0))]
    ]
    return frames.jobs.sparkSession.range(1).select(F.explode(F.array(*rows)).alias("span")).select("span.*")


def silences(run: Run, worker: str) -> Iterator[Span]:
    """Spans in which a worker wrote no row for longer than it may."""
    most_ns = SILENCE_SWEEPS * run.sweep_ms * MS
    for before, after in pairwise(slots(run, worker)):
        if (after - before) * SLOT_NS > most_ns + SLOT_NS:
            yield before * SLOT_NS, after * SLOT_NS


def slots(run: Run, worker: str) -> Iterable[int]:
    """The time slots in which a worker wrote rows, in order."""
    return sorted({slot for file in run.files_of(worker) for slot in file.slots})


def idle(frames: Frames) -> DataFrame:
    """Stretches (worker, from_ns, to_ns) of at least the bound in which a worker had room all the time."""
    in_time = Window.partitionBy("worker").orderBy("from_ns", "to_ns")
    so_far = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    reached_ns, next_ns = F.max("to_ns").over(so_far), F.lead("from_ns").over(in_time)
    gaps = busy(frames).select(
        "worker", reached_ns.alias("from_ns"), next_ns.alias("to_ns"), F.min("from_ns").over(so_far).alias("first_ns")
    )
    # A worker without any claim has no span that begins with the run.
    return gaps.where((F.col("first_ns") == 0) & (F.col("to_ns") - F.col("from_ns") >= bound_ns(frames.run)))


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Jobs that waited while a worker was idle; and, when none ever was, an unknown."""
    stretches, waited = kept(idle(frames)), waits(frames)
    begin_ns, end_ns = F.greatest("ready_ns", "from_ns"), F.least("claim_sent_ns", "to_ns")
    # Both sides are small: jobs over the bound, and stretches of at least that length.
    beside = waited.join(F.broadcast(stretches), on=end_ns - begin_ns >= bound_ns(frames.run))
    longest = F.max(F.struct((end_ns - begin_ns).alias("for_ns"), "worker")).alias("idle")
    found = beside.groupBy("job").agg(longest, F.max(F.col("claim_sent_ns") - F.col("ready_ns")).alias("waited_ns"))
    while_idle = ("waited ", milliseconds(F.col("waited_ns")), " ms for its first claim, and for ")
    words = sentence(*while_idle, milliseconds(F.col("idle.for_ns")), " ms of it ", F.col("idle.worker"), " was idle")
    late = Flag("late pickup", F.lit(True), words, absence=True, timed=True)
    none = stretches.agg(F.count("*").alias("n")).withColumn("who", F.lit("every worker"))
    full = sentence("was never idle for the length of the bound outside of faults")
    return [(found, late), (none, Flag("never idle", F.col("n") == 0, full, absence=False, level="unknown", subject="who"))]


CHECK = Check("J22", "no job waits while workers idle", doubts, more=more, applies=lambda run: bound_ns(run) > 0)
