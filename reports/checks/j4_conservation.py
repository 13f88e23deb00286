"""J4: no job is lost. One that was enqueued has finished, or is in exactly one state of the snapshot at the end.

A job whose end was sent and never answered, and that is nowhere, is possible, not lost. Finished and still waiting, delayed,
active or dead is a violation, as is dead without any handler start (rule 33).
"""

from __future__ import annotations

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, sentence
from reports.facts import Run

#: States in which no finished job may be.
OPEN_STATES = ("waiting", "delayed", "active", "dead")


def doubts(run: Run) -> list[str]:
    """It needs jobs, and the whole snapshot at the end."""
    found = [] if run.has("created") else ["no enqueue ever succeeded"]
    snapshot = run.snapshots.get("end")
    if snapshot is None:
        return [*found, "there is no snapshot at the end"]
    return found + [f"the snapshot at the end {gap}" for gap in snapshot.gaps()]


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Jobs that are lost, in two states, finished and still there, or dead without having run."""
    states, accepted, ending = F.col("end_states"), F.col("accepted"), F.col("end_unanswered")
    listed = F.array_join(states, " and ")
    still = F.arrays_overlap(states, F.array(*(F.lit(state) for state in OPEN_STATES)))
    unstarted = (F.array_contains(states, "dead") | F.col("buried")) & ~F.col("started")
    found = [
        Flag("two states", F.size(states) > 1, sentence("is ", listed, " at the end"), absence=False),
        Flag("not done", accepted & still, sentence("has finished, and is ", listed, " at the end"), absence=False),
        Flag("dead unstarted", unstarted, sentence("is dead, and no handler ever started it"), absence=True),
    ]
    snapshot = run.snapshots.get("end")
    if snapshot is not None and not snapshot.gaps():
        gone = (F.col("created") | F.col("claim_done_ns").isNotNull()) & ~accepted & (F.size(states) == 0)
        lost = sentence("was enqueued, has not finished, and is in no state at the end")
        open_end = sentence("is nowhere at the end; a call that ends its lease was sent and not answered")
        found.append(Flag("lost", gone & ~ending, lost, absence=True))
        found.append(Flag("open end", gone & ending, open_end, absence=True, level="possible"))
    return {"jobs": found}


CHECK = Check("J4", "no job is lost", doubts, flags)
