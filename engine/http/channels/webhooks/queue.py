"""Deliveries as jobs: one for each message and webhook, in the queue that the settings name.

A publisher's call is answered when its message and these jobs are there; when it repeats the call, both are duplicates. A
worker in this process makes the attempts. One that fails comes again after the webhook's own wait; one that is given up is a
dead job, where it can be looked at and sent again as any other.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading
from typing import Any

from engine.channel.contents import CONTENT_BYTES_MAX
from engine.channel.rules import ttl_s
from engine.errors import EngineError, logger, without_query
from engine.handlers import Handlers
from engine.http.channels.observing import Telemetry
from engine.http.channels.policies import ChannelAccess, Policies, Target
from engine.http.channels.settings import ChannelSettings, Report
from engine.http.channels.webhooks.delivery import Delivery, DeliveryFailed
from engine.job import Job
from engine.outcomes import Bury, RetryLater
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.producing import NewJob
from engine.worker.worker import Worker

log = logger("ironclaim.http")

NAME = "webhook"
#: Envelope and ids beside the content.
_BODY_BYTES_MAX = CONTENT_BYTES_MAX + 1_024
_URL_HEADER = "webhook-url"
#: Between two starts of a worker that found no server.
_RESTART_S = 2.0
#: A stop waits so long for deliveries that are on their way; any other process makes them again.
_GRACE_MS = 10_000


class WebhookQueue:
    """Enqueues deliveries, and makes them between `start` and `stop`."""

    def __init__(
        self, settings: ChannelSettings, url: str, policies: Policies, delivery: Delivery, telemetry: Telemetry, report: Report
    ) -> None:
        self._policies = policies
        self._delivery = delivery
        self._telemetry = telemetry
        self._report = report
        self._concurrency = settings.webhook_concurrency
        self._expire_ms = max(policy.expire_ms for policy in settings.channels)
        self._handlers = Handlers()
        self._handlers(NAME)(self._deliver)
        self._queue = AsyncQueue(settings.webhook_queue, url=url, payload_bytes_max=_BODY_BYTES_MAX)
        telemetry.instrument(self._queue, self._handlers)
        self._stopping = threading.Event()
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None

    async def put(self, channel: ChannelAccess, message: str, content: bytes) -> None:
        """Enqueue the deliveries of a message; those that are there already stay as they are. Raises as
        `AsyncQueue.enqueue_many`."""
        if channel.targets:
            body = _body(channel.name, message, content)
            await self._queue.enqueue_many([self._job(channel.name, message, target, body) for target in channel.targets])

    def start(self) -> None:
        """Begin to deliver, in a thread."""
        self._thread = threading.Thread(target=self._work, name="ironclaim-webhooks")
        self._thread.start()

    def stop(self) -> None:
        """End: what is being delivered ends first, within the worker's grace. Blocks."""
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()
        if self._thread is not None:
            self._thread.join()

    async def close(self) -> None:
        """Close the idle connections."""
        await self._queue.close()

    def _job(self, channel: str, message: str, target: Target, body: bytes) -> NewJob:
        id = _id(channel, message, target)
        return NewJob(
            NAME,
            body,
            id=id,
            attempts=target.webhook.retry.count + 1,
            # A duplicate of a message is no second delivery for as long as it is a duplicate.
            dedup=id,
            dedup_ms=ttl_s(self._expire_ms) * 1_000,
            headers={_URL_HEADER: without_query(target.url)},
            key=channel,
            result_ttl_ms=0,
        )

    async def _deliver(self, job: Job) -> None:
        # Who may enqueue jobs over HTTP, which brings no bytes, does not speak for a channel by that.
        if not isinstance(job.payload, bytes):
            raise Bury("no delivery of a channel: those are bytes")
        body = job.payload
        told: dict[str, Any] = json.loads(body)
        found = self._policies.of(told["channelID"])
        targets = () if found is None else found.targets
        target = next((one for one in targets if _id(told["channelID"], told["messageID"], one) == job.id), None)
        if target is None:
            raise Bury(f"no webhook of channel {told['channelID']} has this url any more: {job.headers.get(_URL_HEADER)}")
        try:
            await self._delivery.attempt(target, job.id, body)
        except DeliveryFailed as error:
            retry = target.webhook.retry
            if (error.final and not retry.force) or job.attempt > retry.count:
                self._telemetry.count("given_up")
                self._report(
                    error, {"channel": told["channelID"], "message": told["messageID"], "url": without_query(target.url)}
                )
                raise Bury(str(error)) from error
            raise RetryLater(retry.wait_ms(job.attempt, random.random()), str(error)) from error

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._worker = worker = Worker(self._queue, self._handlers, concurrency=self._concurrency, grace_ms=_GRACE_MS)
            if self._stopping.is_set():
                return
            try:
                worker.run()
            except EngineError as error:
                log.warning("webhooks wait for the server: %s", error)
                self._stopping.wait(_RESTART_S)


def _id(channel: str, message: str, target: Target) -> str:
    """The id of a delivery: whoever looks at the job sees nothing of the url, which may hold a secret."""
    told = "\0".join((channel, message, target.webhook.method, target.url))
    return f"{message}.{hashlib.sha256(told.encode()).hexdigest()[:32]}"


def _body(channel: str, message: str, content: bytes) -> bytes:
    """What DSPS sends; ids need no escapes."""
    shape = b'{"type":"dsps.channel.outgoing-webhook","channelID":"%b","messageID":"%b","content":%b}'
    return shape % (channel.encode(), message.encode(), content)
