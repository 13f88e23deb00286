"""J5: nothing from nowhere.

Whatever is claimed was sent by an enqueue that did not fail, before the claim was answered; so was whatever a snapshot lists. And
a handler runs, and a finish is accepted, only under a lease that a claim handed out. Where that process has a claim without a
known answer, the lease may have come by it: that is unknown, not violated.
"""

from __future__ import annotations

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, sentence, token
from reports.checks.j1_no_overlap import doubts
from reports.facts import Run


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Jobs that were claimed or listed without an enqueue, or claimed before it; leases that ran without a claim."""
    sent_ns, claimed_ns, states = F.col("enqueue_sent_ns"), F.col("claim_done_ns"), F.col("states")
    never, early = claimed_ns.isNotNull() & sent_ns.isNull(), sent_ns >= claimed_ns
    appeared = (F.size(states) > 0) & sent_ns.isNull() & claimed_ns.isNull()
    ran_by = F.col("ran_by")
    unsure = F.coalesce(ran_by.isin(*run.unsure_claimers), F.lit(False))
    return {
        "jobs": [
            Flag("from nowhere", never, sentence("was claimed, and no enqueue of it was sent"), absence=True),
            Flag(
                "appeared",
                appeared,
                sentence("is ", F.array_join(states, " and "), ", and no enqueue of it was sent"),
                absence=True,
            ),
            Flag("too early", early, sentence("was claimed before it was enqueued"), absence=True),
        ],
        "tokens": [
            Flag(
                "unclaimed",
                ran_by.isNotNull() & claimed_ns.isNull(),
                sentence("ran in ", ran_by, " under ", token(), ", which no claim handed out"),
                absence=True,
                level=F.when(unsure, "unknown").otherwise("violated"),
            )
        ],
    }


CHECK = Check("J5", "no job comes from nowhere", doubts, flags)
