"""The process that meddles: acts of a foreign client at random times, until SIGTERM, and the rows that tell of them.

python -m chaos.mischief.client NAME URL MODEL QUEUE SEED HISTORY SINK

A job that it takes, and one that it ends while a worker of the engine runs it, is recorded as claimed, run and finished by this
process, and one that it deletes as dropped. What it moves, doubles or promotes it does not own, so that is not recorded: the
engine must run such a job once.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.mischief.clients import CLIENTS, LOCK_MS, ForeignClient
from record.history import HistoryFile

#: Between two acts, at most.
PAUSE_S = 0.02
#: How late the second half of a promotion comes at most: the engine has long run such a job.
LATE_S = 3.0
#: How often each act is drawn.
ACTS = {"run": 20, "promote": 30, "move": 15, "delete": 4, "end": 6, "late": 25}


@dataclass(frozen=True, slots=True)
class Lease:
    """A job in the hands of this process."""

    job: str
    fence: int
    nonce: str
    #: Of its payload, as the engine sent it.
    crc: int


class Deeds:
    """The rows of this process."""

    def __init__(self, file: HistoryFile, sink: HistoryFile, queue: str) -> None:
        self._file = file
        self._sink = sink
        self._queue = queue
        self._count = 0

    def operation(self, f: str, lease: Lease, srv_ms: int, began_ns: int, reply: str = "", **item: Any) -> None:
        """An operation that was carried out between that instant and now."""
        self._count += 1
        named = {"job": lease.job, "fence": lease.fence, "nonce": lease.nonce}
        head: dict[str, Any] = {"kind": "operation", "f": f, "op": f"{self._file.proc}-{self._count}.0", "queue": self._queue}
        if f == "claim":
            incarnation, _, counter = lease.nonce.partition(":")
            head |= {"incarnation": incarnation, "counter": int(counter), "lease_ms": LOCK_MS}
        head["first_send_ns"] = began_ns
        done: dict[str, Any] = {"last_send_ns": began_ns, "done_ns": time.monotonic_ns(), "sends": 1, "errors": []}
        if f == "handle":
            done = {"done_ns": time.monotonic_ns()}
        else:
            done |= {"result": reply, "srv_us": srv_ms * 1_000 + 999}
        rows = [{**head, "type": "invoke", "items": [] if f == "claim" else [named]}]
        rows.append({**head, "type": "ok", **done, "items": [{**named, **item}]})
        self._file.append(json.dumps(row)[1:-1] for row in rows)

    def effect(self, lease: Lease) -> None:
        """The handler of this process has done what the job asks for."""
        named = {"job": lease.job, "fence": lease.fence, "nonce": lease.nonce, "crc": lease.crc}
        self._sink.append([json.dumps({"kind": "effect", "items": [named]})[1:-1]])


class Meddler:
    """One foreign client that acts at random."""

    def __init__(self, client: ForeignClient, deeds: Deeds, rng: random.Random) -> None:
        self._client = client
        self._deeds = deeds
        self._rng = rng
        self._claims = 0
        self._incarnation = f"{rng.getrandbits(64):016x}"
        # Second halves of promotions: when, the job, and what was read of it.
        self._halves: list[tuple[float, str, str]] = []

    def act(self) -> None:
        """One act, and the halves that are due."""
        (name,) = self._rng.choices(list(ACTS), list(ACTS.values()))
        getattr(self, f"_{name}")()
        now_s = time.monotonic()
        for half in [half for half in self._halves if half[0] <= now_s]:
            self._halves.remove(half)
            self._put_forward(*half[1:])

    def settle(self) -> None:
        """What was begun is carried out."""
        for _, job, copy in self._halves:
            self._put_forward(job, copy)

    def _put_forward(self, job: str, copy: str) -> None:
        """The second half of a promotion."""
        # A job that has failed meanwhile waits for its next run: that it came early would be the client's doing.
        if not self._client.rests(job):
            self._client.promote(job, copy)

    def _lease(self, job: str, began_ns: int) -> Lease:
        self._claims += 1
        now_ms = self._client.now_ms()
        crc = zlib.crc32(self._client.payload(job).encode())
        lease = Lease(job, now_ms, f"{self._incarnation}:{self._claims}", crc)
        about = {"due_ms": 0, "failures": 0, "crc": lease.crc, "result": "leased", "deadline_ms": now_ms + LOCK_MS}
        self._deeds.operation("claim", lease, now_ms, began_ns, "leased", **about)
        return lease

    def _taken(self) -> Lease | None:
        began_ns = time.monotonic_ns()
        job = self._client.take()
        return self._lease(job, began_ns) if job else None

    def _handle(self, lease: Lease) -> None:
        began_ns = time.monotonic_ns()
        time.sleep(self._rng.uniform(0.001, 0.02))
        self._deeds.effect(lease)
        self._deeds.operation("handle", lease, 0, began_ns)

    def _finish(self, lease: Lease) -> None:
        began_ns = time.monotonic_ns()
        result = "ok" if self._client.finish(lease.job) else "stale"
        outcome = "finished" if result == "ok" else ""
        self._deeds.operation("finish", lease, self._client.now_ms(), began_ns, result=result, outcome=outcome)

    def _run(self) -> None:
        if lease := self._taken():
            self._handle(lease)
            self._finish(lease)

    def _end(self) -> None:
        found = self._client.active()
        if found:
            lease = self._lease(self._rng.choice(found), time.monotonic_ns())
            self._handle(lease)
            self._finish(lease)

    def _delete(self) -> None:
        if self._client.deletes and (lease := self._taken()):
            self._handle(lease)
            began_ns = time.monotonic_ns()
            self._client.delete(lease.job)
            self._deeds.operation("drop", lease, self._client.now_ms(), began_ns, result="ok", outcome="discarded")

    def _move(self) -> None:
        self._client.move()

    def _promote(self) -> None:
        for job in self._client.due():
            self._put_forward(job, self._client.copy(job))

    def _late(self) -> None:
        """A promotion that has read its job, and whose second half comes later."""
        found = self._client.due() or (self._client.waiting() if self._client.doubles else [])
        if found:
            job = self._rng.choice(found)
            self._halves.append((time.monotonic() + self._rng.uniform(0, LATE_S), job, self._client.copy(job)))


def main(arguments: Sequence[str]) -> int:
    """Meddle until SIGTERM."""
    name, url, model, queue, seed, history, sink = arguments
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    rows = HistoryFile(Path(history), proc=name, role="worker")
    effects = HistoryFile(Path(sink), proc=name, role="sink")
    rng = random.Random(f"mischief {seed}")
    meddler = Meddler(CLIENTS[model](url, queue, name), Deeds(rows, effects, queue), rng)
    while not stop.wait(rng.uniform(0, PAUSE_S)):
        meddler.act()
    meddler.settle()
    rows.close()
    effects.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
