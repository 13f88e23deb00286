"""What a queue is filled with by `python -m bench scale`: one dimension of its size each, which grows in decades."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import redis

from bench.micro.desk import Desk
from bench.micro.jobs import LEASE_MS, Claims
from bench.micro.payload import NAME
from engine.models.model import random_ids
from engine.ops.base import Call
from engine.ops.claims import Bury, Failure, Finish
from engine.ops.jobs import EnqueueMany, Lease
from engine.ops.schedules import PutSchedule, TickPolicy, Timing
from engine.ops.workers import Beat

#: Jobs of one call that fills.
_BULK = 1_000
#: Calls that fill and are on their way at once.
_PIPELINED = 10
#: Calls that fill with one deadline.
_CALLS_MAX = 40
_HOUR_MS = 3_600_000
#: A heartbeat counts for so long, so that no fill looks like a stall of the server (rule 11).
BEAT_MS = 600_000


@dataclass(frozen=True, slots=True)
class State:
    """One dimension: its title, and how `grow` takes a queue from one size to the next. `classes` are
    those that the measured claims name."""

    title: str
    sizes: tuple[int, ...]
    grow: Callable[[Desk, int, int], None]
    classes: tuple[str, ...] = (NAME,)

    def up_to(self, most: int) -> State:
        """The same with the sizes up to this one."""
        return replace(self, sizes=tuple(size for size in self.sizes if size <= most))


def fill_fast(desk: Desk, count: int, **options: Any) -> None:
    """Enqueue this many jobs of 200 bytes, quickly: a call is built once, and sent again and again with other ids."""
    while count > 0:
        bulk = min(count, _BULK)
        # A call is void after ten seconds, so it is built anew now and then.
        calls = min(count // bulk, _CALLS_MAX)
        call = desk.queue.model.call(EnqueueMany(desk.enqueues(bulk, **options)))
        for several in _pieces(range(calls), _PIPELINED):
            pipe = desk.plain.pipeline(transaction=False)
            for _ in several:
                _send(pipe, _with_other_ids(call, bulk))
            created = sum(reply[1].count(b"c") for reply in pipe.execute())
            if created != len(several) * bulk:
                raise RuntimeError(f"scale: {created} of {len(several) * bulk} jobs were created")
        count -= calls * bulk


def _pieces(numbers: range, size: int) -> Iterator[range]:
    return (numbers[at : at + size] for at in range(0, len(numbers), size))


def _with_other_ids(call: Call[Any], count: int) -> Call[Any]:
    """The same call about new jobs: their keys are its last ones."""
    names, prefix = call.keys[:-count], call.keys[-1][: call.keys[-1].index("job:") + 4]
    return replace(call, keys=(*names, *(prefix + job for job in islice(random_ids(), count))))


def _send(pipe: Any, call: Call[Any]) -> None:
    assert call.script is not None
    pipe.eval(call.script.text, len(call.keys), *call.keys, *call.arguments)


def _waiting(desk: Desk, before: int, after: int) -> None:
    fill_fast(desk, after - before)


def _delayed(desk: Desk, before: int, after: int) -> None:
    fill_fast(desk, after - before, delay_ms=_HOUR_MS)


def _lanes(desk: Desk, before: int, after: int) -> None:
    for numbers in _pieces(range(before, after), _BULK):
        desk.queue.enqueue_many([{"name": NAME, "key": f"tenant-{number}", "payload": {}} for number in numbers for _ in (0, 1)])


def _parked(desk: Desk, before: int, after: int) -> None:
    """Lanes of keys that are at their limit: each has a lease and a waiting job."""
    desk.queue.set_limit(key="*", concurrency=1)
    for numbers in _pieces(range(before, after), _BULK):
        jobs = [{"name": NAME, "key": f"tenant-{number}", "payload": {}, "priority": 10} for number in numbers for _ in (0, 1)]
        desk.queue.enqueue_many(jobs)
    for _ in _taken(desk, after - before):
        pass
    parked: Any = desk.plain.hlen(desk.queue.model.keys.parked)
    if parked != after:
        raise RuntimeError(f"scale: {parked} lanes are parked, not {after}")


def _taken(desk: Desk, count: int) -> Iterator[tuple[Lease, ...]]:
    """Lease so many jobs, in batches, for a worker of its own."""
    claims = Claims(desk.queue, owner=int.from_bytes(os.urandom(7), "big"))
    while count > 0:
        leases = tuple(job.lease for job in desk.prepare(claims.call(min(count, _BULK))).jobs)
        if not leases:
            raise RuntimeError(f"scale: {count} jobs that could be claimed are missing")
        count -= len(leases)
        yield leases


def _leased(desk: Desk, count: int) -> Iterator[tuple[Lease, ...]]:
    """Enqueue this many jobs of the highest priority, and lease them, in batches."""
    fill_fast(desk, count, priority=10)
    return _taken(desk, count)


def _active(desk: Desk, before: int, after: int) -> None:
    for _ in _leased(desk, after - before):
        pass


def _finished(desk: Desk, before: int, after: int) -> None:
    """Jobs that finish between two sweeps: the next one lets go of all but the newest."""
    for leases in _leased(desk, after):
        desk.prepare(Finish(leases))


def _dead(desk: Desk, before: int, after: int) -> None:
    for leases in _leased(desk, after - before):
        desk.prepare(Bury(tuple(Failure(lease, "RuntimeError: planned", 0) for lease in leases)))


def _workers(desk: Desk, before: int, after: int) -> None:
    """Workers that beat, each with a connection of its own that blocks until there is something to do."""
    wake = desk.queue.model.keys.wake(NAME)
    for number in range(before, after):
        beat = Beat(f"{number + 1:016x}", 1, BEAT_MS, desk.void_ms() + BEAT_MS, LEASE_MS, 1000, '{"host":"bench"}')
        desk.prepare(beat)
        desk.sockets.append(_blocked(desk.plain, wake))


def _blocked(plain: redis.Redis, wake: str) -> socket.socket:
    connected = socket.create_connection(("127.0.0.1", plain.connection_pool.connection_kwargs["port"]))
    connected.sendall(f"*3\r\n$5\r\nBLPOP\r\n${len(wake)}\r\n{wake}\r\n$1\r\n0\r\n".encode())
    return connected


def _schedules(desk: Desk, before: int, after: int) -> None:
    far_ms = desk.void_ms() + 24 * _HOUR_MS
    (job,) = desk.enqueues(1)
    for numbers in _pieces(range(before, after), _BULK):
        pipe = desk.plain.pipeline(transaction=False)
        for number in numbers:
            timing = Timing(every_ms=_HOUR_MS)
            put = PutSchedule(f"s{number}", timing, TickPolicy(), job, far_ms, far_ms, None, not_after_ms=desk.void_ms())
            _send(pipe, desk.queue.model.call(put))
        pipe.execute()


def _classes(desk: Desk, before: int, after: int) -> None:
    # One class fewer: that of the measured jobs is there already.
    for numbers in _pieces(range(max(before, 1), after), 100):
        fill_named = [{"name": f"class-{number}", "payload": {}} for number in numbers]
        desk.queue.enqueue_many(fill_named)


#: Every dimension by its name, with the sizes that are measured.
STATES: dict[str, State] = {
    "waiting": State("waiting jobs", (1_000, 10_000, 100_000, 1_000_000, 10_000_000), _waiting),
    "delayed": State("delayed jobs", (1_000, 10_000, 100_000, 1_000_000), _delayed),
    "active": State("active leases", (100, 1_000, 10_000, 100_000), _active),
    "lanes": State("lanes", (100, 1_000, 10_000, 100_000), _lanes),
    "parked": State("parked lanes", (100, 1_000, 10_000, 100_000), _parked),
    "classes": State("classes", (10, 100, 1_000, 9_000), _classes, (NAME, *(f"class-{number}" for number in range(1, 10)))),
    "workers": State("workers", (1, 10, 100, 1_000), _workers),
    "schedules": State("schedules", (10, 100, 1_000, 9_900), _schedules),
    "finished": State("jobs finished between two sweeps", (1_000, 10_000, 100_000), _finished),
    "dead": State("dead jobs", (100, 1_000, 10_000, 100_000), _dead),
}
