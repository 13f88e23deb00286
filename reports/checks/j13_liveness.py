"""J13: nothing is stuck once the last fault is healed (rule 37).

At the deadline snapshot no job that could have run since before the last heal is waiting, overdue, or leased to nobody; every
live worker has claimed; and each job in hand at a kill started elsewhere within the bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, milliseconds, sentence
from reports.facts import MS, Run, Snapshot
from reports.frames import Frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A worker that gets none of this many claims per live worker has stopped claiming; fewer prove nothing either way.
TRAFFIC_PER_WORKER = 10

#: The harness waits at least `liveness_ms` for the deadline snapshot, give or take this.
EARLY_MS = 100

#: Server times are placed on the monotonic clock by the snapshot's own pair, which can be off by the length of its call.
CLOCK_SLACK_MS = 1_000


def doubts(run: Run) -> list[str]:
    """It needs a whole deadline snapshot that was not taken too early, and workers that lived on."""
    snapshot, heal_ns = run.snapshots.get("deadline"), run.last_heal_ns
    if snapshot is None or heal_ns is None:
        return ["there is no snapshot at the deadline"]
    found = [f"the snapshot at the deadline {gap}" for gap in snapshot.gaps()]
    waited_ms = (snapshot.t_ns - heal_ns) // MS
    if waited_ms < run.liveness_ms - EARLY_MS:
        found.append(f"the snapshot at the deadline was taken {waited_ms} ms after the last heal, not {run.liveness_ms} ms")
    return found if run.live_workers else [*found, "no worker lived past the last heal"]


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Jobs stuck at the deadline, and jobs in hand at a kill that ran elsewhere too late or never."""
    found: dict[Base, list[Flag]] = {}
    snapshot = run.snapshots.get("deadline")
    if snapshot is not None and not doubts(run):
        found["jobs"] = stuck(run, snapshot)
    if run.kills:
        found["in_hand"] = late(run)
    return found


def stuck(run: Run, snapshot: Snapshot) -> list[Flag]:
    """Jobs that the deadline snapshot found where they should not be any more."""
    heal_ns, taken_ms = run.last_heal_ns or 0, snapshot.srv_us // 1_000
    healed_ms = taken_ms - (snapshot.t_ns - heal_ns) // MS - CLOCK_SLACK_MS
    slack_ms = max(0, run.recovery_bound_ms - run.lease_ms)
    due_ms, lease_ms, changed_ns = F.col("due_at_deadline_ms"), F.col("lease_at_deadline_ms"), F.col("changed_ns")
    waiting = F.col("created") & F.col("waiting_at_deadline") & (changed_ns < heal_ns)
    since_ms = milliseconds(F.lit(snapshot.t_ns) - changed_ns)
    return [
        Flag("stuck waiting", waiting, sentence("has been waiting for ", since_ms, " ms"), absence=True),
        Flag("overdue", due_ms <= healed_ms, sentence("is delayed, and ", F.lit(taken_ms) - due_ms, " ms overdue"), absence=True),
        Flag(
            "stuck active",
            lease_ms < taken_ms - slack_ms,
            sentence("is active, and its lease ended ", F.lit(taken_ms) - lease_ms, " ms ago"),
            absence=True,
        ),
    ]


def late(run: Run) -> list[Flag]:
    """Leases in hand at a kill whose job did not start elsewhere in time."""
    del run
    recovery_ns, ran_on = F.col("recovery_ns"), ~F.col("ended")
    at_kill = ("in hand of ", F.col("target"), " at ", F.col("fault"))
    slow = sentence(*at_kill, ", ran elsewhere only after ", milliseconds(recovery_ns), " ms")
    return [
        Flag("late recovery", ran_on & (recovery_ns > F.col("allowed_ns")), slow, absence=True),
        Flag("no recovery", ran_on & recovery_ns.isNull(), sentence(*at_kill, ", never ran elsewhere"), absence=True),
    ]


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Live workers that claimed nothing after the last heal while there was work; kills that hit no job in hand."""
    run, found = frames.run, list[tuple["DataFrame", Flag]]()
    if run.kills:
        hit = frames.in_hand.where(~F.col("ended")).agg(F.collect_set("fault").alias("hit"))
        faults = F.array(*(F.lit(kill.fault) for kill in run.kills))
        missed = hit.select(F.explode(F.array_except(faults, "hit")).alias("fault"))
        words = sentence("hit no job in hand: it proves nothing")
        found.append((missed, Flag("empty kill", F.lit(True), words, absence=True, level="unknown", subject="fault")))
    if run.live_workers and run.last_heal_ns is not None:
        found.append(silent_workers(frames))
    return found


def silent_workers(frames: Frames) -> tuple[DataFrame, Flag]:
    """Live workers without a claim after the last heal. With too little work for all it is not known whether they would."""
    run, workers = frames.run, frames.run.live_workers
    after = frames.tokens.where(F.col("claim_done_ns") > (run.last_heal_ns or 0))
    traffic = after.agg(F.count(F.lit(1)).alias("claims"), F.collect_set("proc").alias("claimed"))
    alive = F.array(*(F.lit(name) for name in workers))
    silent = traffic.select("claims", F.explode(F.array_except(alive, "claimed")).alias("worker"))
    level = F.when(F.col("claims") >= TRAFFIC_PER_WORKER * len(workers), "violated").otherwise("unknown")
    words = sentence("claimed none of the ", F.col("claims"), " jobs claimed after the last heal")
    return silent, Flag("silent worker", F.lit(True), words, absence=True, level=level, subject="worker")


CHECK = Check("J13", "nothing is stuck after the last heal", doubts, flags, more)
