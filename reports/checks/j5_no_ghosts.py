"""J5: every claimed, listed or handled job has an origin in the history.

Every claimed job was sent by an enqueue that did not fail, before the claim was answered. The same holds for every job that a
snapshot lists, and for every job of which another enqueue was refused as a duplicate. A handler runs, and a finish is accepted,
only under a lease that a claim delivered, and in the process that got it. If no answered claim delivered the lease but that
process has an unanswered claim, the lease may come from that claim: unknown, not violated.

A callback has no enqueue of its own: the script that ended its job made it, and its id begins with that job's. Whether it was
made once, and for the right end, is not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, sentence, token
from reports.checks.j1_no_overlap import doubts
from reports.checks.j4_conservation import all_lost
from reports.facts import Run

if TYPE_CHECKING:
    from pyspark.sql import Column


#: Ids of callbacks: no other job may have a > in its own.
CALLBACK = r">(success|failure):\d+$"


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Jobs that were claimed or listed without an enqueue, or claimed before it; leases under which a job ran without a
    claim."""
    sent_ns, claimed_ns, states = F.col("enqueue_sent_ns"), F.col("claim_done_ns"), F.col("states")
    unsent, early = sent_ns.isNull() & ~F.col("job").rlike(CALLBACK), sent_ns >= claimed_ns
    never, appeared = claimed_ns.isNotNull() & unsent, (F.size(states) > 0) & unsent & claimed_ns.isNull()
    of_nothing = F.coalesce(sent_ns >= F.col("duplicate_ns"), F.col("duplicate_ns").isNotNull())
    ran_by, stray = F.col("ran_by"), stranger()
    unsure = F.coalesce(ran_by.isin(*run.unsure_claimers), F.lit(False))
    strange = sentence("ran in ", stray, " under ", token(), ", which was handed to ", F.col("proc"))
    # A service may have children that enqueue, and that nobody records.
    level = "unknown" if run.of_service else "violated"
    unsent_words = "and no process that is recorded sent its enqueue" if run.of_service else "and no enqueue of it was sent"
    return {
        "jobs": [
            # A job whose enqueue was not answered may have been claimed at the old server, and be refused by the next.
            Flag("from nowhere", never, sentence(f"was claimed, {unsent_words}"), absence=True, level=level, loss=all_lost(run)),
            Flag(
                "appeared",
                appeared,
                sentence("is ", F.array_join(states, " and "), f", {unsent_words}"),
                absence=True,
                level=level,
            ),
            Flag("too early", early, sentence("was claimed before it was enqueued"), absence=True),
            Flag("duplicate of nothing", of_nothing, sentence("was refused as a duplicate before it was enqueued"), absence=True),
        ],
        "tokens": [
            Flag(
                "unclaimed",
                ran_by.isNotNull() & claimed_ns.isNull(),
                sentence("ran in ", ran_by, " under ", token(), ", which no claim handed out"),
                absence=True,
                level=F.when(unsure, "unknown").otherwise("violated"),
            ),
            Flag("ran by another", stray.isNotNull(), strange, absence=False),
        ],
    }


def stranger() -> Column:
    """A process that ran a job under a lease that was delivered to another process; null when there is none."""

    def elsewhere(name: str) -> Column:
        return F.when((F.col(name) != F.col("proc")) & (F.col(name) != F.col("other_proc")), F.col(name))

    return F.coalesce(elsewhere("ran_by"), elsewhere("also_ran_by"))


CHECK = Check("J5", "no job comes from nowhere", doubts, flags)
