"""Enqueues of several callers that leave together: the calls that carry them, and what each caller is answered. No socket.

Neighbours become one call where the model allows it, with the identity of each job in its own envelope: the server then answers
fifty of them for the price of a few. A job that needs others or has callbacks keeps a call of its own between its neighbours, and
so does the second job of one id. What a call refuses, it refuses item by item; when the whole call fails by an error of its
script, such as a key of the wrong type, each of its enqueues is sent alone, so that one bad lane fails its own jobs only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, NamedTuple

from engine.errors import EngineError, ScriptFault
from engine.observer import Intended
from engine.ops.jobs import Enqueue, EnqueuedMany, EnqueueMany
from engine.wire.call import Call
from engine.wire.drivers.in_flight import InFlightCall, Sent

#: Bounds of what leaves together: the server answers the last enqueue of it after all the others.
BATCH_JOBS_MAX = 200
BATCH_BYTES_MAX = 256 * 1024
#: A batch that has been under way for this long holds up the next one no longer.
OVERDUE_S = 0.02


class GatheredEnqueue:
    """The enqueue of one caller. `operation` makes it for the server time (ms) after which it is void, when it leaves;
    `size_bytes` is its size, roughly; `intended_ns` (monotonic) is for the observer."""

    __slots__ = ("intended_ns", "operation", "size_bytes")

    def __init__(self, operation: Callable[[int], Enqueue], size_bytes: int, intended_ns: int | None) -> None:
        self.operation = operation
        self.size_bytes = size_bytes
        self.intended_ns = intended_ns

    def ends(self, outcome: Sent | EngineError) -> None:
        """Give its caller what came of it."""
        raise NotImplementedError


class CallMaker(NamedTuple):
    """How the enqueues of a queue become calls: its model's `call`, and whether the model takes jobs of several enqueues, each
    with a nonce of its own, in one call."""

    call: Callable[[Enqueue | EnqueueMany], Call[Any]]
    merges: bool


class MergedCall(NamedTuple):
    """A call and the enqueues that it carries, in their order."""

    call: Call[Any]
    jobs: Sequence[Enqueue]
    intended_ns: Intended

    def outcomes(self, outcome: Sent | EngineError) -> list[Sent | EngineError]:
        """What came of each enqueue, from what came of the call."""
        if isinstance(outcome, EngineError):
            # Each caller raises an exception of its own: one that several threads raise would collect the traces of all.
            return [outcome, *(copy(outcome) for _ in self.jobs[1:])]
        reply, first_send_ns, done_ns, definite = outcome
        if not isinstance(reply, EnqueuedMany):
            return [outcome]
        return [Sent(item, first_send_ns, done_ns, definite) for item in reply.items]

    def apart(self, outcome: Sent | EngineError, maker: CallMaker) -> list[MergedCall]:
        """The enqueues as calls of their own, when the call of several has failed by an error of its script; else none."""
        if len(self.jobs) == 1 or not isinstance(outcome, ScriptFault):
            return []
        each = self.intended_ns if isinstance(self.intended_ns, tuple) else (None,) * len(self.jobs)
        return [MergedCall(maker.call(job), (job,), intended_ns) for job, intended_ns in zip(self.jobs, each, strict=True)]


class StartedCalls:
    """The calls of a batch, which are about to be sent, and the enqueues that each of them carries. `again`: what is to be sent
    once more, each enqueue in a call of its own, after a call of several has failed as a whole."""

    def __init__(
        self,
        merged_calls: Sequence[MergedCall],
        enqueues: Sequence[GatheredEnqueue],
        start: Callable[[Call[Any], Intended], InFlightCall],
        maker: CallMaker,
    ) -> None:
        self.in_flight = [start(merged_call.call, merged_call.intended_ns) for merged_call in merged_calls]
        self.again: tuple[list[MergedCall], list[GatheredEnqueue]] = ([], [])
        self._maker = maker
        self._open: list[tuple[MergedCall, InFlightCall, Sequence[GatheredEnqueue]]] = []
        at = 0
        for merged_call, in_flight_call in zip(merged_calls, self.in_flight, strict=True):
            carried = enqueues[at : at + len(merged_call.jobs)]
            at += len(carried)
            self._open.append((merged_call, in_flight_call, carried))

    def hand_out(self) -> None:
        """Give each caller of the calls that have ended what came of its enqueue."""
        ended = [part for part in self._open if part[1].ended]
        self._open = [part for part in self._open if not part[1].ended]
        for merged_call, in_flight_call, enqueues in ended:
            outcome = in_flight_call.outcome()
            if parts := merged_call.apart(outcome, self._maker):
                self.again[0].extend(parts)
                self.again[1].extend(enqueues)
                continue
            for enqueue, its_outcome in zip(enqueues, merged_call.outcomes(outcome), strict=True):
                enqueue.ends(its_outcome)


def merged(gathered: Iterable[GatheredEnqueue], not_after_ms: int, maker: CallMaker) -> list[MergedCall]:
    """The calls of these enqueues, which leave now, in their order."""
    found: list[MergedCall] = []
    jobs: list[Enqueue] = []
    known: set[str] = set()
    intended: list[int | None] = []

    def close() -> None:
        if len(jobs) == 1:
            found.append(MergedCall(maker.call(jobs[0]), (jobs[0],), intended[0]))
        elif jobs:
            each = tuple(intended) if any(intended) else None
            found.append(MergedCall(maker.call(EnqueueMany(tuple(jobs))), tuple(jobs), each))
        jobs.clear()
        known.clear()
        intended.clear()

    for enqueue in gathered:
        job = enqueue.operation(not_after_ms)
        alone = not maker.merges or job.options.goes_alone
        if alone or job.job in known:
            close()
        jobs.append(job)
        known.add(job.job)
        intended.append(enqueue.intended_ns)
        if alone:
            close()
    close()
    return found
