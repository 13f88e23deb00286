"""What a channel run planned, as checks need it: where each clock began, how long its messages live, and its restores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.channels.circle import CLOCK_MAX
from reports.facts import MS, Run
from reports.windows import Window, windows

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Keys live for so long after a message has expired (wire-models 6.1).
LIFE_MARGIN_MS = 15_000

#: A spec that says nothing of it.
EXPIRE_MS = 1_800_000

#: The instant of a snapshot is known to this.
SAVED_SLACK_NS = 2_000 * MS

#: A call that nobody answered is void on the server so long after its first send (rule 3: 10 s), by whichever clock.
VOID_NS = 12_000 * MS

RESTORE = "snapshot-restore"


@dataclass(frozen=True, slots=True)
class Planned:
    """One channel of the spec. `preset`: its clock before the first message, 0 where none was set; `absent`: subscribers that
    need not read to the end; `slow`: those that are slow or away on purpose; `group`: what it is told together with."""

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
    """A server that came back with an older state: what happened between may be gone. In monotonic ns."""

    fault: str
    saved_ns: int
    inject_ns: int
    heal_ns: int


def planned(run: Run) -> dict[str, Planned]:
    """Name -> channel of the spec; entries without a name are none."""
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
    """The life of keys in whole seconds."""
    return -(-(expire_ms + LIFE_MARGIN_MS) // 1_000)


def restores(run: Run) -> tuple[Restore, ...]:
    """Every restore, in order. One whose snapshot nobody told of takes everything before it along."""
    return tuple(restore(run, window) for window in windows(run) if window.name == RESTORE)


def restore(run: Run, window: Window) -> Restore:
    """One restore, as its stages tell it."""
    saved = [stage.t_ns for stage in run.stages if stage.fault == window.fault and stage.stage == "snapshot"]
    return Restore(window.fault, max(saved, default=SAVED_SLACK_NS) - SAVED_SLACK_NS, window.inject_ns, window.heal_ns)
