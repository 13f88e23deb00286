"""J3: no call is accepted for a lease that was certainly over before the call was sent.

A lease is over when a newer one has replaced it, when it was reaped, and when a call that ends it was answered ok. The check
covers the finish and every other call with a token: retry, bury, release, mark and extend. (J6 covers leases that finish
twice.)

Newer means a greater fence, or the same fence with another nonce (rule 33). Two cases are correct: a finish accepted after the
deadline of its lease without a newer claim (rule 32), and one accepted by a server that had lost the newer claim, as declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, milliseconds, sentence, token
from reports.facts import Run
from reports.windows import gone_by

if TYPE_CHECKING:
    from pyspark.sql import Column


def doubts(run: Run) -> list[str]:
    """The check needs accepted finishes: without them none can be stale, which must not pass."""
    return [] if run.has("finished") else ["no finish ever succeeded"]


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Leases that were over before a finish, extend or other call was first sent, and whose call was accepted all the same.

    A finish may also be accepted by a repeat, and then its first send counts; other calls count only if answered `ok`.
    """
    newer_ns, finish_ns = F.col("replaced_ns"), F.col("finish_sent_ns")
    reaped = newer_ns == F.col("reap_done_ns")
    over = F.when(reaped, "the reap of the lease was answered").otherwise("a newer claim was answered")
    other_ns, extend_ns = F.col("other_sent_ns"), F.col("extend_sent_ns")

    def stale(kind: str, late: Column, call: Column | str, sent_ns: Column, done_ns: Column) -> Flag:
        # Whatever else may be lost, this is over if what nothing may lose came before the call.
        sure = F.coalesce(F.col("replaced_kept_ns") < sent_ns, F.lit(False))
        return Flag(kind, late, words(call, sent_ns), absence=False, loss=F.when(~sure, gone_by(run, newer_ns, done_ns)))

    def words(call: Column | str, sent_ns: Column) -> Column:
        late_ms = milliseconds(sent_ns - newer_ns)
        return sentence(call, " of ", token(), " was accepted, sent ", late_ms, " ms after ", over)

    stale_finish = F.col("accepted") & (newer_ns < finish_ns)
    return {
        "tokens": [
            stale("stale", stale_finish, "finish", finish_ns, F.col("accepted_done_ns")),
            stale("stale end", newer_ns < other_ns, F.col("other_call"), other_ns, F.col("other_done_ns")),
            stale("stale extend", newer_ns < extend_ns, "extend", extend_ns, F.col("extend_done_ns")),
            ended_before(run, "call after end", "ended", "last_call"),
            ended_before(run, "finish after end", "given_up", "last_finish"),
        ]
    }


def ended_before(run: Run, kind: str, end: str, call: str) -> Flag:
    """Leases with an accepted call that was first sent after the call that ended the lease had been accepted."""
    late = F.col(f"{end}.done_ns") < F.col(f"{call}.first_send_ns")
    lost = gone_by(run, F.col(f"{end}.done_ns"), F.col(f"{call}.done_ns"))
    words = sentence(F.col(f"{call}.f"), " of ", token(), " was accepted after its ", F.col(f"{end}.f"), " had been")
    return Flag(kind, late, words, absence=False, loss=lost)


CHECK = Check("J3", "no stale finish is accepted", doubts, flags)
