"""J3: no finish is accepted from a lease that a newer one has definitely replaced before the finish was sent.

Newer is a greater fence, or the same fence under another nonce (rule 33). A finish that is accepted after its deadline, with
no newer claim, is right (rule 32).
"""

from __future__ import annotations

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, milliseconds, sentence, token
from reports.facts import Run


def doubts(run: Run) -> list[str]:
    """Without accepted finishes none can be stale, which is no pass."""
    return [] if run.has("finished") else ["no finish ever succeeded"]


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Leases whose finish was accepted though a newer claim had been answered before it was first sent."""
    del run
    newer_ns, sent_ns = F.col("newer_claim_ns"), F.col("finish_sent_ns")
    late_ms = milliseconds(sent_ns - newer_ns)
    words = sentence("finish of ", token(), " was accepted, sent ", late_ms, " ms after a newer claim was answered")
    return {"tokens": [Flag("stale", F.col("accepted") & (newer_ns < sent_ns), words, absence=False)]}


CHECK = Check("J3", "no stale finish is accepted", doubts, flags)
