"""J19: delayed jobs start on time: 99 of 100 start at most `delayed_p99_ms` (of the spec) after they were due.

A job's lateness is the time from the first send of its enqueue plus its delay to the first start of its handler, on the
monotonic clock, so it includes both network trips. Jobs due inside the window of a fault, or just after it, are left out,
because their lateness is due to the fault. Without `delayed_p99_ms` the check does not apply; with too few jobs it is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.catch_up import fault_spans
from reports.checks.base import Check, Flag, sentence
from reports.checks.j1_no_overlap import doubts
from reports.facts import MS, Run, whole
from reports.windows import within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.frames import Frames

#: Fewer jobs do not give a meaningful 99th percentile.
JOBS_MIN = 50


def allowed_ms(run: Run) -> int:
    """The bound of the spec in ms; 0 = none."""
    return whole(run.spec, "delayed_p99_ms", 0)


def lateness(frames: Frames) -> DataFrame:
    """One row: the number of delayed jobs due outside of faults, and percentiles of their lateness in ms; null for infinite."""
    due_ns = F.col("enqueue_sent_ns") + F.col("delay_ns")
    calm = frames.jobs.where((F.col("delay_ns") > 0) & F.col("created") & ~within(due_ns, fault_spans(frames.run)))
    late_ms = F.coalesce((F.col("started_ns") - due_ns) / MS, F.lit(float("inf")))
    return calm.agg(F.count("*").alias("n"), F.percentile(late_ms, [0.5, 0.99, 1.0]).alias("late_ms")).withColumn(
        "who", F.lit("the delayed jobs")
    )


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """A p99 above the bound; or, as unknown, too few delayed jobs."""
    found, bound_ms, p99_ms = lateness(frames), allowed_ms(frames.run), F.element_at("late_ms", 2)
    words = sentence("started ", F.round(p99_ms, 1), f" ms after they were due at p99, more than {bound_ms} ms")
    late = Flag("late start", p99_ms > bound_ms, words, absence=True, subject="who", timed=True)
    scarce = sentence("were ", F.col("n"), f" outside of faults, fewer than {JOBS_MIN}")
    return [(found, late), (found, Flag("few delayed", F.col("n") < JOBS_MIN, scarce, False, level="unknown", subject="who"))]


CHECK = Check("J19", "delayed jobs start on time", doubts, more=more, applies=lambda run: allowed_ms(run) > 0)
