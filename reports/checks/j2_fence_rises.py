"""J2: the fences of a job rise, and no token is issued twice (rule 6).

A claim that was first sent after another claim of the job had been answered gets a greater fence than that one, also across
eras of the server. No two leases of a job share a fence, whatever their nonces. A token is issued to one worker by one claim;
other replies with it must be repeats (rule 4). Gaps between fences are allowed: releases and unanswered claims cause them (rule
32).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, milliseconds, sentence, token
from reports.checks.j1_no_overlap import doubts
from reports.facts import Run

if TYPE_CHECKING:
    from pyspark.sql import Column


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Leases whose fence is below that of an older one, or equal to another; tokens issued to two claims or two workers."""
    del run
    sent_ns, newer_ns, proc, other = (F.col(name) for name in ("claim_sent_ns", "newer_claim_ns", "proc", "other_proc"))
    twin, claimed = F.col("shared_fence") & sent_ns.isNotNull(), ("claim ", token(), " by ", proc)
    late_ms = milliseconds(sent_ns - newer_ns)
    fell = sentence(*claimed, " was sent ", late_ms, " ms after a claim with a greater fence was answered")
    twice = sentence("lease ", token(), " was handed out by ", F.col("deliveries"), " claims, to ", who(proc, other))
    return {
        "tokens": [
            Flag("fence fell", (newer_ns < sent_ns) & ~twin, fell, absence=False),
            Flag("equal fences", twin, sentence(*claimed, " has the fence of another lease"), absence=False),
            Flag("token twice", (F.col("deliveries") > 1) | (proc != other), twice, absence=False),
        ]
    }


def who(proc: Column, other: Column) -> Column:
    """The names of the one or two workers that got a lease."""
    return F.when(proc == other, proc).otherwise(F.concat_ws(" and ", other, proc))


CHECK = Check("J2", "fences rise and tokens are unique", doubts, flags)
