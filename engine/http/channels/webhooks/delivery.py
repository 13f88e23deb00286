"""One attempt to deliver a message to a webhook: the request, its redirects, and what its answer means."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import cache
from typing import Any

import httpx

from engine.channel.contents import CONTENT_BYTES_MAX
from engine.errors import EngineError, Malformed, counted, logger, redacted, without_query
from engine.handlers import Handlers
from engine.http.channels import networks
from engine.http.channels.networks import Address, Network, address, among, is_public
from engine.http.channels.observing import Telemetry
from engine.http.channels.settings import ChannelAccess, ChannelSettings, Policies, Report, Target
from engine.http.channels.webhooks.settings import secret_of, signed, target_of
from engine.job import Job
from engine.models.dsps import ttl_s
from engine.outcomes import Bury, RetryLater
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.producing import NewJob
from engine.redis.async_driver import Patience
from engine.version import __version__
from engine.worker.worker import Worker

# -- Keeps deliveries away from addresses that are not of the internet (SSRF). A name is resolved once,
# every address that it has is checked, and the delivery connects to a checked address. A name that leads
# elsewhere a moment later (DNS rebinding) gains nothing.

#: Name -> its addresses.
Resolve = Callable[[str], Awaitable[list[str]]]


class AddressRefused(Exception):
    """A url leads to an address that deliveries must not reach."""


async def by_system(host: str) -> list[str]:
    """The addresses of a name, by the system's resolver. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def checked_address(
    url: httpx.URL, allowed: Iterable[Network], resolve: Resolve = by_system
) -> Address:
    """An address of the url's host that a delivery may connect to. Raises AddressRefused where one of its
    addresses is none of the internet and in no allowed network, and OSError for a name that has none."""
    networks = tuple(allowed)
    found: list[Address] = []
    for text in await resolve(url.host):
        one = address(text)
        if one is None or not (is_public(one) or among(one, networks)):
            raise AddressRefused(
                f"{url.host} has the address {text}, which is not of the internet and in no allowed network"
            )
        found.append(one)
    if not found:
        raise OSError(f"{url.host} has no address")
    return found[0]


#: Answers after which DSPS gives up at once: 400 to 418 but for 400, 404, 408 and 409, and these.
_GIVE_UP = {*range(400, 419), 426, 431, 451, 501} - {400, 404, 408, 409}
#: Redirects that keep method and body. Behind any other one the message would not arrive.
_KEEPING = {307, 308}


class DeliveryFailed(Exception):
    """An attempt failed. `final`: trying again is of no use."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class Delivery:
    """Makes attempts. Each has a connection of its own: one that is shared by address could be one whose
    certificate was checked for another name. `resolve`: name and port -> addresses; `now_s`: the time since
    1970."""

    def __init__(
        self, telemetry: Telemetry, resolve: Resolve = by_system, now_s: Callable[[], float] = time.time
    ) -> None:
        self._telemetry = telemetry
        self._resolve = resolve
        self._now_s = now_s

    async def attempt(self, target: Target, delivery: str, body: bytes) -> None:
        """Deliver a body. `delivery`: its id, the same for each attempt. Raises DeliveryFailed."""
        webhook = target.webhook
        headers = {
            "User-Agent": f"ironclaim/{__version__}",
            **target.headers,
            "Content-Type": "application/json",
        }
        if webhook.secret is not None:
            headers |= signed(secret_of(webhook.secret), delivery, int(self._now_s()), body)
        try:
            # The one time of all of it. Connections are closed beyond it, because the answer is there.
            async with AsyncExitStack() as used, Patience(webhook.timeout_ms / 1000):
                await self._follow(target, headers, body, used)
        except TimeoutError as error:
            raise DeliveryFailed(
                f"{without_query(target.url)} has not answered within {webhook.timeout_ms} ms"
            ) from error
        except (AddressRefused, Malformed) as error:
            raise DeliveryFailed(redacted(str(error)), final=True) from error
        except (httpx.HTTPError, OSError) as error:
            raise DeliveryFailed(
                f"{without_query(target.url)}: {redacted(str(error)) or type(error).__name__}"
            ) from error

    async def _follow(
        self, target: Target, headers: dict[str, str], body: bytes, used: AsyncExitStack
    ) -> None:
        """Send, and follow redirects; each one is guarded as the first url is."""
        url = target_of(target.url)
        for _ in range(target.webhook.redirects_max + 1):
            answer = await self._send(target, url, headers, body, used)
            if answer.is_success:
                return
            if answer.status_code not in _KEEPING:
                final = answer.status_code in _GIVE_UP
                raise DeliveryFailed(
                    (
                        f"{without_query(str(url))} answered {answer.status_code} {answer.reason_phrase}"
                    ).rstrip(),
                    final=final,
                )
            there = target_of(str(url.join(answer.headers.get("location", ""))))
            if url.scheme == "https" != there.scheme:
                raise DeliveryFailed(
                    f"{without_query(str(url))} leads from https to {there.scheme}", final=True
                )
            if (there.scheme, there.host, there.port) != (url.scheme, url.host, url.port):
                # What a service configured for one host is not for another one: a secret of its own, for
                # instance.
                headers = {name: value for name, value in headers.items() if name not in target.headers}
            url = there
        raise DeliveryFailed(
            f"{without_query(target.url)} leads through more than "
            f"{counted(target.webhook.redirects_max, 'redirect')}"
        )

    async def _send(
        self, target: Target, url: httpx.URL, headers: dict[str, str], body: bytes, used: AsyncExitStack
    ) -> httpx.Response:
        """One request to a checked address; of the answer the status and the headers alone are read. Its
        connection is closed with those that are used."""
        allowed = networks.networks("webhook.allow_networks", target.webhook.allow_networks)
        host = url.raw_host.decode("ascii")
        found = await checked_address(url, allowed, self._resolve)
        sent = {**headers, "Host": url.netloc.decode("ascii")}
        with self._telemetry.delivery(target.webhook.method, without_query(str(url)), sent) as exchange:
            # No proxy of the environment, which would resolve the name again; and no client, which logs each
            # url as it is.
            transport = httpx.AsyncHTTPTransport(verify=_tls(), trust_env=False)
            await used.enter_async_context(transport)
            request = httpx.Request(
                target.webhook.method,
                url.copy_with(host=str(found)),
                headers={"Accept": "*/*", **sent},
                content=body,
                extensions={"sni_hostname": host},
            )
            answer = await transport.handle_async_request(request)
            exchange.answered(answer.status_code)
        return answer


@cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates of the system takes as long as some deliveries."""
    return httpx.create_ssl_context()


# -- Deliveries as jobs: one for each message and webhook, in the queue that the settings name.
#
# A publisher's call is answered when its message and these jobs are there; when it repeats the call, both are
# duplicates. A worker in this process makes the attempts. One that fails comes again after the webhook's own
# wait. One that is given up is a dead job, where it can be looked at and sent again as any other.

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
        self,
        settings: ChannelSettings,
        url: str,
        policies: Policies,
        delivery: Delivery,
        telemetry: Telemetry,
        report: Report,
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
            await self._queue.enqueue_many(
                [self._job(channel.name, message, target, body) for target in channel.targets]
            )

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
        target = next(
            (one for one in targets if _id(told["channelID"], told["messageID"], one) == job.id), None
        )
        if target is None:
            raise Bury(
                f"no webhook of channel {told['channelID']} has this url any more: "
                f"{job.headers.get(_URL_HEADER)}"
            )
        try:
            await self._delivery.attempt(target, job.id, body)
        except DeliveryFailed as error:
            retry = target.webhook.retry
            if (error.final and not retry.force) or job.attempt > retry.count:
                self._telemetry.count("given_up")
                self._report(
                    error,
                    {
                        "channel": told["channelID"],
                        "message": told["messageID"],
                        "url": without_query(target.url),
                    },
                )
                raise Bury(str(error)) from error
            raise RetryLater(retry.wait_ms(job.attempt, random.random()), str(error)) from error

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._worker = worker = Worker(
                self._queue, self._handlers, concurrency=self._concurrency, grace_ms=_GRACE_MS
            )
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
