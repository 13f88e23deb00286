"""J25: a job of a service takes effect as often as its finish says, by what the service counts in its own database.

A job that was finished took effect: a handler that returns before it has worked loses its effect when its worker dies. No job
takes effect more often than its handlers were started. One that takes effect more than once was run more than once: what at
least once costs, which is declared unless the service says `once`, as one that uses `effects.once` may.

Judged are the jobs of all names but those that the service declares `without_effects`. Where the spec does not have that field,
because the run was recorded before there was one, judged are those of each class of which some job took effect. What it cannot
see: effects of jobs that the history does not have, such as rows of an older run, and whether an effect was the right one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Check, Flag, sentence
from reports.facts import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.frames import Frames


def doubts(run: Run) -> list[str]:
    """The check needs finishes."""
    return [] if run.has("finished") else ["no finish ever succeeded"]


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Jobs without their effect, with too many, and with more than one; and when none took effect, an unknown."""
    jobs = frames.eventful.jobs
    times, starts = F.coalesce("took_effect", F.lit(0)), F.col("handler_starts")
    counted = jobs.agg(F.collect_set(F.when(times > 0, F.col("class"))).alias("classes")).withColumn("who", F.lit("no job"))
    beside = jobs.crossJoin(F.broadcast(counted))
    declared = frames.run.spec.get("without_effects")
    if declared is None:
        judged = F.array_contains("classes", F.col("class"))
    else:
        # A class is a name, or a name, @, and what its jobs ask of workers. When no job at all took effect, that is said once.
        exempt = F.substring_index("class", "@", 1).isin(list(declared))
        judged = (F.size("classes") > 0) & ~F.coalesce(exempt, F.lit(True))
    lacks = F.col("accepted") & (times == 0) & judged
    return [
        (beside, Flag("no effect", lacks, sentence("was finished, and took no effect; handler runs: ", starts), absence=True)),
        (
            jobs,
            Flag(
                "effect unrun",
                (starts > 0) & (times > starts),
                sentence("took effect ", times, " times; handler runs: ", starts),
                absence=True,
            ),
        ),
        (
            jobs,
            Flag(
                "effect again",
                (times > 1) & (times <= starts),
                sentence("took effect ", times, " times, once in each of its ", starts, " runs at most"),
                absence=False,
            ),
        ),
        (
            counted,
            Flag(
                "uncounted",
                F.size("classes") == 0,
                sentence("of this run took effect, as the service counts"),
                absence=False,
                level="unknown",
                subject="who",
            ),
        ),
    ]


CHECK = Check("J25", "effects happen as finishes say", doubts, more=more, applies=lambda run: run.spec.get("effects") is True)
