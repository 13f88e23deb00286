"""Why a job does not run, in one sentence: what its state, pauses, limits, parents and workers say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from engine import routing
from engine.errors import counted
from engine.ops.base import frozen, whole
from engine.ops.claims import DEFAULT_ROUTE, Attributes
from engine.ops.looks import Explained, LaneLook, LimitInfo, ObstaclesPart, PauseInfo, instant, listed
from engine.ops.workers import HANDLERS_TOLD, WorkerInfo
from engine.queue.looks import JobState, state_of

# -- What holds the jobs of a queue back: its pauses, its limits with who fills them, and what each lane
# waits for.

_KINDS: dict[str, Literal["name", "key"]] = {"n": "name", "k": "key"}


@frozen
class LaneInfo:
    """The waiting jobs of one name and key ('' = none), those for the same workers: how many, and since when
    the one that has waited longest could be claimed (ms, server time; of long lanes an estimate from their
    first jobs). `waits_for` is what holds them back, in words, '' where a worker may claim them."""

    name: str
    key: str
    waiting: int
    oldest_ms: int
    waits_for: str


@frozen
class Obstacles:
    """What holds the jobs of a queue back, at one instant; the lanes beyond the first 100 or so at later
    ones. `cut`: there are more lanes than the 5,000 or so that were looked at."""

    srv_us: int
    pauses: tuple[PauseInfo, ...]
    limits: tuple[LimitInfo, ...]
    lanes: tuple[LaneInfo, ...]
    cut: bool = False

    @property
    def oldest_age_ms(self) -> int:
        """For how long the job has waited that has waited longest; 0 where none waits."""
        since = [lane.oldest_ms for lane in self.lanes if lane.oldest_ms]
        return max(0, self.srv_us // 1000 - min(since)) if since else 0

    @property
    def waiting_by_name(self) -> dict[str, int]:
        """How many jobs of each name wait, in these lanes."""
        counts: dict[str, int] = {}
        for lane in self.lanes:
            counts[lane.name] = counts.get(lane.name, 0) + lane.waiting
        return dict(sorted(counts.items()))


#: Names of jobs that one sentence tells.
_NAMES_TOLD = 5


def unhandled(names: Iterable[str], alive: Iterable[WorkerInfo]) -> tuple[str, ...]:
    """Those of these names of jobs for which none of the live workers has a handler. None of them where a
    worker does not tell all of its names, because it may have one."""
    handled: set[str] = set()
    for info in alive:
        # What has no start is a worker of another program, of which its registry tells little.
        if info.unreadable or not info.started_ms or len(info.handlers) >= HANDLERS_TOLD:
            return ()
        handled.update(info.handlers)
    return tuple(name for name in names if name not in handled)


def unhandled_words(names: Sequence[str], alive: Sequence[WorkerInfo]) -> str:
    """`no live worker handles: recipt, nigtly`; '' without such names."""
    if not names:
        return ""
    if not alive:
        return "no worker of this queue is alive"
    more = f" and {len(names) - _NAMES_TOLD} more" if len(names) > _NAMES_TOLD else ""
    return f"no live worker handles: {', '.join(names[:_NAMES_TOLD])}{more}"


def obstacles_of(parts: list[ObstaclesPart]) -> Obstacles:
    """All parts of a queue's obstacles together."""
    first = parts[0]
    waits = _Waits(first.pauses, first.limits, first.srv_us)
    lanes = [waits.lane(look) for part in parts for look in part.lanes]
    lanes.sort(key=lambda lane: (-lane.waiting, lane.name, lane.key))
    return Obstacles(first.srv_us, first.pauses, first.limits, tuple(lanes), cut=parts[-1].cursor != "")


def added_obstacles(parts: list[Obstacles]) -> Obstacles:
    """The obstacles of several shards together: the limit of a name is divided among them, that of a key
    holds in one of them."""
    limits: dict[tuple[str | None, str | None], LimitInfo] = {}
    for limit in (limit for part in parts for limit in part.limits):
        known = limits.get((limit.name, limit.key))
        if known is not None:
            sums = {
                field: getattr(known, field) + getattr(limit, field)
                for field in ("in_hand", "used", "parked", "holders")
            }
            if limit.name is not None:
                sums |= {
                    field: getattr(known, field) + getattr(limit, field) for field in ("concurrency", "rate")
                }
            limit = replace(known, free_ms=max(known.free_ms, limit.free_ms), **sums)
        limits[limit.name, limit.key] = limit
    lanes = sorted(
        (lane for part in parts for lane in part.lanes), key=lambda lane: (-lane.waiting, lane.name, lane.key)
    )
    cut = any(part.cut for part in parts)
    return Obstacles(parts[0].srv_us, parts[0].pauses, tuple(limits.values()), tuple(lanes), cut=cut)


class _Waits:
    """What lanes wait for, by the pauses and limits of their queue."""

    def __init__(self, pauses: Iterable[PauseInfo], limits: Iterable[LimitInfo], srv_us: int) -> None:
        self._srv_us = srv_us
        self._pauses = {pause.name: pause for pause in pauses}
        self._limits = {(limit.name, limit.key): limit for limit in limits}

    def lane(self, look: LaneLook) -> LaneInfo:
        """The description of a lane: `name@route~target/key`."""
        class_name, _, key = look.lane.partition("/")
        name = class_name.partition("@")[0]
        return LaneInfo(name, key, look.waiting, look.since_ms, self._waits_for(name, key, look))

    def _waits_for(self, name: str, key: str, look: LaneLook) -> str:
        for paused in (self._pauses.get(None), self._pauses.get(name)):
            if paused is not None:
                return paused_words(paused)
        of_key = self._limits.get((None, key)) if key else None
        for limit in (self._limits.get((name, None)), of_key):
            if limit is not None and limit.full:
                return str(limit)
        if look.waits_for == "rest" and look.rest_ms * 1000 <= self._srv_us:
            return ""
        if look.waits_for == "rest":
            return f"rate limit of key {key}, free again at {instant(look.rest_ms)}"
        return f"limit of {_KINDS[look.waits_for[0]]} {look.waits_for[2:]}" if look.waits_for else ""


def paused_words(pause: PauseInfo) -> str:
    """`the name send is paused until it is resumed`."""
    what = "the queue" if pause.name is None else f"the name {pause.name}"
    return f"{what} is paused " + (
        f"until {instant(pause.until_ms)}" if pause.until_ms else "until it is resumed"
    )


@frozen
class Why:
    """Why a job does not run, or what it does: `sentence`, without the job as its subject: `waits for the
    limit of key acme: 2 of 2 in hand, by w1 and w3`. `known` is False for an id that the server does not
    know, or no longer."""

    job: str
    state: JobState
    sentence: str

    @property
    def known(self) -> bool:
        """Whether the server knows the job."""
        return self.state != "gone"

    def __str__(self) -> str:
        return self.sentence


def why(job: str, found: Explained) -> Why:
    """Why a job does not run."""
    state = state_of(found, found.srv_us)
    return Why(job, state, _sentence(state, found))


def _sentence(state: JobState, found: Explained) -> str:
    at, owner = instant(found.at_ms), found.ran.get("owner", "")
    failures, error = whole(found.ran.get("failures", "0")), _last_line(found.ran.get("error", ""))
    match state:
        case "waiting":
            return "waits " + ", and ".join(_waits(found))
        case "delayed" if found.at_ms * 1000 <= found.srv_us:
            return f"was delayed until {at}, and waits " + (_workers(found) or "for the next claim or sweep")
        case "delayed" if failures:
            return f"waits until {at} for its next attempt, after {counted(failures, 'failed attempt')}" + (
                error and f": {error}"
            )
        case "delayed":
            return f"is delayed until {at}"
        case "blocked" if not found.needed:
            return "waits for the next sweep, which finds that its parents have ended"
        case "blocked":
            parents = [f"{parent} ({parent_state})" for parent, parent_state in sorted(found.needs)]
            return f"waits for its parent{'' if found.needed == 1 else 's'} {listed(parents, found.needed)}"
        case "active":
            return f"runs on {owner or 'a worker of another program'} since {instant(found.fence)}"
        case "stuck":
            reason = _workers(found)
            return (
                f"is in hand of {owner or 'a worker'}, whose lease ended at {at}; the next sweep "
                "takes it away"
            ) + (f", but it waits {reason}" if reason else "")
        case "dead":
            return f"is dead since {at}" + (_because(error) if error else "")
        case "gone":
            return "is not known: no job has this id, or it has ended and was forgotten"
        case _:
            return f"{'was ' if state != 'finished' else 'has '}{state}" + (
                f" at {at}" if found.at_ms else ""
            )


def _because(error: str) -> str:
    """The cause of a death: an error, or a sentence about a parent."""
    return f", because {error}" if error.startswith("its parent ") else f", because of {error}"


def _waits(found: Explained) -> list[str]:
    """What a job waits for that could be claimed."""
    reasons = [f"because {paused_words(pause)}" for pause in found.pauses]
    limits = [limit for limit in found.limits if limit.full]
    reasons += [f"for the {limit}" for limit in limits]
    if found.rest_ms * 1000 > found.srv_us and not limits:
        reasons.append(f"for the rate limit of key {found.key}, free again at {instant(found.rest_ms)}")
    workers = _workers(found)
    if workers:
        reasons.append(workers)
    if reasons:
        return reasons
    if found.before:
        return [
            f"for its turn: {counted(found.before, 'job')} of its lane "
            f"{'come' if found.before > 1 else 'comes'} first"
        ]
    return ["to be claimed: nothing holds it back"]


def _workers(found: Explained) -> str:
    """Why none of the workers takes the job; '' where one does."""
    left = [(living.info, living.paused_until_ms >= 0 or living.info.paused) for living in found.workers]
    if not left:
        return "because no worker of this queue is alive"
    checks: tuple[tuple[str, Callable[[WorkerInfo], bool]], ...] = (
        (f"has a handler for {found.name}", lambda info: _takes_name(info, found.name)),
        (f"takes its priority {found.priority}", lambda info: _takes_priority(info, found.priority)),
        (f"takes its {_wanted(found.target)}", lambda info: _takes_target(info, found.target)),
    )
    for what, fits in checks:
        fit = [pair for pair in left if fits(pair[0])]
        if not fit:
            return f"because no live worker {what}; alive: {listed(info.name for info, _ in left)}"
        left = fit
    free = [info for info, paused in left if not paused and not info.gate_closed]
    if not free:
        named, gated = listed(info.name for info, _ in left), not any(paused for _, paused in left)
        return (
            f"because {named} {_are(left)} "
            f"{'kept from claiming by a closed gate' if gated else 'paused'}, and no other takes it"
        )
    in_hand, places = sum(info.in_hand for info in free), sum(info.concurrency for info in free)
    if in_hand < places or not places:
        return ""
    busy = f"{listed(info.name for info in free)} {_are(free)} busy"
    return f"because {busy}, with {counted(in_hand, 'job')} in hand for {counted(places, 'handler')}"


def _takes_name(info: WorkerInfo, name: str) -> bool:
    """Whether a worker runs jobs of a name; one with more names than it tells is taken to."""
    return name in info.handlers or len(info.handlers) >= HANDLERS_TOLD


def _takes_priority(info: WorkerInfo, priority: int) -> bool:
    """Whether a priority is in the range of a worker."""
    return info.priorities is None or info.priorities[0] <= priority <= info.priorities[1]


def _takes_target(info: WorkerInfo, target: str) -> bool:
    """Whether a worker meets what a job requires of it."""
    about, wanted = info.routing, routing.read_target(target)
    attributes = Attributes(
        str(about.get("server", "")),
        str(about.get("stack", "")),
        _texts(about.get("capabilities", ())),
        str(about.get("region", "")),
        _texts(about.get("routes", (DEFAULT_ROUTE,))),
    )
    return wanted is not None and routing.matches(wanted, attributes)


def _texts(given: object) -> frozenset[str]:
    """The texts of a list in a beat, of which its writer may have made anything."""
    return (
        frozenset(map(str, cast("Iterable[object]", given)))
        if isinstance(given, list | tuple)
        else frozenset()
    )


def _wanted(target: str) -> str:
    """What a job requires, in words."""
    wanted = routing.read_target(target)
    if wanted is None:
        return "target, which nobody can read"
    route = wanted.pop("route", DEFAULT_ROUTE)
    words = [f"route {route}"] if route != DEFAULT_ROUTE or not wanted else []
    return " and ".join([*words, *([f"target {json.dumps(wanted)}"] if wanted else [])])


def _are(of: list[Any]) -> str:
    return "are" if len(of) > 1 else "is"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
