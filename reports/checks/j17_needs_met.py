"""J17: no job is claimed before the jobs that it depends on have ended (rule 25).

A parent counts as not ended until the first call is sent that may end it: a finish, a bury, a last retry, a reap. A job whose
parent was buried, discarded, skipped or rerouted is buried as well, unless its enqueue says `ignore`; so it is never claimed.
Histories older than version 7 do not say it, and this is not judged there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.caching import kept
from reports.checks.base import Check, Flag, sentence
from reports.checks.j1_no_overlap import doubts
from reports.meaning import NEVER_NS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.facts import Run
    from reports.frames import Frames

#: The version of the history that says what a parent's failure means for its children.
SAID_SINCE = 7


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Jobs claimed while a parent had certainly not ended; and, when no job had a parent, an unknown."""
    children = frames.jobs.where(F.col("needs").isNotNull() & F.col("created") & F.col("claim_done_ns").isNotNull())
    needed = children.select("job", "claim_done_ns", "on_parent_failure", F.explode("needs").alias("parent"))
    lost = (F.col("failed_for_good") & ~F.col("accepted")).alias("lost")
    parents = frames.jobs.select(F.col("job").alias("parent"), F.coalesce("key_free_ns", F.lit(NEVER_NS)).alias("over_ns"), lost)
    pairs = kept(needed.join(parents, "parent"))
    early = Flag(
        "parent not over",
        F.col("claim_done_ns") < F.col("over_ns"),
        sentence("was claimed before ", F.col("parent"), ", which it needs, had ended"),
        absence=True,
    )
    orphaned = Flag(
        "parent lost",
        F.col("lost") & (F.col("on_parent_failure") == "bury"),
        sentence("was claimed, and ", F.col("parent"), ", which it needs, had failed for good"),
        absence=True,
    )
    counted = pairs.agg(F.count("*").alias("pairs")).select("pairs", F.lit("every job").alias("job"))
    idle = Flag("nobody waited", F.col("pairs") == 0, sentence("needed no other"), absence=False, level="unknown")
    return [(pairs, early), (pairs, orphaned), (counted, idle)]


def not_judged(run: Run) -> list[str]:
    """What becomes of children when a parent fails, where rows do not say what was asked for."""
    said = run.version >= SAID_SINCE
    return [] if said else [f"children of failed jobs: a history of version {run.version} does not say their policy"]


CHECK = Check(
    "J17",
    "no job runs before those that it needs",
    doubts,
    more=more,
    applies=lambda run: bool(run.spec.get("dependencies")),
    not_judged=not_judged,
)
