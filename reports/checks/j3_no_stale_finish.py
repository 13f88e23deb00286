"""J3: nothing is accepted from a lease that was definitely over before the call was sent.

It is over when a newer one has replaced it, when it was reaped, and when a call that ends it was answered ok. That holds for the
finish and for every other call with a token: retry, bury, release, mark and extend. (A lease that finishes twice is J6's.)

Newer is a greater fence, or the same fence under another nonce (rule 33). A finish that is accepted after its deadline, with
no newer claim, is right (rule 32). So is one that a server accepts whose era began without the newer claim: a failover lost it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, milliseconds, sentence, token
from reports.facts import Run

if TYPE_CHECKING:
    from pyspark.sql import Column


def doubts(run: Run) -> list[str]:
    """Without accepted finishes none can be stale, which is no pass."""
    return [] if run.has("finished") else ["no finish ever succeeded"]


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Leases whose finish, extend or other call was accepted though they were over before it was first sent.

    A finish may also be accepted by repetition, then its earlier sends count; the others are judged by what `ok` was said to.
    """
    del run
    newer_ns, finish_ns = F.col("replaced_ns"), F.col("finish_sent_ns")
    reaped = newer_ns == F.col("reap_done_ns")
    over = F.when(reaped, "the reap of the lease was answered").otherwise("a newer claim was answered")
    other_ns, extend_ns = F.col("other_sent_ns"), F.col("extend_sent_ns")

    def words(call: Column | str, sent_ns: Column) -> Column:
        late_ms = milliseconds(sent_ns - newer_ns)
        return sentence(call, " of ", token(), " was accepted, sent ", late_ms, " ms after ", over)

    stale_finish = F.col("accepted") & (newer_ns < finish_ns)
    return {
        "tokens": [
            Flag("stale", stale_finish, words("finish", finish_ns), absence=False),
            Flag("stale end", newer_ns < other_ns, words(F.col("other_call"), other_ns), absence=False),
            Flag("stale extend", newer_ns < extend_ns, words("extend", extend_ns), absence=False),
            ended_before("call after end", "ended", "last_call"),
            ended_before("finish after end", "given_up", "last_finish"),
        ]
    }


def ended_before(kind: str, end: str, call: str) -> Flag:
    """Leases of which a call was accepted that was first sent after the end of the lease had been accepted, in the same era."""
    late = (F.col(f"{end}.done_ns") < F.col(f"{call}.first_send_ns")) & (F.col(f"{end}.era") == F.col(f"{call}.era"))
    words = sentence(F.col(f"{call}.f"), " of ", token(), " was accepted after its ", F.col(f"{end}.f"), " had been")
    return Flag(kind, late, words, absence=False)


CHECK = Check("J3", "no stale finish is accepted", doubts, flags)
