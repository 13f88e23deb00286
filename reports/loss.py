"""Declared loss: acknowledged writes that the servers of a run may lose, listed in the spec before it began.

`loss` of the spec: each entry has a kind of `fault`, `since` (inject or snapshot), `before_ms`, `until` (inject, witness or
heal), `after_ms`, and a human-readable `text`. Writes acknowledged from `before_ms` before a fault's stage `since` until
`after_ms` after its stage `until` may be lost. What was lost in such a window is declared, and counted; what was lost outside of
all windows is a violation. A spec without `loss` says nothing of its servers, and then losses are violations too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports.facts import MS, Run
from reports.windows import Span, Window, windows, within

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The checks whose violations a lost write explains, and the kinds of them (all without one). Each names the job that was hit.
#: Those of JOB_LOST only when all that was ever acknowledged of the job may be lost, the others by any lost write of it. A job
#: whose enqueue was not answered may have been claimed at the old server, and be refused by the next.
JOB_LOST = ("J4:lost", "J5:from nowhere")
WRITE_LOST = (
    "J1:overlap",
    "J3",
    "J6:doubled",
    "J6:run again",
    "J6:created twice",
    "J7",
    "J8",
    "J24:end undone",
    "J24:claim undone",
)

#: A topology whose servers have a replication id each: clients connect to several of them, so the ids tell no era.
CLUSTER = "cluster"

#: Clients may talk to the server before for so long after a decision.
HEARD_NS = 1_000 * MS


@dataclass(frozen=True, slots=True)
class LossWindow:
    """When writes that were acknowledged may be lost, and since when the other server answers, in monotonic ns."""

    fault: str
    begin_ns: int
    end_ns: int
    switched_ns: int

    @property
    def span(self) -> Span:
        return self.begin_ns, self.end_ns


def finding_name(fault: str) -> str:
    """The name under which what a kind of fault lost is listed among the declared findings."""
    return f"loss by {fault}"


def check_of(which: str) -> str:
    """The check of `check:kind`."""
    return which.partition(":")[0]


def findings(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The declared losses as declared findings, for the verdict."""
    return [
        {"name": finding_name(one["fault"]), "text": one["text"], "checks": sorted({*map(check_of, (*JOB_LOST, *WRITE_LOST))})}
        for one in spec.get("loss") or ()
    ]


def loss_windows(run: Run) -> list[LossWindow]:
    """The declared windows of the faults that were injected."""
    declared = {one["fault"]: one for one in run.spec.get("loss") or ()}
    return [window_of(window, declared[window.name]) for window in windows(run) if window.name in declared]


def window_of(window: Window, entry: Mapping[str, Any]) -> LossWindow:
    """The window of one fault. One that nobody saw to take effect ends with its heal."""
    seen_ns = window.heal_ns if window.witness_ns is None else window.witness_ns
    taken_ns = window.inject_ns if window.snapshot_ns is None else window.snapshot_ns
    since_ns = taken_ns if entry.get("since") == "snapshot" else window.inject_ns
    until_ns = {"inject": window.inject_ns, "witness": seen_ns, "heal": window.heal_ns}[entry["until"]]
    begin_ns, end_ns = since_ns - entry["before_ms"] * MS, until_ns + entry["after_ms"] * MS
    return LossWindow(window.name, begin_ns, end_ns, seen_ns)


def one_era(run: Run) -> bool:
    """True when the servers lost nothing, so that all of the run is about one history of them. A server that was started again
    has another replication id, whether it lost anything or not: where the spec says what may be lost, that decides."""
    return not loss_windows(run) if of_cluster(run) or "loss" in run.spec else len(run.replids) <= 1


def in_loss(run: Run, instant: Column) -> Column:
    """True for an instant at which acknowledged writes may be lost."""
    return within(instant, [one.span for one in loss_windows(run)])


def loss_of(run: Run, instant: Column) -> Column:
    """The kind of fault that may lose what was acknowledged at this instant; null for none."""
    name = F.lit(None).cast("string")
    for one in loss_windows(run):
        name = F.coalesce(name, F.when(within(instant, [one.span]), F.lit(one.fault)))
    return name


def era_of_cluster(run: Run) -> Column:
    """In a cluster an event belongs to the era that its instant says: a new one begins with each decision that may lose
    writes."""
    instant = F.coalesce("done_ns", "first_send_ns", F.lit(0))
    passed = [F.when(instant >= F.lit(one.switched_ns), 1).otherwise(0) for one in loss_windows(run)]
    return reduce(add, passed, F.lit(0)).cast("string")


def of_cluster(run: Run) -> bool:
    """True for a run on a cluster."""
    return run.spec.get("topology") == CLUSTER


def hit_jobs(events: DataFrame, run: Run) -> DataFrame:
    """Per job that a declared loss may have hit: `subject`; `job_loss` and `write_loss`, the kinds of fault that may have lost
    all that was acknowledged of it, and any write of it."""
    acknowledged = F.when(F.col("type") == "ok", loss_of(run, F.col("done_ns")))
    # What came first is its enqueue or, where that was not answered, a claim.
    first = F.min(F.when(F.col("type") == "ok", F.struct("done_ns", F.coalesce(acknowledged, F.lit("")).alias("loss"))))
    grouped = events.groupBy(F.col("job").alias("subject"))
    hit = grouped.agg(F.nullif(first["loss"], F.lit("")).alias("job_loss"), F.max(acknowledged).alias("write_loss"))
    return hit.where(F.col("write_loss").isNotNull())


def covered() -> Column:
    """The name of the finding that a violation row belongs to by its declared loss; null for none."""
    which, whole = F.concat_ws(":", "check", "kind"), F.col("check")
    enqueue = F.when(which.isin(*JOB_LOST), F.col("job_loss"))
    write = F.when(which.isin(*WRITE_LOST) | whole.isin(*WRITE_LOST), F.col("write_loss"))
    return F.concat(F.lit(finding_name("")), F.coalesce(enqueue, write))
