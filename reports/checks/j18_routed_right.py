"""J18: a job with worker requirements is claimed only by a worker that meets them (rule 18).

In a run with `routing` in its spec the enqueues of such jobs record the requirement, and in the Lanes format their class does
too; the workers inside Locust do not meet it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.caching import kept
from reports.checks.base import Check, Flag, sentence, token
from reports.checks.j1_no_overlap import doubts
from reports.facts import CONSUMER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.frames import Frames


def leases(frames: Frames) -> DataFrame:
    """Leases of jobs with worker requirements, as recorded by their enqueue or by their class."""
    asked = frames.jobs.where(F.col("wants").isNotNull()).select("job", "wants")
    claimed = frames.tokens.where(F.col("claim_done_ns").isNotNull()).join(asked, "job", "left")
    return claimed.where(F.col("wants").isNotNull() | F.coalesce(F.col("class").contains("~"), F.lit(False)))


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Leases of a worker that does not meet the requirement; and, when no such job was claimed, an unknown."""
    routed = kept(leases(frames))
    text = sentence("claim ", token(), " of class ", F.col("class"), " was handed to ", F.col("proc"), ", which it is not for")
    wrong = Flag("wrong worker", F.col("proc").startswith(CONSUMER), text, absence=False)
    counted = routed.agg(F.count("*").alias("leases")).select("leases", F.lit("every worker").alias("job"))
    idle = Flag("nothing routed", F.col("leases") == 0, sentence("was asked for nothing"), absence=False, level="unknown")
    return [(routed, wrong), (counted, idle)]


CHECK = Check("J18", "jobs go to workers that they are for", doubts, more=more, applies=lambda run: bool(run.spec.get("routing")))
