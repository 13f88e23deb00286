"""J13: nothing is stuck once the last fault is healed (rule 37).

At the deadline snapshot no job that has been able to run since before the last heal may be waiting, overdue, active with an
expired lease, or still active under a lease claimed before that heal, however often renewed: no handler of a drill takes longer
than the deadline. Twice that long after the heal the harness stops waiting, and no job that had the time to run may be left.
A job of a service whose handler still runs is its own affair: that hangs, or takes long. While such handlers have all places, of
the workers or of a limit, whether others wait for more than them is unknown.
Every live worker claims (see `j13_workers`); and each job leased at a kill started elsewhere within the bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, milliseconds, sentence
from reports.checks.j13_workers import silent_workers
from reports.facts import MS, Run, Snapshot
from reports.frames import Frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Tolerance of the `liveness_ms` that the harness waits at least before the deadline snapshot.
EARLY_MS = 100

#: States in which a job still has to run.
UNFINISHED = ("waiting", "delayed", "active")

#: Server times are mapped to the monotonic clock by the snapshot's pair of times, which is inexact by the duration of its call.
CLOCK_SLACK_MS = 1_000


def doubts(run: Run) -> list[str]:
    """The check needs a complete deadline snapshot that was not taken too early, and at least one live worker."""
    snapshot, heal_ns = run.snapshots.get("deadline"), run.last_heal_ns
    if snapshot is None or heal_ns is None:
        return ["there is no snapshot at the deadline"]
    found = [f"the snapshot at the deadline {gap}" for gap in snapshot.gaps()]
    waited_ms = (snapshot.t_ns - heal_ns) // MS
    if waited_ms < run.liveness_ms - EARLY_MS:
        found.append(f"the snapshot at the deadline was taken {waited_ms} ms after the last heal, not {run.liveness_ms} ms")
    return found if run.live_workers else [*found, "no worker lived past the last heal"]


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Jobs stuck at the deadline or at the end, and jobs leased at a kill that ran elsewhere too late or never."""
    found: dict[Base, list[Flag]] = {"jobs": []}
    deadline, end = run.snapshots.get("deadline"), run.snapshots.get("end")
    if deadline is not None and not doubts(run):
        found["jobs"] += stuck(run, deadline)
    if end is not None and run.last_heal_ns is not None:
        found["jobs"].append(left_over(run, end, run.last_heal_ns))
    if run.kills:
        found["in_hand"] = late(run)
    return found


def stuck(run: Run, snapshot: Snapshot) -> list[Flag]:
    """Jobs that the deadline snapshot lists in a state that they should have left."""
    heal_ns, taken_ms = run.last_heal_ns or 0, snapshot.srv_us // 1_000
    healed_ms = taken_ms - (snapshot.t_ns - heal_ns) // MS - CLOCK_SLACK_MS
    slack_ms = max(0, run.recovery_bound_ms - run.lease_ms)
    due_ms, lease_ms, changed_ns = F.col("due_at_deadline_ms"), F.col("lease_at_deadline_ms"), F.col("changed_ns")
    waiting = F.col("waiting_at_deadline") & (changed_ns < heal_ns)
    # Without any row after the claim, the active lease is the one of that claim.
    kept = lease_ms.isNotNull() & (changed_ns < heal_ns) & (F.col("last_claim_ns") == changed_ns)
    kept_words = sentence("is active, claimed ", milliseconds(F.lit(snapshot.t_ns) - changed_ns), " ms ago, before the last heal")
    lapsed, lapsed_words = (
        lease_ms < taken_ms - slack_ms,
        sentence("is active, and its lease ended ", F.lit(taken_ms) - lease_ms, " ms ago"),
    )
    since_ms = milliseconds(F.lit(snapshot.t_ns) - changed_ns)
    if run.of_service:
        kept = kept & ~F.col("still_handled")
    level, why = excused(run, "deadline")
    return [
        Flag("stuck waiting", waiting, sentence("has been waiting for ", since_ms, f" ms{why}"), True, level=level, timed=True),
        Flag(
            "overdue",
            due_ms <= healed_ms,
            sentence("is delayed, and ", F.lit(taken_ms) - due_ms, f" ms overdue{why}"),
            absence=True,
            level=level,
            timed=True,
        ),
        Flag("stuck active", lapsed | kept, F.when(lapsed, lapsed_words).otherwise(kept_words), absence=True, timed=True),
    ]


def excused(run: Run, *snapshots: str) -> tuple[str, str]:
    """The level of a wait that a snapshot shows, and words behind it."""
    full = run.full(*snapshots)
    return ("full", f", while {full}") if full else ("violated", "")


def left_over(run: Run, snapshot: Snapshot, heal_ns: int) -> Flag:
    """Jobs that the snapshot at the end lists as unfinished, though the load had ended and they had `liveness_ms` to run.

    That time counts from when the job is due, by its enqueue or by the delay of a retry that no later lease followed.

    The harness takes the snapshot when the queue is drained, or twice `liveness_ms` after the last heal. A snapshot taken
    sooner proves nothing, because the jobs had time left.
    """
    states = F.array_intersect("end_states", F.array(*(F.lit(state) for state in UNFINISHED)))
    waited_ms = (snapshot.t_ns - heal_ns) // MS
    level, needs_ms = ("violated", run.liveness_ms) if waited_ms >= 2 * run.liveness_ms - EARLY_MS else ("unknown", 0)
    had_time = F.coalesce(F.col("due_ns"), F.lit(0)) + needs_ms * MS <= snapshot.t_ns
    if run.of_service:
        had_time = had_time & ~F.col("still_handled")
    waits, why = excused(run, "end", "give-up")
    level = waits if level == "violated" else level
    words = sentence("is still ", F.array_join(states, " and "), f" at the end, {waited_ms} ms after the last heal{why}")
    # Without the row of its enqueue nobody knows how long the job may wait.
    return Flag("left over", (F.size(states) > 0) & had_time, words, absence=True, level=level, timed=True)


def late(run: Run) -> list[Flag]:
    """Leases held at a kill whose job did not start elsewhere in time. `never` is proved only if the run lasted long enough."""
    recovery_ns, ran_on = F.col("recovery_ns"), ~F.col("ended")
    at_kill = ("in hand of ", F.col("target"), " at ", F.col("fault"))
    slow = sentence(*at_kill, ", ran elsewhere only after ", milliseconds(recovery_ns), " ms")
    watched = F.col("witness_ns") + F.col("allowed_ns") <= run.watched_ns
    level = F.when(watched, "violated").otherwise("unknown")
    never = sentence(*at_kill, ", never ran elsewhere")
    return [
        Flag("late recovery", ran_on & (recovery_ns > F.col("allowed_ns")), slow, absence=True, timed=True),
        Flag("no recovery", ran_on & recovery_ns.isNull(), never, absence=True, level=level, timed=True),
    ]


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Live workers that stopped claiming."""
    run = frames.run
    return [silent_workers(frames)] if {*run.live_workers} - run.busy and run.last_heal_ns is not None else []


CHECK = Check("J13", "nothing is stuck after the last heal", doubts, flags, more)
