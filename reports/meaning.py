"""What one row of the events says: conditions and instants that the frames are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.facts import MS

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Operations that end a lease.
ENDS = ("finish", "retry", "bury", "release", "drop")

#: Calls with a token that neither finish the job nor prolong its lease.
OTHER_CALLS = ("retry", "bury", "release", "drop", "mark")

#: How a job ends that is neither finished nor dead: as its handler or a rule of its says.
DROPPED = ("discarded", "skipped", "rerouted")

#: A reap buries a job after so many crashes at the earliest.
POISON_CRASHES = 2

#: No copy of an enqueue is applied later than this after its first send (rule 3).
ENQUEUE_NS = 10_000 * MS

#: Later than any time: an operation that was never answered may still take effect.
NEVER_NS = 2**62


def sent_enqueue() -> Column:
    """An enqueue that created the job, or may have."""
    refused = F.coalesce(F.col("result").isin("duplicate", "orphan", "refused", "moved", "skipped"), F.lit(False))
    return (F.col("f") == "enqueue") & (F.col("type") != "fail") & ~refused


def created_by_it() -> Column:
    """An enqueue that certainly created the job, or repeated that it had."""
    return (F.col("f") == "enqueue") & (F.col("type") == "ok") & F.col("result").isin("created", "repeated")


def changed(answered: Column) -> Column:
    """The latest instant at which an event can have made its job claimable; NEVER_NS while it was not answered.

    An enqueue without an answer has an end all the same: no copy of it is applied after its deadline.
    """
    delay_ns = F.coalesce(F.col("delay_ms"), F.lit(0)) * MS
    stale = F.coalesce(F.col("result") == "stale", F.lit(False))
    given_back = F.col("f").isin("retry", "release") & (F.col("type") != "fail") & ~stale
    late_ns = F.when(sent_enqueue(), F.col("first_send_ns") + ENQUEUE_NS + delay_ns)
    back_ns = F.when(given_back & unanswered(), F.lit(NEVER_NS)).when(given_back, F.col("done_ns") + delay_ns)
    return F.when(answered, F.col("done_ns") + delay_ns).otherwise(F.coalesce(late_ns, back_ns))


def accepted_finish() -> Column:
    """The server said that this lease finished its job: by ok, or by repeating that outcome (rule 5)."""
    f, result = F.col("f"), F.col("result")
    finished = (f == "finish") & (result == "ok")
    repeated = f.isin(*ENDS) & (result == "repeated") & (F.col("outcome") == "finished")
    return (F.col("type") == "ok") & (finished | F.coalesce(repeated, F.lit(False)))


def dropped() -> Column:
    """The server said that this lease ended its job for good without a finish: by ok, or by repeating that outcome."""
    f, result = F.col("f"), F.col("result")
    repeated = f.isin(*ENDS) & (result == "repeated") & F.col("outcome").isin(*DROPPED)
    return (F.col("type") == "ok") & (((f == "drop") & (result == "ok")) | F.coalesce(repeated, F.lit(False)))


def buried() -> Column:
    """The server put the job among the dead: by a bury, by its last retry, by the reap of a poison job, as a corrupt envelope."""
    f, result = F.col("f"), F.col("result")
    ended = f.isin(*ENDS) & (((f == "bury") & (result == "ok")) | (F.col("outcome") == "buried"))
    return (F.col("type") == "ok") & (ended | ((f == "reap") & (result == "buried")) | corrupt())


def corrupt() -> Column:
    """A claim, promote or reap found that the envelope of the job cannot be read: it is dead, and nobody got it."""
    found = F.col("f").isin("claim", "promote", "reap") & (F.col("type") == "ok") & (F.col("result") == "corrupt")
    return F.coalesce(found, F.lit(False))


def rightly_buried() -> Column:
    """The server put the job among the dead, and had cause to: a reap may not do it for the first crash (rule 12)."""
    too_soon = F.coalesce((F.col("f") == "reap") & (F.col("crashes") < POISON_CRASHES), F.lit(False))
    return buried() & ~too_soon


def leased() -> Column:
    """A claim that was answered and handed the job out."""
    return (F.col("f") == "claim") & (F.col("type") == "ok") & ~corrupt()


def freshly_leased() -> Column:
    """A claim that was answered and handed the job out, and is no repeat of an earlier one (rule 4)."""
    return leased() & ~F.coalesce((F.col("answer") == "repeated") | (F.col("result") == "repeated"), F.lit(False))


def accepted_call() -> Column:
    """The server said `ok`: this very call with a token did what it asks for."""
    return F.coalesce(
        F.col("f").isin(*ENDS, "mark", "extend") & (F.col("type") == "ok") & (F.col("result") == "ok"), F.lit(False)
    )


def may_have_ended() -> Column:
    """A call that ends a lease, unless it is known to have done nothing: it failed, or the server called its token stale."""
    nothing = (F.col("type") == "fail") | F.coalesce(F.col("result") == "stale", F.lit(False))
    return F.col("f").isin(*ENDS) & ~nothing


def answered() -> Column:
    """The server decided about this job of the call."""
    return F.coalesce((F.col("type") == "ok") & F.col("result").isNotNull() & (F.col("result") != "unknown"), F.lit(False))


def unanswered() -> Column:
    """It may have happened and may not: no completion, an unknown one, or one that says nothing about this job."""
    return ~answered() & F.coalesce(F.col("type") != "fail", F.lit(True))


def some(condition: Column) -> Column:
    """True when the condition holds for some row of the group; never null."""
    return F.coalesce(F.max(condition), F.lit(False))
