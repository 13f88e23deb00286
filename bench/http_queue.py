"""The queue of a producer that reaches no server but apps of the HTTP face: the calls of `engine.Queue` that the load makes.

The client of `clients/python` makes one attempt in each call, so that every send is in the history. What is not answered is sent
again from here, when the engine's own driver would do so, to the next app in turn and under the same idempotency key.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

import httpx

import engine
from engine.observer import Outcome
from engine.ops.base import Call
from engine.ops.jobs import Enqueue, Enqueued
from engine.queue.producing import draft
from engine.redis.endpoint import DEADLINE_MS
from engine.redis.exchange import Delivery, GiveUp, NoReply, Trouble
from ironclaim_client import errors
from ironclaim_client.jobs import Jobs
from ironclaim_client.replies import member
from ironclaim_client.retrying import Retries
from ironclaim_client.synchronous.transport import Transport
from record.history import text
from record.recorder import Recorder

#: An attempt waits so long for its answer, which is as long as the engine waits for a reply.
ATTEMPT_MS = 2_000

PAYLOAD_BYTES_MAX = 1 << 20

CONNECTIONS_MAX = 256

# It writes a line for each request where others log, as Locust does.
logging.getLogger("httpx").setLevel(logging.WARNING)

#: What an attempt without an answer means; every other error is an answer.
TROUBLES = {errors.ServerUnavailable: Trouble.NOT_SENT, errors.OutcomeUnknown: Trouble.UNANSWERED}


class HttpQueue:
    """A queue by its name, and the urls of the apps that serve it. Connects on first use; raises InvalidArgument for another url.

    `recorder` writes the history of the sends; `connections_max`: requests at once for each app, 0 = 256.
    """

    def __init__(self, name: str, urls: Sequence[str], recorder: Recorder | None, connections_max: int) -> None:
        self._calls = Jobs(name)
        self._recorder = recorder
        # Requests wait here for their turn: the pool of httpx looks at all that wait whenever one of them moves.
        self._free = threading.BoundedSemaphore((connections_max or CONNECTIONS_MAX) * len(urls))
        once = Retries(deadline_ms=0, attempt_ms=ATTEMPT_MS)
        self._clients = [httpx.Client(transport=Noticing(url, self._connected)) for url in urls]
        self._apps = [Transport(url, None, once, client) for url, client in zip(urls, self._clients, strict=True)]
        self._turns = itertools.cycle(self._apps)

    def counts(self) -> None:
        """Connect to each app, by a question whose answer does not matter."""
        for app in self._apps:
            with suppress(errors.ClientError):
                app.send(self._calls.job("none"))

    def enqueue(self, name: str, payload: object, *, id: str, intended_ns: int, **options: Any) -> Enqueued:
        """Put a job into the queue, its id being the idempotency key. Raises ServerUnavailable, OutcomeUnknown and Refused of the
        client, and engine.OutcomeUnknown where an earlier send may still do what the last one did not."""
        job = replace(draft(name, payload, PAYLOAD_BYTES_MAX, id, options), nonce=b"")
        request = self._calls.enqueue(name, payload, None, id, _as_json(options))
        call: Call[Any] = Call(None, (), (), lambda raw: raw, job)
        delivery = Delivery(time.monotonic_ns(), random.random, DEADLINE_MS)
        ticket = self._recorder.invoked(call, delivery.started_ns, intended_ns) if self._recorder else None
        reply, failure, sends, sent_ns = None, None, 0, delivery.started_ns
        while reply is None:
            sends += 1
            try:
                with self._turn(delivery):
                    sent_ns = time.monotonic_ns()
                    reply = _reply(next(self._turns).send(request).body, job, delivery.definite)
            except errors.ClientError as error:
                trouble = TROUBLES.get(type(error), Trouble.FAULT)
                step = delivery.after(trouble, str(error), time.monotonic_ns())
                if isinstance(step, GiveUp):
                    failure = engine.OutcomeUnknown(str(error)) if step.outcome is NoReply.UNKNOWN else error
                    break
                time.sleep(step.after_ms / 1_000)
        if self._recorder:
            applied = None if isinstance(failure, engine.OutcomeUnknown) else failure is None
            errors_seen, done_ns = tuple(delivery.errors), time.monotonic_ns()
            times_ns = delivery.started_ns, sent_ns, done_ns
            said = "" if failure is None else str(failure)
            self._recorder.completed(
                call, ticket, Outcome(reply, said, delivery.definite, applied, sends, errors_seen, *times_ns)
            )
        if reply is None:
            raise failure or engine.OutcomeUnknown()
        return reply

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()

    @contextmanager
    def _turn(self, delivery: Delivery) -> Generator[None]:
        """The time of one send, which begins within the deadline: the server knows the id of a job for 20 s after its end, and a
        repeat that came later would be another job. Raises ServerUnavailable."""
        left_s = delivery.deadline_ms / 1_000 - (time.monotonic_ns() - delivery.started_ns) / 1e9
        if left_s <= 0 or not self._free.acquire(timeout=left_s):
            raise errors.ServerUnavailable("no request has ended in time")
        try:
            yield
        finally:
            self._free.release()

    def _connected(self, url: str) -> None:
        """An app has answered over a new connection. Of which era its server is, nobody knows here."""
        if self._recorder:
            self._recorder.file.append([f'"kind":"connection","server_run_id":{text(url)}'])


class Noticing(httpx.HTTPTransport):
    """Notices when the first answer comes over a new connection. A proxy takes connections also where it can lead nowhere."""

    def __init__(self, url: str, connected: Callable[[str], None]) -> None:
        super().__init__(limits=httpx.Limits(max_connections=None))
        self._url, self._connected = url, connected

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        seen: list[str] = []
        request.extensions["trace"] = lambda event, info: seen.append(event)
        response = super().handle_request(request)
        if "connection.connect_tcp.complete" in seen:
            self._connected(self._url)
        return response


def _as_json(options: dict[str, Any]) -> dict[str, Any]:
    """Options of jobs as JSON has them."""
    return {name: asdict(value) if isinstance(value, engine.Target) else value for name, value in options.items()}


def _reply(body: Any, job: Enqueue, definite: bool) -> Enqueued:
    """What an app has answered, as the engine says it. `definite`: no earlier send is without an answer.

    Raises UnexpectedReply where another job has kept this one out, but an earlier send may still make it.
    """
    id, created, srv_us = member(body, "id", str), member(body, "created", bool), 1_000 * member(body, "srv_ms", int)
    if not created and id != job.job and not definite:
        raise errors.UnexpectedReply(f"the job {id} is there instead, and an earlier send has no answer")
    # One that was there already was made by an earlier send of it, or by whoever else took its id.
    there = "duplicate" if definite or id != job.job else "repeated"
    return Enqueued(srv_us, job.job, "created" if created else there, holder=id)
