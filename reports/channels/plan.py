"""The plan of a channel run, as checks need it: the first clock of each channel, the lifetime of its messages, and the
restores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.facts import MS, Run
from reports.windows import HEARD_NS, Window, loss_windows, windows

if TYPE_CHECKING:
    from collections.abc import Mapping

# Clocks of channels: integers in a circle, in which the smallest comes after the largest.
#
# Duplicates the clock of `engine.models.dsps`, which reports may not import.


#: The largest clock, and the number of clocks.
CLOCK_MAX = 2**53 - 1
CLOCKS = 2 * CLOCK_MAX + 1

#: A clock within this distance of the wrap belongs to a channel that is meant to cross it: a run publishes fewer messages.
NEAR = 10**9


def distance(start: int, end: int) -> int:
    """Number of steps forward from `start` to `end`."""
    return (end - start) % CLOCKS


def lag(cursor: int, clock: int) -> int:
    """Number of clocks by which a cursor is behind; 0 when it is ahead of the last known clock."""
    steps = distance(cursor, clock)
    return steps if steps <= CLOCK_MAX else 0


def past_wrap(clock: int) -> int:
    """Steps of a clock beyond the largest one: 0 is the largest, 1 the smallest (which follows it), -1 the one before it."""
    steps = distance(CLOCK_MAX, clock)
    return steps if steps <= CLOCK_MAX else steps - CLOCKS


def clock_at(steps: int) -> int:
    """The clock that lies this many steps past the wrap."""
    return (CLOCK_MAX + steps + CLOCK_MAX) % CLOCKS - CLOCK_MAX


#: Keys live this much longer than their message (wire-models 6.1).
LIFE_MARGIN_MS = 15_000

#: Default of a spec without an expiry.
EXPIRE_MS = 1_800_000

#: Uncertainty of the instant of a snapshot.
SAVED_SLACK_NS = 2_000 * MS

#: An unanswered call is void on the server this long after its first send: 10 s by rule 3, and a margin between the clocks.
VOID_NS = 12_000 * MS

RESTORE = "snapshot-restore"


@dataclass(frozen=True, slots=True)
class Planned:
    """One channel of the spec. `preset`: its clock before the first message, 0 = not set; `absent`: subscribers that need not
    read to the end; `slow`: subscribers that are slow or absent by plan; `group`: the group under which it is reported."""

    name: str
    subscribers: tuple[str, ...]
    fan_out: int
    preset: int
    life_ns: int
    absent: frozenset[str]
    slow: frozenset[str]
    group: str

    @property
    def wraps(self) -> bool:
        """True for a channel whose clock was set to cross the wrap."""
        return self.preset > 0

    @property
    def steps_to_wrap(self) -> int:
        """Steps from its first clock to the largest of all."""
        return CLOCK_MAX - self.preset


@dataclass(frozen=True, slots=True)
class Restore:
    """A restart of the server with an older state: effects in between may be undone. Times are monotonic ns."""

    fault: str
    saved_ns: int
    inject_ns: int
    heal_ns: int


def planned(run: Run) -> dict[str, Planned]:
    """Name -> channel of the spec; entries without a name are ignored."""
    entries = run.spec.get("channels")
    found = [one(entry) for entry in (entries if isinstance(entries, list) else []) if isinstance(entry, dict)]
    return {channel.name: channel for channel in found if channel.name}


def one(entry: Mapping[str, Any]) -> Planned:
    """One entry of the spec."""
    names = tuple(str(name) for name in entry.get("subscribers") or ())
    expire_ms, fan_out = whole(entry, "expire_ms", EXPIRE_MS), whole(entry, "fan_out", len(names))
    return Planned(
        str(entry.get("name") or ""),
        names,
        fan_out,
        whole(entry, "preset_clock", 0),
        life_s(expire_ms) * 1_000 * MS,
        frozenset(str(name) for name in entry.get("vanished") or ()),
        frozenset(str(name) for name in entry.get("slow") or ()),
        str(entry.get("group") or f"fan-out {fan_out}"),
    )


def whole(entry: Mapping[str, Any], name: str, default: int) -> int:
    """A whole number of an entry."""
    value = entry.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def life_s(expire_ms: int) -> int:
    """The lifetime of keys in whole seconds."""
    return -(-(expire_ms + LIFE_MARGIN_MS) // 1_000)


def restores(run: Run) -> tuple[Restore, ...]:
    """Every restore, in order. If the instant of its snapshot is not recorded, a restore may undo everything before it."""
    found = [restore(run, window) for window in windows(run) if window.name == RESTORE]
    # A failover that may lose writes is one as well: the server that answers then has what was acknowledged before the window.
    for one in (one for one in loss_windows(run) if one.fault != RESTORE):
        heal_ns = max(one.end_ns, one.switched_ns + HEARD_NS)
        found.append(Restore(one.fault, one.begin_ns, one.begin_ns, heal_ns))
    return tuple(sorted(found, key=lambda each: each.inject_ns))


def restore(run: Run, window: Window) -> Restore:
    """One restore, from the stages of its fault."""
    saved = [stage.t_ns for stage in run.stages if stage.fault == window.fault and stage.stage == "snapshot"]
    return Restore(window.fault, max(saved, default=SAVED_SLACK_NS) - SAVED_SLACK_NS, window.inject_ns, window.heal_ns)
