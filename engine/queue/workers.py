"""The workers of a queue: which are alive, since when, and what each has leased, from their heartbeats (BQ02 to BQ04, MQ30).

A worker beats every 10 s unless told otherwise, and is taken for dead when three beats in a row have not come; then a sweep looks
for leases that it has left behind, and the next beat may find it gone from the list. A worker that stops takes its leave at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from engine.ops.workers import ListedWorker

#: Workers of one answer.
LIMIT_MAX = 1_000
#: Names of jobs that a worker tells in its beats.
HANDLERS_TOLD = 100


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as its last beat told it. `beat_age_ms` is by the server's clock; `in_hand` counts its leases, of which `jobs` are
    at most 100 ids; `leads`: it sweeps for all of them. `handlers` are at most 100 names; `priorities` the least and the greatest
    that it claims, None: all; `routing` what targets and routes of jobs ask for; `paused` and `gate_closed`: whether a pause or
    its gate kept it from claiming when it beat. On an old keyspace those that the registry of the format lists come behind the
    others, with their names as incarnations and 0 for what is not known. `unreadable` says why a beat that somebody else
    has written cannot be read."""

    name: str
    incarnation: str
    host: str
    pid: int
    version: str
    alive: bool
    beat_age_ms: int
    started_ms: int
    in_hand: int
    jobs: tuple[str, ...]
    leads: bool
    concurrency: int
    lease_ms: int
    handlers: tuple[str, ...]
    attributes: Mapping[str, Any]
    priorities: tuple[int, int] | None = None
    routing: Mapping[str, Any] = field(default_factory=dict[str, Any])
    paused: bool = False
    gate_closed: bool = False
    unreadable: str = ""


def worker_info(listed: ListedWorker, now_ms: int) -> WorkerInfo:
    """The description of a worker from its last heartbeat, at this server time: of one that cannot be read, that it is there."""
    try:
        about = cast("dict[str, Any]", json.loads(listed.about))
        priorities: Any = about.get("priorities")
        return WorkerInfo(
            name=str(about.get("name", "")),
            incarnation=listed.incarnation,
            host=str(about.get("host", "")),
            pid=_number(about, "pid"),
            version=str(about.get("version", "")),
            alive=listed.until_ms > now_ms,
            beat_age_ms=max(0, now_ms - (listed.until_ms - listed.ttl_ms)),
            started_ms=_number(about, "started_ms"),
            in_hand=_number(about, "in_hand"),
            jobs=tuple(map(str, about.get("jobs", ()))),
            leads=listed.leads,
            concurrency=_number(about, "concurrency"),
            lease_ms=listed.lease_ms,
            handlers=tuple(map(str, about.get("handlers", ()))),
            attributes=dict(about.get("attributes", {})),
            priorities=(int(priorities[0]), int(priorities[1])) if priorities else None,
            routing=dict(about.get("routing", {})),
            paused=bool(about.get("paused", False)),
            gate_closed=bool(about.get("gate_closed", False)),
        )
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        age_ms = max(0, now_ms - (listed.until_ms - listed.ttl_ms))
        empty = WorkerInfo(
            "", listed.incarnation, "", 0, "", listed.until_ms > now_ms, age_ms, 0, 0, (), listed.leads, 0, 0, (), {}
        )
        return replace(empty, unreadable=f"its beat cannot be read: {error}")


def _number(about: Mapping[str, Any], name: str) -> int:
    """A number of a beat, which pages reckon with. Raises ValueError, TypeError, OverflowError."""
    number = int(about.get(name, 0))
    if not 0 <= number < 2**53:
        raise ValueError(f"{name} is no number of a worker")
    return number


def added_workers(parts: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """The workers of several shards, each process once, by name and process: what it has in hand in all of them."""
    found: dict[tuple[str, str, int], WorkerInfo] = {}
    for part in parts:
        who = (part.name, part.host, part.pid)
        known = found.get(who)
        if known is not None:
            latest = min(known, part, key=lambda info: info.beat_age_ms)
            jobs, in_hand = known.jobs + part.jobs, known.in_hand + part.in_hand
            part = replace(latest, jobs=jobs, in_hand=in_hand, leads=known.leads or part.leads, alive=known.alive or part.alive)
        found[who] = part
    return list(found.values())
