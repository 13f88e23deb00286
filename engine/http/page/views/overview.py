"""One queue at a glance: its numbers, its names and lanes, and why nothing moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.ops.looks import Counts, LimitInfo, PauseInfo
from engine.queue.why import LaneInfo, Obstacles, paused_words

#: Rows of each table.
_LANES_MAX = 12
_NAMES_MAX = 12
_REASONS_MAX = 8


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the top of the page. `state`: what it counts, as jobs are listed; `least`: there may be more."""

    state: str
    title: str
    count: int
    least: bool = False


@dataclass(frozen=True, slots=True)
class NameRow:
    """The waiting jobs of one name, and since when the oldest one could be claimed (ms)."""

    name: str
    waiting: int
    lanes: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps jobs from being claimed, and how many lanes and jobs it was seen to hold back; 0: not seen to."""

    words: str
    lanes: int = 0
    jobs: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """What is known of the lanes. `known` is False on an old keyspace; `cut`: there are more lanes than were looked at."""

    known: bool
    cut: bool
    now_ms: int
    oldest_age_ms: int | None
    names: tuple[NameRow, ...]
    lanes: tuple[LaneInfo, ...]
    reasons: tuple[Reason, ...]
    paused: bool


def tiles(counts: Counts, waiting: int, *, least: bool) -> tuple[Tile, ...]:
    """The numbers of a queue. `waiting` is what is known of the waiting jobs; `least`: of some lanes only."""
    return (
        Tile("waiting", "Waiting", waiting, least),
        Tile("delayed", "Delayed", counts.delayed),
        Tile("blocked", "Blocked", counts.blocked),
        Tile("active", "Active", counts.active),
        Tile("dead", "Dead", counts.dead),
        Tile("finished", "Finished", counts.finished),
    )


def held(obstacles: Obstacles | None, now_ms: int, *, idle: bool) -> Held:
    """What holds jobs back. `idle`: nothing waits, so nothing has to move."""
    if obstacles is None:
        return Held(False, False, now_ms, None, (), (), (), False)
    return Held(
        known=True,
        cut=obstacles.cut,
        now_ms=now_ms,
        oldest_age_ms=obstacles.oldest_age_ms,
        names=names(obstacles.lanes)[:_NAMES_MAX],
        lanes=obstacles.lanes[:_LANES_MAX],
        reasons=() if idle else tuple(reasons(obstacles.pauses, obstacles.limits, obstacles.lanes)),
        paused=any(pause.name is None for pause in obstacles.pauses),
    )


def names(lanes: Iterable[LaneInfo]) -> tuple[NameRow, ...]:
    """The lanes of each name together, the names with most jobs first."""
    found: dict[str, NameRow] = {}
    for lane in lanes:
        known = found.get(lane.name, NameRow(lane.name, 0, 0, 0))
        oldest = min(filter(None, (known.oldest_ms, lane.oldest_ms)), default=0)
        found[lane.name] = NameRow(lane.name, known.waiting + lane.waiting, known.lanes + 1, oldest)
    return tuple(sorted(found.values(), key=lambda row: (-row.waiting, row.name)))


def reasons(pauses: Iterable[PauseInfo], limits: Iterable[LimitInfo], lanes: Iterable[LaneInfo]) -> list[Reason]:
    """What holds jobs back, each thing once: what was seen to hold most jobs first."""
    seen: dict[str, Reason] = {}
    for words in [paused_words(pause) for pause in pauses] + [str(limit) for limit in limits if limit.full]:
        seen[words] = Reason(words)
    for lane in lanes:
        if lane.waits_for:
            before = seen.get(lane.waits_for, Reason(lane.waits_for))
            seen[lane.waits_for] = Reason(lane.waits_for, before.lanes + 1, before.jobs + lane.waiting)
    return sorted(seen.values(), key=lambda reason: -reason.jobs)[:_REASONS_MAX]
