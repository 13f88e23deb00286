"""Conditions and instants of one row of the events frame, from which the other frames are built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.facts import MS, Run

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Operations that end a lease.
ENDS = ("finish", "retry", "bury", "release", "drop")

#: Calls with a token that neither finish the job nor prolong its lease.
OTHER_CALLS = ("retry", "bury", "release", "drop", "mark")

#: Outcomes of a job that ends neither finished nor dead, as requested by its handler or by one of its rules.
DROPPED = ("discarded", "skipped", "rerouted")

#: A reap may bury a job only after at least this many crashes.
POISON_CRASHES = 2

#: An enqueue is never applied later than this after its first send, resends included (rule 3).
ENQUEUE_NS = 10_000 * MS

#: Later than any instant of a run. Used for operations that were never answered: they may still take effect.
NEVER_NS = 2**62


def sent_enqueue() -> Column:
    """True for an enqueue that created the job, or may have."""
    refused = F.coalesce(F.col("result").isin("duplicate", "orphan", "refused", "moved", "skipped"), F.lit(False))
    return (F.col("f") == "enqueue") & (F.col("type") != "fail") & ~refused


def created_by_it() -> Column:
    """True for an enqueue that certainly created the job: answered `created`, or `repeated` on a resend."""
    return (F.col("f") == "enqueue") & (F.col("type") == "ok") & F.col("result").isin("created", "repeated")


def changed(answered: Column) -> Column:
    """The latest instant at which an event can have made its job claimable; NEVER_NS while it was not answered.

    An unanswered enqueue still has a bound: it is never applied after its deadline.
    """
    delay_ns = F.coalesce(F.col("delay_ms"), F.lit(0)) * MS
    stale = F.coalesce(F.col("result") == "stale", F.lit(False))
    given_back = F.col("f").isin("retry", "release") & (F.col("type") != "fail") & ~stale
    late_ns = F.when(sent_enqueue(), F.col("first_send_ns") + ENQUEUE_NS + delay_ns)
    back_ns = F.when(given_back & unanswered(), F.lit(NEVER_NS)).when(given_back, F.col("done_ns") + delay_ns)
    return F.when(answered, F.col("done_ns") + delay_ns).otherwise(F.coalesce(late_ns, back_ns))


def accepted_finish() -> Column:
    """True when the server answered that this lease finished its job: `ok`, or a repeat of that outcome (rule 5)."""
    f, result = F.col("f"), F.col("result")
    finished = (f == "finish") & (result == "ok")
    repeated = f.isin(*ENDS) & (result == "repeated") & (F.col("outcome") == "finished")
    return (F.col("type") == "ok") & (finished | F.coalesce(repeated, F.lit(False)))


def dropped() -> Column:
    """True when the server answered that this lease ended its job for good without a finish: `ok`, or a repeat of that
    outcome."""
    f, result = F.col("f"), F.col("result")
    repeated = f.isin(*ENDS) & (result == "repeated") & F.col("outcome").isin(*DROPPED)
    return (F.col("type") == "ok") & (((f == "drop") & (result == "ok")) | F.coalesce(repeated, F.lit(False)))


def failed_for_good() -> Column:
    """True when the server ended the job in a way that its children do not survive, unless they say otherwise (rule 25)."""
    lost = F.coalesce(F.col("outcome").isin("discarded", "skipped", "rerouted") & (F.col("result") == "ok"), F.lit(False))
    return buried() | ((F.col("f") == "drop") & (F.col("type") == "ok") & lost)


def failed_run() -> Column:
    """True for a retry that was answered, or answered again, with a further run of the job."""
    again = F.col("result").isin("ok", "repeated") & (F.col("outcome") == "retried")
    return F.coalesce((F.col("f") == "retry") & (F.col("type") == "ok") & again, F.lit(False))


def last_failure() -> Column:
    """True for a retry that was answered with the burial of the job: its attempts are used up."""
    buried = (F.col("result") == "ok") & (F.col("outcome") == "buried")
    return F.coalesce((F.col("f") == "retry") & (F.col("type") == "ok") & buried, F.lit(False))


def buried() -> Column:
    """True when the server made the job dead: by a bury, its last retry, the reap of a poison job, or for a corrupt
    envelope."""
    f, result = F.col("f"), F.col("result")
    ended = f.isin(*ENDS) & (((f == "bury") & (result == "ok")) | (F.col("outcome") == "buried"))
    return (F.col("type") == "ok") & (ended | ((f == "reap") & (result == "buried")) | corrupt())


def corrupt() -> Column:
    """True when a claim, promote or reap found the job's envelope unreadable: the job is dead and was not delivered."""
    found = F.col("f").isin("claim", "promote", "reap") & (F.col("type") == "ok") & (F.col("result") == "corrupt")
    return F.coalesce(found, F.lit(False))


def rightly_buried() -> Column:
    """True when the server made the job dead for a valid reason: a reap may not do it after the first crash (rule 12)."""
    too_soon = F.coalesce((F.col("f") == "reap") & (F.col("crashes") < POISON_CRASHES), F.lit(False))
    return buried() & ~too_soon


def leased() -> Column:
    """True for an answered claim that delivered the job."""
    return (F.col("f") == "claim") & (F.col("type") == "ok") & ~corrupt()


def freshly_leased() -> Column:
    """True for an answered claim that delivered the job and is not a repeat of an earlier claim (rule 4)."""
    return leased() & ~F.coalesce((F.col("answer") == "repeated") | (F.col("result") == "repeated"), F.lit(False))


def accepted_call() -> Column:
    """True for a call with a token that was answered `ok`: this call itself took effect."""
    return F.coalesce(
        F.col("f").isin(*ENDS, "mark", "extend") & (F.col("type") == "ok") & (F.col("result") == "ok"), F.lit(False)
    )


def shows_job() -> Column:
    """True for an answer that a server cannot give of a job that it does not have: the job was created, handed out, or one of its
    leases changed."""
    reaped = (F.col("f") == "reap") & (F.col("type") == "ok") & F.col("fence").isNotNull()
    return created_by_it() | leased() | accepted_call() | accepted_finish() | F.coalesce(reaped, F.lit(False))


def prolonged() -> Column:
    """True for an extend that was answered `ok`."""
    return F.coalesce((F.col("f") == "extend") & (F.col("type") == "ok") & (F.col("result") == "ok"), F.lit(False))


def may_have_ended() -> Column:
    """True for a call that ends a lease, unless it certainly had no effect: it failed, or its token was answered as stale."""
    nothing = (F.col("type") == "fail") | F.coalesce(F.col("result") == "stale", F.lit(False))
    return F.col("f").isin(*ENDS) & ~nothing


def may_free_key() -> Column:
    """True for a call that may have ended its job for good, which frees its unique key. One that was refused certainly did not,
    nor a retry or a sweep whose answer says that the job was given back."""
    gave_back = (F.col("f") == "release") | (F.col("outcome") == "retried")
    ended = may_have_ended() & ~F.coalesce(gave_back, F.lit(False))
    swept = (F.col("f") == "reap") & (F.col("type") != "fail") & ~F.coalesce(F.col("result") == "reaped", F.lit(False))
    return ended | swept


def answered() -> Column:
    """True when the server's answer includes a result for this job."""
    return F.coalesce((F.col("type") == "ok") & F.col("result").isNotNull() & (F.col("result") != "unknown"), F.lit(False))


def unanswered() -> Column:
    """True when the outcome is not known: no completion, an unknown one, or one without a result for this job."""
    return ~answered() & F.coalesce(F.col("type") != "fail", F.lit(True))


def some(condition: Column) -> Column:
    """True when the condition holds for some row of the group; never null."""
    return F.coalesce(F.max(condition), F.lit(False))


# The intervals of calls on other hosts than the harness's, widened by the error of their clocks.
#
# A call happened between its send and its answer, so the send is taken to be as early, and the answer as
# late, as they can be. A handler's instants are both taken as early as can be: it ends before its worker
# sends the call that ends the lease. What a call on such a host took is longer then by twice the error; the
# lag of a send stays as it was. Within one process the order of a call that followed an answer is lost by
# that: `in_turn_ns` restores it.


def widened(run: Run) -> dict[str, Column]:
    """Columns of a row of the history, by name; none where all times are of one host."""
    known = [host for host in run.hosts if host.error_ns]
    if not known:
        return {}
    error_ns = F.lit(0)
    for host in known:
        error_ns = F.when(F.col("source").isin(*host.files), F.lit(host.error_ns)).otherwise(error_ns)
    handled = F.coalesce(F.col("f") == "handle", F.lit(False))
    early = {name: F.col(name) - error_ns for name in ("intended_ns", "first_send_ns", "last_send_ns")}
    return {**early, "done_ns": F.col("done_ns") + F.when(handled, -error_ns).otherwise(error_ns)}


def in_turn_ns(run: Run) -> Column:
    """When a call was sent, to be ordered by with the answers of its own process: as much later as those were taken to be."""
    later_ns = F.lit(0)
    for host in run.hosts:
        names = [process.name for process in run.processes if process.file in host.files]
        later_ns = F.when(F.col("proc").isin(*names), F.lit(2 * host.error_ns)).otherwise(later_ns) if host.error_ns else later_ns
    return F.col("first_send_ns") + later_ns
