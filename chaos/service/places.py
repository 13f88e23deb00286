"""Why jobs of a service may rightly wait: handlers that still run have all places of its workers, or of a limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chaos.watch import Watch
from engine.ops.looks import LimitInfo


@dataclass(frozen=True, slots=True)
class Taken:
    """At one instant: `busy`, the workers without a free place; and what else is full, in words."""

    busy: frozenset[str]
    full: tuple[str, ...]


def taken(watch: Watch, places: Mapping[str, int], limits: Iterable[LimitInfo]) -> Taken:
    """What is full. `places`: of each worker that lives. A limit whose places are held by jobs that no handler runs is not full
    of work, but a defect; one of a rate is full until its time comes."""
    running = {name: watch.view(name).running for name in places}
    jobs = {token.job for tokens in running.values() for token in tokens}
    busy = frozenset(name for name, tokens in running.items() if len(tokens) >= places[name])
    full = [f"handlers had all {sum(places.values())} places of the workers"] if busy == places.keys() and places else []
    for limit in limits:
        held = 0 < limit.concurrency <= limit.in_hand and all(job in jobs for job, _ in limit.holders)
        if held or limit.free_ms:
            full.append(f"the limit of {limit.target} was full")
    return Taken(busy, tuple(full))


def all_the_while(before: Taken, after: Taken) -> Taken:
    """What was full at both instants, and so between them, too."""
    return Taken(before.busy & after.busy, tuple(one for one in before.full if one in after.full))
