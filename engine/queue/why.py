"""Why a job does not run, in one sentence: what its state, pauses, limits, parents and workers say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from engine import routing
from engine.ops.base import whole
from engine.ops.claims import DEFAULT_ROUTE, Attributes
from engine.ops.looks import Explained
from engine.queue.job_info import JobState, state_of
from engine.queue.obstacles import instant, limit_of, listed, paused_words, pauses_of
from engine.queue.workers import HANDLERS_TOLD, WorkerInfo, worker_info


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job does not run, or what it does: `sentence`, without the job as its subject: `waits for the limit of key acme: 2 of
    2 in hand, by w1 and w3`. `known` is False for an id that the server does not know, or no longer."""

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
            return f"waits until {at} for its next attempt, after {_count(failures, 'failed run')}" + (error and f": {error}")
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
            return f"is in hand of {owner or 'a worker'}, whose lease ended at {at}; the next sweep takes it away" + (
                f", but it waits {reason}" if reason else ""
            )
        case "dead":
            return f"is dead since {at}" + (f", because of {error}" if error else "")
        case "gone":
            return "is not known: no job has this id, or it has ended and was forgotten"
        case _:
            return f"{'was ' if state != 'finished' else 'has '}{state}" + (f" at {at}" if found.at_ms else "")


def _waits(found: Explained) -> list[str]:
    """What a job waits for that could be claimed."""
    reasons = [f"because {paused_words(pause)}" for pause in pauses_of(found.pauses)]
    limits = [limit for limit in map(limit_of, found.limits) if limit.full]
    reasons += [f"for the {limit}" for limit in limits]
    if found.rest_ms * 1000 > found.srv_us and not limits:
        reasons.append(f"for the rate limit of key {found.key}, free again at {instant(found.rest_ms)}")
    workers = _workers(found)
    if workers:
        reasons.append(workers)
    if reasons:
        return reasons
    if found.before:
        return [f"for its turn: {_count(found.before, 'job')} of its lane {'come' if found.before > 1 else 'comes'} first"]
    return ["to be claimed: nothing holds it back"]


def _workers(found: Explained) -> str:
    """Why none of the workers takes the job; '' where one does."""
    now_ms = found.srv_us // 1000
    told = [(worker_info(living.listed, now_ms), living.paused_until_ms >= 0) for living in found.workers]
    left = [(info, paused or info.paused) for info, paused in told]
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
            f"because {named} {_are(left)} {'kept from claiming by a closed gate' if gated else 'paused'}, and no other takes it"
        )
    in_hand, places = sum(info.in_hand for info in free), sum(info.concurrency for info in free)
    if in_hand < places or not places:
        return ""
    busy = f"{listed(info.name for info in free)} {_are(free)} busy"
    return f"because {busy}, with {_count(in_hand, 'job')} in hand for {_count(places, 'handler')}"


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
    return frozenset(map(str, cast("Iterable[object]", given))) if isinstance(given, list | tuple) else frozenset()


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


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
