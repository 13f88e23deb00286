"""J24: what was acknowledged is kept, except in the windows of the declared loss (see `reports.windows`), and nobody writes to a
server that was replaced.

A job whose finish or drop was accepted is not handed out again by a later era of the server; a lease that was handed out is
known to a later era, so that the next one counts one claim more. (J4 has the jobs that are gone.) A client that must have heard
of a new primary runs no script at the old one: the harness counts them at that server, in the stage `stray` of its fault. After a
failover that lost what was acknowledged, some process notices that the server went back: the stage `noticed`. By when they must
have rests on time, so both are in doubt on a slow machine.

Losses inside of a window are counted under its declared finding. Applies to runs whose spec says what may be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, sentence, token
from reports.checks.j6_exactly_once import always, claimed_after, run_again
from reports.facts import Run
from reports.windows import explanation, gone_by

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from reports.frames import Frames


#: The stage in which the harness counts the writes at a replaced server, and the kind of violation.
STRAY = ("stray", "stray write")


def doubts(run: Run) -> list[str]:
    """The check needs accepted finishes: without them none can be undone."""
    return [] if run.has("finished") else ["no finish ever succeeded"]


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Jobs that ran again after their end in another era, and leases that a later era does not know of."""
    before = F.col("before")

    def undone(ends: str, ended_ns: Column, words: str) -> Flag:
        again = run_again(ends, same_era=False)
        words_of = sentence(*claimed_after(ended_ns), f"{words} had been accepted")
        return Flag("end undone", again(always), words_of, absence=False, loss=explanation(run, again))

    found: dict[Base, list[Flag]] = {
        "jobs": [undone("finishes", F.col("accepted_done_ns"), "finish"), undone("drops", F.col("dropped_done_ns"), "drop")]
    }
    if run.of_lanes:
        lost = gone_by(run, before["claim_done_ns"], F.col("claim_done_ns"))
        forgotten = (F.col("claims") <= before["claims"]) & (F.col("claim_era") != before["claim_era"])
        words = sentence("lease ", token(), " is claim ", F.col("claims"), " of the job, after claim ", before["claims"])
        found["tokens"] = [Flag("claim undone", forgotten, words, absence=False, loss=lost)]
    return found


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Faults after which clients wrote to the server that had been replaced, or nobody noticed what was gone."""
    spark = frames.jobs.sparkSession
    return failed_stages(frames.run, spark, *STRAY) + failed_stages(frames.run, spark, "noticed", "loss unnoticed")


def failed_stages(run: Run, spark: SparkSession, stage: str, kind: str) -> list[tuple[DataFrame, Flag]]:
    """A violation of this kind for each fault whose stage of this name failed: what had not happened in time."""
    failed = [one for one in run.stages if one.stage == stage and not one.ok]
    if not failed:
        return []
    faults = F.array(*(F.struct(F.lit(one.fault).alias("fault"), F.lit(one.detail).alias("detail")) for one in failed))
    rows = spark.range(1).select(F.explode(faults).alias("at")).select("at.*")
    return [(rows, Flag(kind, F.lit(True), sentence("shows: ", F.col("detail")), absence=False, subject="fault", timed=True))]


CHECK = Check(
    "J24", "acknowledged writes are kept", doubts, flags, more, applies=lambda run: not run.of_channels and "loss" in run.spec
)
