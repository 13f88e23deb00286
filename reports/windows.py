"""The windows of a run's faults: the processes that each one hit, when it was in force, and what it may have lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import add
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports.facts import MS, Process, Run, finding_name
from reports.meaning import NEVER_NS

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The target of a fault that hits no single process: whoever calls a server feels it.
SERVERS = "servers"

#: Roles of the processes that call a server.
CALLERS = ("worker", "producer", "publisher", "subscriber", "app")
#: The fault by which the server's clock jumps.
CLOCK_JUMP = "server-clock-jump"

#: A look at the server's clock is off by the time that it takes.
LOOK_MS = 100

#: Start and end in monotonic ns.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """One injected fault: in force from inject_ns to heal_ns, seen to have healed at healed_ns, in monotonic ns."""

    fault: str
    name: str
    targets: tuple[str, ...]
    inject_ns: int
    heal_ns: int
    healed_ns: int
    #: The inject of the first fault after its heal. Faults that came while it was in force are not meant.
    next_ns: int
    #: When it was seen to take effect; None when it was not.
    witness_ns: int | None = None
    #: The instant before which all that was answered stood in the file that it put back; None when it put none back, or nobody
    #: knows which.
    snapshot_ns: int | None = None


def windows(run: Run) -> tuple[Window, ...]:
    """The injected faults in order of inject; one that was never healed has no end."""
    found: list[Window] = []
    for fault in dict.fromkeys(stage.fault for stage in run.stages):
        rows = [stage for stage in run.stages if stage.fault == fault]
        at_ns = {stage.stage: stage.t_ns for stage in rows}
        if "inject" in at_ns:
            heal_ns = at_ns.get("heal", NEVER_NS)
            healed_ns = max(heal_ns, at_ns.get("healed", heal_ns))
            found.append(
                Window(
                    fault,
                    rows[0].name,
                    targets(rows[0].target),
                    at_ns["inject"],
                    heal_ns,
                    healed_ns,
                    next_ns=NEVER_NS,
                    witness_ns=at_ns.get("witness"),
                    snapshot_ns=at_ns.get("snapshot"),
                )
            )
    return followed(sorted(found, key=lambda window: window.inject_ns))


def followed(found: Sequence[Window]) -> tuple[Window, ...]:
    """The windows in order of inject, each with its `next_ns`."""
    return tuple(
        replace(one, next_ns=next((later.inject_ns for later in found[at + 1 :] if later.inject_ns >= one.heal_ns), NEVER_NS))
        for at, one in enumerate(found)
    )


def processes_hit(run: Run, window: Window) -> tuple[str, ...]:
    """The processes that a fault hit: its targets, or everybody who lived through it and calls a server."""
    if window.targets != (SERVERS,):
        # An app has no history: hit with it is who calls it.
        apps = set(run.spec.get("apps", ()))
        callers = [one.name for one in run.processes if one.role == "producer"] if apps.intersection(window.targets) else []
        return tuple(dict.fromkeys([*(name for name in window.targets if name not in apps), *callers]))
    dead = {kill.target for kill in run.kills if kill.inject_ns < window.heal_ns}
    return tuple(one.name for one in run.processes if one.role in CALLERS and one.name not in dead and lived(run, one, window))


def lived(run: Run, process: Process, window: Window) -> bool:
    """True when a process was there before a fault and after it."""
    file = run.files.get(process.file)
    if file is None or file.opened_ns is None or file.opened_ns > window.inject_ns:
        return False
    return file.closed_ns is None or file.closed_ns > window.healed_ns


def targets(names: str) -> tuple[str, ...]:
    """The processes that a stage names, separated by commas."""
    return tuple(name for name in names.split(",") if name)


@dataclass(frozen=True, slots=True)
class ClockJump:
    """The server's wall clock jumped, and perhaps back again, between these instants. `forward_ms`: by how much it was ahead
    then, negative for a clock that went back; None when nobody saw it before and after."""

    fault: str
    begin_ns: int
    end_ns: int
    forward_ms: int | None

    @property
    def span(self) -> Span:
        return self.begin_ns, self.end_ns

    @property
    def size_ms(self) -> int:
        """How far it jumped; without an end where nobody saw it, which makes the run unknown (H1)."""
        return NEVER_NS // MS if self.forward_ms is None else abs(self.forward_ms) + LOOK_MS

    @property
    def back_ms(self) -> int:
        """How far it went back."""
        return 0 if self.forward_ms is not None and self.forward_ms >= 0 else self.size_ms

    @property
    def over_ms(self) -> int:
        """How much time it has jumped over. A clock that goes back is set right to what it would have been."""
        return 0 if self.forward_ms is not None and self.forward_ms <= 0 else self.size_ms


@dataclass(frozen=True, slots=True)
class Steady:
    """A stretch in which the server's clock did not jump, and by how many ns it was ahead of the monotonic one; None: unknown."""

    begin_ns: int
    end_ns: int
    ahead_ns: int | None


def steady_clocks(run: Run) -> list[Steady]:
    """The stretches between the jumps of the server's clock, in order; from the beginning of time to its end without any."""
    jumps = [window for window in windows(run) if window.name == CLOCK_JUMP]
    at_ns = sorted({0, NEVER_NS, *(at for window in jumps for at in (window.inject_ns, window.heal_ns))})
    return [Steady(begin_ns, end_ns, ahead_ns(run, begin_ns, end_ns)) for begin_ns, end_ns in pairwise(at_ns)]


def ahead_ns(run: Run, begin_ns: int, end_ns: int) -> int | None:
    """By how much the server's clock was ahead then. A look that lasted across a jump is one of several."""
    seen = [look.ahead_ns for look in run.clocks if look.ahead_ns is not None and begin_ns <= look.t_ns < end_ns]
    return round(median(seen)) if seen else None


def clock_jumps(run: Run) -> list[ClockJump]:
    """The jumps of the server's wall clock."""
    steady = steady_clocks(run)
    found: list[ClockJump] = []
    for window in windows(run):
        if window.name == CLOCK_JUMP:
            before = next((one.ahead_ns for one in steady if one.end_ns == window.inject_ns), None)
            after = next((one.ahead_ns for one in steady if one.begin_ns == window.inject_ns), None)
            jumped = None if before is None or after is None else round((after - before) / MS)
            found.append(ClockJump(window.fault, window.inject_ns, window.healed_ns, jumped))
    return found


def went_back_ms(run: Run, instant: Column) -> Column:
    """How far behind its time before the jump the server's clock may have been at an instant, in ms; 0 outside of jumps."""
    behind = F.lit(0)
    for jump in clock_jumps(run):
        behind = F.greatest(behind, F.when(within(instant, [jump.span]), F.lit(jump.back_ms)).otherwise(0))
    return behind


def reached_ns(run: Run, srv_ms: Column) -> Column:
    """When the server's clock first showed a time, on the monotonic clock; it may have jumped there. Null when nobody knows."""
    reached = F.lit(None).cast("bigint")
    for one in steady_clocks(run):
        if one.ahead_ns is not None:
            at_ns = F.greatest(F.lit(one.begin_ns), srv_ms * MS - F.lit(one.ahead_ns))
            reached = F.coalesce(reached, F.when(at_ns < F.lit(one.end_ns), at_ns))
    return reached


def within(instant: Column, spans: Sequence[Span]) -> Column:
    """True for an instant inside one of the spans."""
    condition = F.lit(False)
    for begin_ns, end_ns in spans:
        condition = condition | instant.between(F.lit(begin_ns), F.lit(end_ns))
    return F.coalesce(condition, F.lit(False))


# Declared loss: acknowledged writes that the servers of a run may lose, listed in the spec before it began.
#
# `loss` of the spec: each entry has a kind of `fault`, `since` (inject or snapshot), `before_ms`, `until`
# (inject, witness or heal), `after_ms`, and a human-readable `text`. Writes acknowledged from `before_ms`
# before a fault's stage `since` until `after_ms` after its stage `until` may be lost. What was lost in such
# a window is declared, and counted; what was lost outside of all windows is a violation. A spec without
# `loss` says nothing of its servers, and then losses are violations too.
#
# A lost write explains only what contradicts that very write, and only once it may be gone: an answer that
# came before the fault was injected is an answer of a server that still had it. So a check compares
# instants: what was acknowledged when, and by when the answer that contradicts it had come (`gone_ns`).
# What is explained carries the fault as the `loss` of its flag.

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
