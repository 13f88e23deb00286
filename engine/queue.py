"""The producer's face of a queue: enqueue, counts and snapshots, synchronous (DESIGN 3.1, 3.6)."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from engine import validate
from engine.driver import SyncDriver
from engine.errors import Malformed, OutcomeUnknown, ScriptFault
from engine.models.lanes import CLASS, LANE, Lanes
from engine.observer import Observer
from engine.operations import Count, Counts, Enqueue, Enqueued, Listing, MakeTestQueue, Snapshot

#: 2100-01-01.
TEST_CLOCK_LEAST_MS = 4_102_444_800_000
_PAGE = 1000
_PAGES_MAX = 10_000


class Queue:
    """A named queue on one Redis or Valkey server. Safe to share between threads and greenlets; connects on first use.

    `payload_bytes_max` is this producer's limit, 512 KiB unless told. `lua` replaces the folder of scripts and `observer` hears
    of every call; services need neither. Raises Malformed for a bad name or url.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str = "redis://127.0.0.1:6379",
        payload_bytes_max: int = validate.PAYLOAD_BYTES_MAX,
        lua: Path | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.name = validate.queue_name(name)
        self.url = url
        self.lua = validate.lua_folder(lua)
        self.payload_bytes_max = validate.integer("payload_bytes_max", payload_bytes_max, 1, validate.PAYLOAD_BYTES_LIMIT)
        self.observer = observer
        self.model = Lanes(self.name, lua=self.lua)
        self.driver = SyncDriver(url, self.model.scripts.values(), observer=observer)

    def enqueue(
        self,
        name: str,
        payload: object,
        *,
        id: str | None = None,
        delay_ms: int = 0,
        priority: int = 5,
        lifo: bool = False,
        attempts: int = 3,
        backoff_ms: int = 1000,
        timeout_ms: int = 0,
        headers: Mapping[str, str] | None = None,
        intended_ns: int | None = None,
    ) -> Enqueued:
        """Put one job into the queue; it is there once, however often the network makes the engine send it (rule 3).

        `payload` is any JSON value of at most `payload_bytes_max` bytes. `priority` 1 to 10, 10 first. `attempts` counts runs,
        the first one included; `backoff_ms` is the wait between them. `timeout_ms` travels with the job; no worker enforces it
        yet. `intended_ns` (monotonic) is only told to the observer.

        Returns Enqueued: `created`, or `duplicate` when the id was already there. Raises Malformed before any I/O,
        ServerUnavailable when nothing was applied, OutcomeUnknown when that cannot be said.
        """
        job = uuid.uuid4().hex if id is None else validate.job_id(id)
        job_name = validate.job_name(name)
        options = validate.options(
            priority=priority,
            lifo=lifo,
            delay_ms=delay_ms,
            attempts=attempts,
            backoff_ms=backoff_ms,
            timeout_ms=timeout_ms,
            headers=headers,
        )
        data = validate.payload_bytes(payload, self.payload_bytes_max)
        intended_ns = validate.intended_ns(intended_ns)
        nonce = os.urandom(8)
        # Refused with no copy unanswered: the estimate of the server's time was off. It has been learned anew, so once more.
        for last in (False, True):
            not_after_ms = self.driver.server_now_ms() + self.driver.deadline_ms
            operation = Enqueue(job, job_name, data, nonce, not_after_ms, options, CLASS, LANE)
            sent = self.driver.send(self.model.call(operation), intended_ns)
            enqueued = sent.reply
            if not isinstance(enqueued, Enqueued):
                raise ScriptFault(f"Enqueue: a reply of type {type(enqueued).__name__}")
            if enqueued.result == "refused" and not sent.definite:
                raise OutcomeUnknown(f"enqueue of {job} was refused as late after an unanswered send")
            if enqueued.result != "refused" or last:
                break
        return enqueued

    def counts(self) -> Counts:
        """Jobs in each state."""
        return self.driver.run(self.model.call(Count()))

    def snapshot(self) -> Snapshot:
        """The ids of every state, in pages of 1,000; one page is one instant, several are not."""
        states: dict[str, list[tuple[str, int]]] = {}
        srv_us = 0
        for page in range(_PAGES_MAX):
            part: Snapshot = self.driver.run(self.model.call(Listing(page * _PAGE, _PAGE)))
            srv_us = srv_us or part.srv_us
            for state, entries in part.states.items():
                states.setdefault(state, []).extend(entries)
            if all(len(entries) < _PAGE for entries in part.states.values()):
                return Snapshot(srv_us, states)
        raise ScriptFault(f"snapshot: more than {_PAGES_MAX * _PAGE} jobs in one state")

    def use_test_clock(self, now_ms: int) -> None:
        """Give the scripts this time instead of the server's (DESIGN 3.4). Only on a queue that has never held a job, or one
        that this was called on before; anything else is Malformed. The time lies in 2100 or later: keys expire by the
        server's own clock, so an expiry in its past would delete what the script has just written."""
        now = validate.integer("now_ms", now_ms, TEST_CLOCK_LEAST_MS, 2**52)
        if self.model.now_ms is None:
            made: bool = self.driver.run(self.model.call(MakeTestQueue()))
            if not made:
                raise Malformed("queue", self.name, "a queue that has never held a job, to take its time from a test")
        self.model.now_ms = now
        self.driver.clock.learn(now * 1000, time.monotonic_ns())

    def close(self) -> None:
        """Close the idle connections."""
        self.driver.close()
