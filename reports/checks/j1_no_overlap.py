"""J1: no two leases of a job are held at the same time, and none is reaped before its end.

A lease is certainly held from the claim's reply to the earliest of: the first send of a call that may have ended it (one that
neither failed nor was answered as stale), the first send of the reap that ended it, and its deadline on the worker's clock,
counted from the first send of the claim or of the latest extend answered ok (rules 9 and 32). A lease that ends before its
claim is answered is never held.

The server counts a lease from a later instant than its worker does. So a reap that was answered before the deadline on the
worker's clock ended a live lease. Extends that are missing from the history could only move that deadline further. Only the
leases that a fault `lease-expired` names were ended at the server by the harness itself, and may be reaped at any time.

One reap may come earlier: that of a worker whose connection was gone (rule 39). It is right for a process that was killed before,
as the history records, wrong for one that lived on to a later kill or to its end, and in doubt otherwise. A worker that a slow
machine kept from connecting again in time is in doubt as well.
"""

from __future__ import annotations

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, milliseconds, sentence, token
from reports.facts import MS, Run
from reports.recovery import holder_of, value_of
from reports.windows import gone_by

#: The fault whose stages name the leases that it has ended.
EXPIRED = "lease-expired"

#: The server's wall clock may run this much ahead of the monotonic one over a lease.
CLOCK_SLACK_MS = 50


def doubts(run: Run) -> list[str]:
    """The check needs at least one claim: without claims nothing can overlap, which must not pass."""
    return [] if run.has("leased") else ["no claim ever succeeded"]


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Leases that began while an earlier one of their job was held; leases that were reaped before their end."""
    start_ns, end_ns, earlier_ns = F.col("claim_done_ns"), F.col("hold_end_ns"), F.col("earlier.hold_end_ns")
    overlap = (end_ns > start_ns) & (earlier_ns > start_ns)
    claim = ("claim ", token(), " by ", F.col("proc"))
    hold = (
        token("earlier."),
        " by ",
        F.col("earlier.proc"),
        " was held for another ",
        milliseconds(earlier_ns - start_ns),
        " ms",
    )
    # `absence`: the row that ended the earlier hold may be missing from the history.
    reaped_ns = F.col("reap_done_ns")
    # An extend that was sent after the reap is left to J3.
    extended_ns = F.when(F.col("extend_sent_ns") < reaped_ns, F.col("extend_end_ns"))
    lease_end_ns = F.coalesce(extended_ns, F.col("claim_end_ns"))
    by_harness = F.concat_ws(" ", "job", token()).isin(*ended_by_harness(run))
    early = (reaped_ns < lease_end_ns - CLOCK_SLACK_MS * MS) & ~by_harness
    holder = F.coalesce("proc", holder_of(run.incarnations))
    killed_ns = value_of({kill.target: kill.inject_ns for kill in run.kills}, holder)
    killed = F.coalesce(reaped_ns >= killed_ns, F.lit(False))
    lived = F.coalesce(reaped_ns < value_of(run.alive_until_ns, holder), F.lit(False))
    as_lost = F.col("reaped_as_lost")
    early &= ~(as_lost & killed)
    level = F.when(lived, "violated").otherwise("unknown")
    # A claim or a renewal that was lost holds no longer; the lease as it was before the renewal does.
    lost = F.coalesce(*(gone_by(run, F.col(f"earlier.{name}_done_ns"), start_ns) for name in ("claim", "extend")))
    undone = F.when(~F.coalesce(F.col("earlier_kept_end_ns") > start_ns, F.lit(False)), lost)
    kept_ns = F.when(F.col("extend_kept_sent_ns") < reaped_ns, F.col("extend_kept_end_ns"))
    kept_early = reaped_ns < F.coalesce(kept_ns, F.col("claim_end_ns")) - CLOCK_SLACK_MS * MS
    renewal_undone = F.when(~F.coalesce(kept_early, F.lit(False)), gone_by(run, F.col("extend_done_ns"), reaped_ns))
    left = sentence("lease ", token(), " was reaped ", milliseconds(lease_end_ns - reaped_ns), " ms before its end")
    return {
        "tokens": [
            Flag("overlap", overlap, sentence(*claim, " while ", *hold), absence=True, loss=undone),
            Flag("early reap", early & ~as_lost, left, absence=False, loss=renewal_undone),
            Flag("early reap", early & as_lost, left, absence=False, level=level, loss=renewal_undone, timed=True),
        ]
    }


def ended_by_harness(run: Run) -> list[str]:
    """Leases that a fault has ended at the server, as `job fence/nonce`."""
    return sorted({lease for stage in run.stages if stage.name == EXPIRED for lease in stage.leases})


CHECK = Check("J1", "no two workers hold a job at once", doubts, flags)
