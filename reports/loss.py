"""Declared loss: acknowledged writes that the servers of a run may lose, listed in the spec before it began.

`loss` of the spec: each entry has a kind of `fault`, `since` (inject or snapshot), `before_ms`, `until` (inject, witness or
heal), `after_ms`, and a human-readable `text`. Writes acknowledged from `before_ms` before a fault's stage `since` until
`after_ms` after its stage `until` may be lost. What was lost in such a window is declared, and counted; what was lost outside of
all windows is a violation. A spec without `loss` says nothing of its servers, and then losses are violations too.

A lost write explains only what contradicts that very write, and only once it may be gone: an answer that came before the fault
was injected is an answer of a server that still had it. So a check compares instants: what was acknowledged when, and by when the
answer that contradicts it had come (`gone_ns`). What is explained carries the fault as the `loss` of its flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports.facts import MS, Run, finding_name
from reports.meaning import NEVER_NS
from reports.windows import Span, Window, windows, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    #: A condition on two instants: at which one answer was acknowledged, and at which another one came.
    Test = Callable[[Column, Column], Column]
    #: Whether there are two answers that contradict each other and for which a test holds.
    Clash = Callable[[Test], Column]

#: The checks some of whose violations a lost write explains.
EXPLAINED = ("J1", "J3", "J4", "J5", "J6", "J7", "J8", "J23", "J24")

#: A topology whose servers have a replication id each: clients connect to several of them, so the ids tell no era.
CLUSTER = "cluster"

#: Clients may talk to the server before for so long after a decision.
HEARD_NS = 1_000 * MS


@dataclass(frozen=True, slots=True)
class LossWindow:
    """When writes that were acknowledged may be lost, since when they may be gone, and since when the other server answers, in
    monotonic ns."""

    fault: str
    begin_ns: int
    end_ns: int
    gone_ns: int
    switched_ns: int

    @property
    def span(self) -> Span:
        return self.begin_ns, self.end_ns


def findings(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The declared losses as declared findings, for the verdict."""
    return [
        {"name": finding_name(one["fault"]), "text": one["text"], "checks": list(EXPLAINED)} for one in spec.get("loss") or ()
    ]


def loss_windows(run: Run) -> list[LossWindow]:
    """The declared windows of the faults that were injected."""
    declared = {one["fault"]: one for one in run.spec.get("loss") or ()}
    planned = {entry.get("fault") for entry in run.plan}
    return [
        window_of(window, declared[window.name], planned=window.fault in planned)
        for window in windows(run)
        if window.name in declared
    ]


def window_of(window: Window, entry: Mapping[str, Any], *, planned: bool = True) -> LossWindow:
    """The window of one fault. One that nobody saw to take effect ends with its heal, and one that nobody planned had begun
    before it was seen."""
    seen_ns = window.heal_ns if window.witness_ns is None else window.witness_ns
    taken_ns = window.inject_ns if window.snapshot_ns is None else window.snapshot_ns
    since_ns = taken_ns if entry.get("since") == "snapshot" else window.inject_ns
    until_ns = {"inject": window.inject_ns, "witness": seen_ns, "heal": window.heal_ns}[entry["until"]]
    begin_ns, end_ns = since_ns - entry["before_ms"] * MS, until_ns + entry["after_ms"] * MS
    return LossWindow(window.name, begin_ns, end_ns, window.inject_ns if planned else begin_ns, seen_ns)


def one_era(run: Run) -> bool:
    """True when the servers lost nothing, so that all of the run is about one history of them. A server that was started again
    has another replication id, whether it lost anything or not: where the spec says what may be lost, that decides."""
    return not loss_windows(run) if of_cluster(run) or "loss" in run.spec else len(run.replids) <= 1


def in_loss(run: Run, instant: Column) -> Column:
    """True for an instant at which acknowledged writes may be lost."""
    return within(instant, [one.span for one in loss_windows(run)])


def era_of_cluster(run: Run) -> Column:
    """In a cluster an event belongs to the era that its instant says: a new one begins with each decision that may lose
    writes."""
    instant = F.coalesce("done_ns", "first_send_ns", F.lit(0))
    passed = [F.when(instant >= F.lit(one.switched_ns), 1).otherwise(0) for one in loss_windows(run)]
    return reduce(add, passed, F.lit(0)).cast("string")


def of_cluster(run: Run) -> bool:
    """True for a run on a cluster."""
    return run.spec.get("topology") == CLUSTER


def gone_ns(run: Run, instant: Column) -> Column:
    """Since when a write that was acknowledged at this instant may be gone; NEVER_NS for one that nothing may lose."""
    found = F.lit(NEVER_NS)
    for one in loss_windows(run):
        found = F.least(found, F.when(within(instant, [one.span]), F.lit(one.gone_ns)))
    return found


def gone_by(run: Run, written: Column, answered: Column) -> Column:
    """The kind of fault that may have lost what was acknowledged at one instant before an answer came at another; null for none,
    which is the answer of a server that still had it."""
    name = F.lit(None).cast("string")
    for one in loss_windows(run):
        name = F.coalesce(name, F.when(within(written, [one.span]) & (answered >= F.lit(one.gone_ns)), F.lit(one.fault)))
    return name


def explanation(run: Run, clash: Clash) -> Column | None:
    """The kind of fault that may have lost the earlier of two answers that contradict each other; null when some server certainly
    had it when it gave the later one."""
    found = loss_windows(run)
    if not found:
        return None
    name = F.lit(None).cast("string")
    for one in found:
        lost = clash(lambda written, answered, one=one: within(written, [one.span]) & (answered >= F.lit(one.gone_ns)))
        name = F.coalesce(name, F.when(lost, F.lit(one.fault)))
    return F.when(~clash(lambda written, answered: gone_ns(run, written) > answered), name)


def lost_with_all(run: Run, first: Column, last: Column) -> Column:
    """The kind of fault that may have lost everything that was acknowledged between two instants; null for none."""
    name = F.lit(None).cast("string")
    for one in loss_windows(run):
        name = F.coalesce(name, F.when(within(first, [one.span]) & within(last, [one.span]), F.lit(one.fault)))
    return name


def without_loss(run: Run, instant: Column) -> Column:
    """The instant of a write that nothing may lose; null for another."""
    return F.when(~in_loss(run, instant), instant)
