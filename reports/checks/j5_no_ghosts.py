"""J5: nothing from nowhere. Whatever is claimed was sent by an enqueue that did not fail, before the claim was answered."""

from __future__ import annotations

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, sentence
from reports.checks.j1_no_overlap import doubts
from reports.facts import Run


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Jobs that were claimed without an enqueue, or before it."""
    del run
    sent_ns, claimed_ns = F.col("enqueue_sent_ns"), F.col("claim_done_ns")
    never, early = claimed_ns.isNotNull() & sent_ns.isNull(), sent_ns >= claimed_ns
    return {
        "jobs": [
            Flag("from nowhere", never, sentence("was claimed, and no enqueue of it was sent"), absence=True),
            Flag("too early", early, sentence("was claimed before it was enqueued"), absence=True),
        ]
    }


CHECK = Check("J5", "no job comes from nowhere", doubts, flags)
