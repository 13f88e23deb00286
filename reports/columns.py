"""The aggregates over the rows of a lease and over the rows of a job, from which the frames `tokens` and `jobs` are built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.facts import MS, Run
from reports.meaning import (
    ENDS,
    ENQUEUE_NS,
    NEVER_NS,
    OTHER_CALLS,
    accepted_call,
    accepted_finish,
    answered,
    buried,
    changed,
    corrupt,
    created_by_it,
    dropped,
    failed_for_good,
    failed_run,
    freshly_leased,
    last_failure,
    leased,
    may_free_key,
    may_have_ended,
    prolonged,
    rightly_buried,
    sent_enqueue,
    shows_job,
    some,
    unanswered,
)
from reports.windows import clock_jumps, in_loss, within

if TYPE_CHECKING:
    from pyspark.sql import Column

#: What a claim tells of its job's past: claims, failed runs and lost workers so far.
COUNTERS = ("claims", "failures", "crashes")

#: Rows up to this much after a snapshot's instant still count as before it, because taking a snapshot lasts a while.
SNAPSHOT_SLACK_NS = 1_000 * MS


def srv_ms() -> Column:
    """The server's time of a reply in ms, rounded down as the scripts do."""
    return F.expr("srv_us div 1000")


def srv_from_ms() -> Column:
    """The earliest server time in ms at which a call can have happened: a foreign client records only an interval."""
    return F.expr("coalesce(srv_from_us, srv_us) div 1000")


def token_columns(run: Run) -> list[Column]:
    """Aggregates over the rows of one lease."""
    f, reply = F.col("f"), F.col("type")
    first_ns, done_ns, ok = F.col("first_send_ns"), F.col("done_ns"), F.coalesce(F.col("result") == "ok", F.lit(False))
    extended = prolonged()
    kept = extended & ~in_loss(run, done_ns)
    end = f.isin(*ENDS)
    other = f.isin(*OTHER_CALLS) & (reply == "ok") & ok
    accepted = accepted_finish()
    returned = (f == "handle") & (reply == "ok")
    return [
        *claim_columns(run),
        F.max_by(F.when(extended, lease_end()), F.when(extended, first_ns)).alias("extend_end_ns"),
        F.max_by(F.when(kept, lease_end()), F.when(kept, first_ns)).alias("extend_kept_end_ns"),
        F.max(F.when(kept, first_ns)).alias("extend_kept_sent_ns"),
        F.min(F.when(end, first_ns)).alias("end_sent_ns"),
        F.min(F.when(may_have_ended(), first_ns)).alias("over_ns"),
        F.max(F.when(other, first_ns)).alias("other_sent_ns"),
        F.max_by(F.when(other, f), F.when(other, first_ns)).alias("other_call"),
        F.max_by(F.when(other, done_ns), F.when(other, first_ns)).alias("other_done_ns"),
        F.max(F.when(extended, first_ns)).alias("extend_sent_ns"),
        F.max_by(F.when(extended, done_ns), F.when(extended, first_ns)).alias("extend_done_ns"),
        *ran_columns(),
        F.min(F.when(f == "reap", first_ns)).alias("reap_sent_ns"),
        F.min(F.when(f == "reap", done_ns)).alias("reap_done_ns"),
        F.max(F.when(f == "reap", F.col("crashes"))).alias("reap_crashes"),
        # Taken away because the worker's connection was gone (rule 39).
        some((f == "reap") & F.col("incarnation").isNotNull()).alias("reaped_as_lost"),
        F.min(F.when(f == "handle", first_ns)).alias("start_ns"),
        F.min(F.when(f == "handle", done_ns)).alias("handled_ns"),
        F.count_if(f == "handle").alias("handlings"),
        some((f == "handle") & (reply == "fail")).alias("raised"),
        some(f.isin("retry", "bury") & (reply == "ok") & ok).alias("given_up_on"),
        some(end & answered()).alias("end_answered"),
        some(end & (reply == "ok") & (F.col("result") == "stale")).alias("refused"),
        some(end & unanswered()).alias("end_unanswered"),
        F.max(F.when(end & unanswered(), F.col("delay_ms"))).alias("unanswered_delay_ms"),
        some(accepted).alias("accepted"),
        F.min(F.when(accepted, done_ns)).alias("accepted_done_ns"),
        some(dropped()).alias("dropped"),
        some(returned).alias("returned"),
        F.min(F.when(returned, done_ns)).alias("returned_ns"),
        F.min(F.when(returned, done_ns - first_ns)).alias("ran_ns"),
        F.max(F.when(returned, F.col("timeout_ms") * MS)).alias("timeout_ns"),
        F.min(F.when(accepted | ((f == "finish") & unanswered()), first_ns)).alias("finish_sent_ns"),
        F.count_if(F.col("kind") == "effect").alias("effects"),
        F.max(F.when(F.col("kind") == "effect", F.col("result_crc"))).alias("returned_crc"),
        F.max(F.when(f == "finish", F.col("result_crc"))).alias("sent_crc"),
    ]


def ran_columns() -> list[Column]:
    """The processes that handled a job under this lease; and of the calls that were answered `ok`, the first end and the latest
    calls."""
    f, accepted = F.col("f"), accepted_call() & F.col("first_send_ns").isNotNull() & F.col("done_ns").isNotNull()
    proc = F.when((f == "handle") | (F.col("kind") == "effect") | accepted_finish(), F.col("proc"))
    ended, sent = F.struct("done_ns", "f"), F.struct("first_send_ns", "done_ns", "f")
    finish = f == "finish"
    return [
        F.max(proc).alias("ran_by"),
        F.min(proc).alias("also_ran_by"),
        F.min(F.when(accepted & f.isin(*ENDS), ended)).alias("ended"),
        F.min(F.when(accepted & f.isin(*ENDS) & ~finish, ended)).alias("given_up"),
        F.max(F.when(accepted & ~finish, sent)).alias("last_call"),
        F.max(F.when(accepted & finish, sent)).alias("last_finish"),
    ]


def claim_columns(run: Run) -> list[Column]:
    """The claim of a lease; and, if a retry ended the lease, the server time from which its job may run again."""
    claim, proc = leased(), F.when(leased(), F.col("proc"))
    retried = (F.col("f") == "retry") & (F.col("type") == "ok") & (F.col("result") == "ok") & (F.col("outcome") == "retried")
    again = F.struct(srv_ms().alias("srv_ms"), (srv_from_ms() + F.col("delay_ms")).alias("due_ms"), "done_ns")
    return [
        F.min(F.when(claim, F.col("first_send_ns"))).alias("claim_sent_ns"),
        F.min(F.when(claim, F.col("done_ns"))).alias("claim_done_ns"),
        F.min(F.when(claim, lease_end())).alias("claim_end_ns"),
        F.min(F.when(claim, srv_ms())).alias("claim_srv_ms"),
        F.max(F.when(claim, F.col("due_ms"))).alias("claim_due_ms"),
        F.max(F.when(claim, F.col("era"))).alias("claim_era"),
        *(F.max(F.when(claim, F.col(name))).alias(name) for name in COUNTERS),
        F.max(F.when(claim, retry_policy())).alias("policy"),
        F.max(F.when(failed_run(), F.col("delay_ms"))).alias("retry_delay_ms"),
        F.max(F.when(failed_run(), F.coalesce("charge", F.lit(1)))).alias("charged"),
        F.max(F.when(claim, F.col("class"))).alias("class"),
        F.max(F.when(claim, F.col("lane"))).alias("lane"),
        F.max(F.when(claim | prolonged(), excess_ms() - given_before_ms(run))).alias("excess_ms"),
        F.size(F.collect_set(F.when(freshly_leased(), F.struct("proc", "op")))).alias("deliveries"),
        F.max(proc).alias("proc"),
        F.min(proc).alias("other_proc"),
        F.max(F.when(retried & F.col("srv_us").isNotNull(), again)).alias("again"),
    ]


def excess_ms() -> Column:
    """By how much the lease of a claim or a renewal is longer than what was asked for."""
    return F.col("deadline_ms") - srv_ms() - F.col("lease_ms")


def given_before_ms(run: Run) -> Column:
    """By how much a lease may be longer by a clock that has stepped back: one that was given before is not shortened by a renewal
    or a repeat. It was given when the clock jumped, at the latest."""
    longer_ms = F.lit(0)
    fresh = freshly_leased()
    for jump in clock_jumps(run):
        since_ms = ((F.col("first_send_ns") - F.lit(jump.begin_ns)) / MS).cast("bigint")
        left_ms = F.lit(jump.back_ms) - F.greatest(since_ms, F.lit(0))
        longer_ms = F.greatest(longer_ms, F.when(~fresh & within(F.col("done_ns"), [jump.span]), left_ms).otherwise(0))
    return longer_ms


def retry_policy() -> Column:
    """How often a job may fail and how long it waits, as its row says; null in histories that do not say it."""
    policy = F.struct("attempts", F.coalesce("backoff", F.lit("")).alias("backoff"), "backoff_least_ms")
    return F.when(F.col("attempts").isNotNull(), policy)


def lease_end() -> Column:
    """When a lease ends by its worker's clock. When the reply is a repeat of an earlier claim, less than the full lease is
    left."""
    left_ms = F.least("lease_ms", F.col("deadline_ms") - srv_ms())
    return F.col("first_send_ns") + left_ms * MS


def job_columns(run: Run) -> list[Column]:
    """Aggregates over all rows of one job.

    changed_ns: the last instant before the deadline snapshot at which the job may have become claimable or was claimed.
    moved_ns: the last instant in the whole run at which it may have changed state. enqueue_due_ns: the latest instant at which
    it becomes claimable according to its enqueue.
    """
    f, result, reply = F.col("f"), F.col("result"), F.col("type")
    first_ns, done_ns, delay_ns = F.col("first_send_ns"), F.col("done_ns"), F.coalesce(F.col("delay_ms"), F.lit(0)) * MS
    created, claim, end = created_by_it(), leased(), f.isin(*ENDS)
    enqueued_ns = F.when(created, done_ns).when(sent_enqueue(), first_ns + ENQUEUE_NS)
    finish_ok = (f == "finish") & (reply == "ok") & (result == "ok")
    moving_ns = F.when(f == "enqueue", enqueued_ns).when(end & (result == "stale"), None).otherwise(F.coalesce(done_ns, first_ns))
    before = before_deadline(run)
    return [
        F.min(F.when(sent_enqueue(), first_ns)).alias("enqueue_sent_ns"),
        some(created).alias("created"),
        F.min(F.when(created, done_ns)).alias("created_done_ns"),
        F.min(F.when(sent_enqueue(), F.coalesce("intended_ns", "first_send_ns"))).alias("intended_ns"),
        F.max(F.when(sent_enqueue(), delay_ns)).alias("delay_ns"),
        F.max(enqueued_ns + delay_ns).alias("enqueue_due_ns"),
        F.min(F.when(claim, done_ns)).alias("claim_done_ns"),
        F.min(F.when(claim & (F.col("claims") == 1), first_claim())).alias("first_claim"),
        F.max(F.when(claim & before, done_ns)).alias("last_claim_ns"),
        F.collect_set(F.when(accepted_finish(), F.struct("done_ns", "era", "fence", "nonce"))).alias("finishes"),
        F.collect_set(F.when(finish_ok, F.struct("done_ns", "fence", "nonce", "op", "position"))).alias("finish_calls"),
        F.min(F.when(accepted_finish(), done_ns)).alias("accepted_done_ns"),
        F.min(F.when((f == "finish") & may_have_ended(), first_ns)).alias("finish_sent_ns"),
        F.collect_set(F.when(dropped(), F.struct("done_ns", "era", "fence", "nonce"))).alias("drops"),
        F.min(F.when(dropped(), done_ns)).alias("dropped_done_ns"),
        F.max(F.when(freshly_leased(), first_ns)).alias("last_claim_sent_ns"),
        F.collect_set(F.when(freshly_leased(), F.struct("first_send_ns", "done_ns", "era"))).alias("claims_made"),
        F.min(F.when(shows_job(), done_ns)).alias("shown_first_ns"),
        F.max(F.when(shows_job(), done_ns)).alias("shown_last_ns"),
        F.count_if((f == "finish") & (result == "stale")).alias("stale_finishes"),
        # A job that expires may have done so, which no process is told.
        F.min(F.when(may_free_key(), first_ns).when(sent_enqueue(), first_ns + F.col("expires_ms") * MS)).alias("key_free_ns"),
        some(buried()).alias("buried"),
        some(rightly_buried()).alias("rightly_buried"),
        some(failed_for_good()).alias("failed_for_good"),
        F.min(F.when(accepted_finish() | dropped() | buried(), done_ns)).alias("ended_ns"),
        some(corrupt()).alias("corrupt"),
        some((f == "handle") | ((f == "mark") & (result == "ok"))).alias("started"),
        F.min(F.when(f == "handle", first_ns)).alias("started_ns"),
        F.max(F.when(before, changed(created | claim | (f == "reap")))).alias("changed_ns"),
        F.max(F.when(end | f.isin("enqueue", "claim", "reap"), moving_ns)).alias("moved_ns"),
        *enqueue_columns(),
        *open_columns(),
        *server_columns(),
        *payload_columns(),
        *result_columns(),
        *listed_columns(),
        *effect_columns(run),
    ]


def effect_columns(run: Run) -> list[Column]:
    """How often a service counts that the job took effect, null where it does not name it; how many handlers have started; and
    whether one of them still ran at the end, in a process that lived."""
    handle = F.col("f") == "handle"
    # Where the harness gave up, it stopped whoever still worked before it looked at the end.
    end = run.snapshots.get("give-up") or run.snapshots.get("end")
    # One that the harness had to kill, because it would not stop, was there until then.
    gone = {kill.target for kill in run.kills} | {name for name, at_ns in run.ended.items() if end is None or at_ns < end.t_ns}
    there = sorted({one.name for one in run.processes} - gone)
    going = handle & F.col("done_ns").isNull() & F.col("proc").isin(*there)
    return [
        F.sum(F.when(F.col("kind") == "effects", F.col("times"))).alias("took_effect"),
        F.count_if(handle).alias("handler_starts"),
        some(going).alias("still_handled"),
        F.max("class").alias("class"),
    ]


def first_claim() -> Column:
    """What is known of a job's first claim."""
    sent_ns, done_ns = F.col("first_send_ns").alias("claim_sent_ns"), F.col("done_ns").alias("claim_done_ns")
    return F.struct("fence", sent_ns, done_ns, "class", "lane", "priority", "enqueued_ms", "proc", "lifo")


def enqueue_columns() -> list[Column]:
    """The enqueues answered with `created`, and the first instant at which an enqueue was answered with `duplicate`."""
    answered_ok, result = (F.col("f") == "enqueue") & (F.col("type") == "ok"), F.col("result")
    return [
        F.collect_set(F.when(answered_ok & (result == "created"), F.struct("done_ns", "op", "position"))).alias("creations"),
        F.min(F.when(answered_ok & (result == "duplicate") & F.col("holder").isNull(), F.col("done_ns"))).alias("duplicate_ns"),
        F.max(F.when(created_by_it(), F.col("unique"))).alias("unique"),
        F.max(F.when(sent_enqueue(), F.col("attempts"))).alias("attempts"),
        F.max(F.when(sent_enqueue(), retry_policy())).alias("enqueue_policy"),
        F.max(F.when(leased(), retry_policy())).alias("claim_policy"),
        F.max(F.when(leased(), F.col("failures"))).alias("failures"),
        some(last_failure()).alias("failed_last"),
        F.max(F.when(sent_enqueue(), F.col("on_parent_failure"))).alias("on_parent_failure"),
        F.min(F.when(created_by_it() & F.col("schedule").isNotNull(), F.struct(srv_ms().alias("srv_ms"), "done_ns"))).alias(
            "ticked"
        ),
        F.first(F.when(sent_enqueue(), F.col("needs")), ignorenulls=True).alias("needs"),
        F.max(F.when(sent_enqueue(), F.col("wants"))).alias("wants"),
        F.min(F.when(sent_enqueue(), F.col("first_send_ns") + F.col("expires_ms") * MS)).alias("expires_ns"),
        F.max(F.when(sent_enqueue(), F.col("schedule"))).alias("schedule"),
        F.max(F.when(sent_enqueue(), F.col("tick_ms"))).alias("tick_ms"),
    ]


def open_columns() -> list[Column]:
    """The unanswered calls that may have ended a lease, the retries with a delay, and the known leases.

    For an unanswered retry the latest due time is used: its delay, counted from the last instant at which it can be applied.
    """
    f, delay_ms, open_end = F.col("f"), F.coalesce("delay_ms", F.lit(0)), F.col("f").isin(*ENDS) & unanswered()
    delayed = may_have_ended() & (f == "retry") & (delay_ms > 0)
    applied_ns = F.when(unanswered(), F.col("first_send_ns") + ENQUEUE_NS).otherwise(F.col("done_ns"))
    due_ns = F.when(delay_ms > 0, applied_ns + delay_ms * MS).alias("due_ns")
    end = F.struct("era", "fence", "nonce", "f", unanswered().alias("unanswered"), due_ns)
    reaped = (f == "reap") & (F.col("type") == "ok") & F.col("fence").isNotNull()
    lease = F.struct("era", "fence", "nonce", (f == "reap").alias("reaped"))
    return [
        F.collect_set(F.when(open_end | delayed, end)).alias("ends"),
        F.collect_set(F.when(leased() | reaped, lease)).alias("leases"),
    ]


def server_columns() -> list[Column]:
    """When the job became claimable, and when it was first claimed, by the server's clock."""
    claim = leased()
    created = (F.col("f") == "enqueue") & (F.col("type") == "ok") & (F.col("result") == "created")
    may_run_ms = F.when(F.col("due_ms") > 0, F.col("due_ms")).otherwise(F.col("enqueued_ms"))
    return [
        F.min(F.when(created, F.coalesce("run_at_ms", srv_from_ms() + F.coalesce("delay_ms", F.lit(0))))).alias("created_due_ms"),
        F.min(F.when(claim, F.col("srv_us"))).alias("claim_srv_us"),
        F.min(F.when(claim, may_run_ms)).alias("claimable_ms"),
    ]


def payload_columns() -> list[Column]:
    """Every crc32 of the payload recorded at the enqueue, the claim and the sink, and whether one of these rows lacks it."""
    # The process that ticks a schedule does not see the payload, so its row has no crc32.
    seen = {"enqueue": sent_enqueue() & F.col("schedule").isNull(), "claim": leased(), "sink": F.col("kind") == "effect"}
    found = [F.collect_set(F.when(condition, F.col("crc"))).alias(f"{where}_crcs") for where, condition in seen.items()]
    unsummed = (seen["enqueue"] | seen["claim"] | seen["sink"]) & F.col("crc").isNull()
    return [*found, some(unsummed).alias("unsummed")]


def result_columns() -> list[Column]:
    """Every crc32 of a result that a finish sent and that may have been kept, or that a caller was given; and when a caller last
    asked and was given none."""
    read, crc = F.col("f") == "result", F.col("result_crc")
    return [
        F.collect_set(F.when((F.col("f") == "finish") & may_have_ended(), crc)).alias("sent_crcs"),
        F.collect_set(F.when(read, crc)).alias("read_crcs"),
        F.max(F.when(read & crc.isNull(), F.struct("first_send_ns", "done_ns"))).alias("read_nothing"),
    ]


def listed_columns() -> list[Column]:
    """The states under which the snapshots list a job."""
    final, state, due_ms = F.col("kind") == "final", F.col("state"), F.col("due_ms")
    at_end, at_deadline = final & (F.col("snapshot") == "end"), final & (F.col("snapshot") == "deadline")
    return [
        F.sort_array(F.collect_set(F.when(final, state))).alias("states"),
        F.sort_array(F.collect_set(F.when(at_end, state))).alias("end_states"),
        some(at_deadline & (state != "done")).alias("at_deadline"),
        some(at_deadline & (state == "waiting")).alias("waiting_at_deadline"),
        some(at_deadline & (state == "dead")).alias("dead_at_deadline"),
        F.max(F.when(at_deadline & (state == "delayed"), due_ms)).alias("due_at_deadline_ms"),
        F.max(F.when(at_deadline & (state == "active"), due_ms)).alias("lease_at_deadline_ms"),
    ]


def before_deadline(run: Run) -> Column:
    """True for events that may have happened before the deadline snapshot was taken."""
    return F.col("first_send_ns") < F.lit(deadline_ns(run))


def deadline_ns(run: Run) -> int:
    """The latest instant of the snapshot at the deadline; none has come where there is no such snapshot."""
    deadline = run.snapshots.get("deadline")
    return deadline.t_ns + SNAPSHOT_SLACK_NS if deadline else NEVER_NS
