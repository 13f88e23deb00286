"""J4: no job is lost. An enqueued job has finished, was dropped, or is in exactly one state of the snapshot at the end.

A drop ends a job without a finish after a failed attempt, as requested by its handler or by one of its rules: the job was
discarded, skipped (then it is listed as done), or rerouted. A drop of a job that no handler has started, or whose handler had
returned under the dropped lease within its time (J20), is a violation.

A job that may expire, and that no claim has leased, may be in no state once its time is up: it has expired (rule 38).

A job that is in no state and whose finish or drop was sent but never answered is possible, not lost: only these calls remove a
job from the queue. (Calls of a lease that was reaped, or followed by another lease, had no effect.) Violations are also: a job
that finished or was dropped and is still waiting, delayed, active or dead; a dead job without any handler start (rule 33); a
dead job that no sent call can have buried (a bury, a retry that was or may have been the last, a reap after more than the first
crash: rule 12, a script that found it corrupt: rule 17); and a done job without a finish or drop that was or may have been
accepted. A job that no claim has leased may also be dead because one that it needs was lost (rule 25): that one must be dead,
buried or dropped, and before the snapshot at the deadline if that lists the job as dead. Where nobody knows how or when it has
ended, or it is not in the history, this is unknown.

A snapshot shows the jobs at one instant, which is later than the instant in its rows. So it proves nothing about a job that
changed state or was created after the instant in its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, sentence, token
from reports.checks.j20_handlers_agree import in_time_for_sure, returned_in_time
from reports.columns import SNAPSHOT_SLACK_NS, deadline_ns
from reports.facts import MS, Run, Snapshot
from reports.meaning import NEVER_NS
from reports.windows import clock_jumps, lost_with_all

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.frames import Frames

#: States in which no finished job may be.
OPEN_STATES = ("waiting", "delayed", "active", "dead", "blocked")


def doubts(run: Run) -> list[str]:
    """The check needs jobs, and a complete snapshot at the end."""
    found = [] if run.has("created") else ["no enqueue ever succeeded"]
    snapshot = run.snapshots.get("end")
    if snapshot is None:
        return [*found, "there is no snapshot at the end"]
    return found + [f"the snapshot at the end {gap}" for gap in snapshot.gaps()]


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Jobs that are lost, in two states, finished and still listed, dead without cause, or done without a finish."""
    listed, accepted = F.col("states"), F.col("accepted")
    dead, done = F.array_contains(listed, "dead"), F.array_contains(listed, "done")
    # A corrupt job is never delivered, so no handler start is expected for it.
    unstarted = (dead | F.col("buried")) & ~F.col("started") & ~F.col("corrupt") & ~with_parent()
    no_finish = done & ~accepted & ~F.col("dropped") & ~F.col("finish_open") & ~F.col("drop_open")
    may_be_buried = F.col("rightly_buried") | F.col("bury_open")
    found = [
        Flag("dead unstarted", unstarted, sentence("is dead, and no handler ever started it"), absence=True),
        Flag("dead unburied", dead & ~may_be_buried & ~with_parent(), sentence("is dead, and nothing buried it"), absence=True),
        Flag("dropped unstarted", F.col("dropped") & ~F.col("started"), sentence("was dropped unstarted"), absence=True),
        Flag("done unfinished", no_finish, sentence("is done, and no finish of it was accepted"), absence=True),
    ]
    snapshot = run.snapshots.get("end")
    returned = F.col("dropped") & returned_in_time()
    words = sentence("lease ", token(), " was dropped, and its handler had returned")
    kept = Flag("dropped unfailed", returned, words, absence=False, level=in_time_for_sure(run))
    return {"jobs": found if snapshot is None else found + at_end(run, snapshot), "tokens": [kept]}


def with_parent() -> Column:
    """True for a job that the end of one that it needs may have buried: which writes no row of it."""
    return (
        F.coalesce(F.col("on_parent_failure") == "bury", F.lit(False))
        & F.col("needs").isNotNull()
        & F.col("claim_done_ns").isNull()
        & ~F.col("started")
        & ~F.col("buried")
    )


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Dead jobs that only one that they need can have buried, and none of those was lost."""
    orphans = frames.eventful.jobs.where(with_parent() & F.array_contains("states", "dead"))
    accepted, states = F.col("accepted"), F.col("end_states")
    lost = F.col("failed_for_good") | F.array_contains("states", "dead") | (F.col("dropped") & ~accepted)
    # An expiry and a cancellation have no row: such a job is gone without a finish. A skipped one is listed as done.
    gone = ~accepted & ((F.size(states) == 0) | (F.col("drop_open") & F.array_contains(states, "done")))
    looked_ns = F.lit(deadline_ns(frames.run))
    fates = frames.jobs.select(
        F.col("job").alias("parent"),
        F.when(lost, "lost").when(gone, "gone").otherwise("kept").alias("fate"),
        F.coalesce(F.coalesce("claim_done_ns", "enqueue_sent_ns") > looked_ns, F.lit(False)).alias("later"),
        F.coalesce(F.col("ended_ns") > looked_ns, F.lit(False)).alias("ended_later"),
    )
    needed = orphans.select("job", "dead_at_deadline", F.explode("needs").alias("parent")).join(fates, "parent", "left")
    early = F.col("dead_at_deadline") & (F.col("fate") == "lost")
    fate = F.when(early & F.col("later"), "kept").when(early & F.col("ended_later"), "gone").otherwise(F.col("fate"))
    found = needed.groupBy("job").agg(F.collect_set(F.coalesce(fate, F.lit("gone"))).alias("fates"))
    unsure = F.array_contains("fates", "gone")
    words = sentence("is dead, and nothing buried it, nor was a job lost that it needs")
    unburied = ~F.array_contains("fates", "lost")
    return [(found, Flag("dead unburied", unburied, words, absence=True, level=sure(~unsure)))]


def at_end(run: Run, snapshot: Snapshot) -> list[Flag]:
    """Violations by the snapshot at the end, of jobs that did not change state after it began."""
    states, accepted, taken_ns = F.col("end_states"), F.col("accepted"), F.lit(snapshot.t_ns)
    settled = F.coalesce(F.col("moved_ns") < taken_ns, F.lit(True))
    still = F.arrays_overlap(states, F.array(*(F.lit(state) for state in OPEN_STATES)))
    listed, definite = F.array_join(states, " and "), sure(settled)
    finished = accepted & (F.col("accepted_done_ns") < taken_ns)
    dropped = F.col("dropped") & (F.col("dropped_done_ns") < taken_ns)
    found = [
        Flag("two states", F.size(states) > 1, sentence("is ", listed, " at the end"), absence=False, level=definite),
        Flag("not done", finished & still, sentence("has finished, and is ", listed, " at the end"), absence=False),
        Flag("not dropped", dropped & still, sentence("was dropped, and is ", listed, " at the end"), absence=False),
    ]
    if not snapshot.gaps():
        found += absent(run, snapshot, settled)
    return found


def absent(run: Run, snapshot: Snapshot, settled: Column) -> list[Flag]:
    """Jobs in no state of the snapshot at the end that neither finished nor were dropped."""
    taken_ns = F.lit(snapshot.t_ns)
    expired = (F.col("expires_ns") <= F.lit(may_expire_ns(run, snapshot))) & F.col("claim_done_ns").isNull()
    gone = ~F.col("accepted") & ~F.col("dropped") & ~F.coalesce(expired, F.lit(False)) & (F.size("end_states") == 0)
    ending = F.col("finish_open") | F.col("drop_open")
    there = F.coalesce(F.least("created_done_ns", "claim_done_ns") < taken_ns, F.lit(False)) | F.col("at_deadline")
    lost = sentence("was enqueued, has not finished, and is in no state at the end")
    open_end = sentence("is nowhere at the end; a call that ends its lease for good was sent and not answered")
    return [
        Flag("lost", gone & there & ~ending, lost, absence=True, level=sure(settled), loss=all_lost(run)),
        Flag("open end", gone & there & ending, open_end, absence=True, level="possible"),
    ]


def may_expire_ns(run: Run, snapshot: Snapshot) -> int:
    """The latest end of a job's time that has passed at the snapshot: by the server's clock, which may have jumped over it."""
    jumped_ms = sum(jump.size_ms for jump in clock_jumps(run))
    return snapshot.t_ns + SNAPSHOT_SLACK_NS + min(jumped_ms * MS, NEVER_NS)


def all_lost(run: Run) -> Column:
    """The kind of fault that may have lost all that servers ever showed of a job; null for none."""
    return lost_with_all(run, F.col("shown_first_ns"), F.col("shown_last_ns"))


def sure(condition: Column) -> Column:
    """The level: violated where the condition holds, else unknown."""
    return F.when(condition, "violated").otherwise("unknown")


CHECK = Check("J4", "no job is lost", doubts, flags, more)
