"""One channel: publishing, and subscriptions that go on when the network does not."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from types import TracebackType

from ironclaim_client import channels, checks
from ironclaim_client.asynchronous.transport import AsyncTransport
from ironclaim_client.channels import Channels
from ironclaim_client.errors import NotFound, OutcomeUnknown, Refused, ServerUnavailable, UnexpectedReply
from ironclaim_client.retrying import Retries
from ironclaim_client.values import NOTHING, Delivery, Message


class AsyncChannel:
    """A channel of the server. Every method raises InvalidArgument before anything is sent, Refused with the
    server's reason, ServerUnavailable when nothing was done, and OutcomeUnknown when that cannot be said.
    Cancelling a call closes its connection.
    """

    def __init__(self, transport: AsyncTransport, name: str) -> None:
        self.name = name
        self._calls = Channels(name)
        self._transport = transport

    async def publish(self, content: object, *, id: str | None = None) -> str:
        """Publish a message, which is any JSON value; its id. It is there once, however often it is sent:
        with an `id` of your own also after OutcomeUnknown."""
        sent = channels.new_id("msg") if id is None else id
        await self._transport.send(self._calls.publish(sent, content))
        return sent

    async def subscribe(self, subscriber: str) -> None:
        """Create a subscriber, whose first message is the next one that is published. One that is there stays
        as it is."""
        await self._transport.send(self._calls.subscribe(subscriber))

    async def unsubscribe(self, subscriber: str) -> None:
        """Delete a subscriber. One that is not there is deleted."""
        with suppress(NotFound):
            await self._transport.send(self._calls.unsubscribe(subscriber))

    async def poll(
        self, subscriber: str, *, max_messages: int = 64, wait_ms: int | timedelta = 0
    ) -> Delivery:
        """The next messages of a subscriber; with `wait_ms` (at most 30,000) as soon as there are any. Raises
        NotFound."""
        most = checks.whole("max_messages", max_messages, 1, channels.MESSAGES_MAX)
        wait = checks.duration_ms("wait_ms", wait_ms, channels.WAIT_MS_MAX)
        return channels.delivery(await self._transport.send(self._calls.poll(subscriber, most, wait)))

    async def acknowledge(self, subscriber: str, receipt: str) -> None:
        """Acknowledge the messages of a delivery by its receipt, and all before them: they do not come
        again."""
        await self._transport.send(self._calls.acknowledge(subscriber, receipt))

    def subscription(
        self, subscriber: str | None = None, *, max_messages: int = 64, wait_ms: int | timedelta | None = None
    ) -> AsyncSubscription:
        """The messages of a subscriber as an iterator. Without a name it is one of its own, which ends with
        the block; with a name it stays, and the next one of this name goes on where this one has ended.
        `wait_ms`, at most 30,000, is by default the `poll_ms` of the retries."""
        return AsyncSubscription(self, self._transport.retries, subscriber, max_messages, wait_ms)


class AsyncSubscription:
    """The messages of one subscriber: an iterator, in a block that makes the subscriber and at the end
    closes.

    The messages of a poll are acknowledged together, when the next one after them is asked for: what was not
    worked through by then comes again, to the next subscription of this name. A network that fails is waited
    out, longer each time, by a random share. Raises Refused when the subscriber is gone or the token is
    refused.
    """

    def __init__(
        self,
        channel: AsyncChannel,
        retries: Retries,
        subscriber: str | None,
        max_messages: int,
        wait_ms: int | timedelta | None,
    ) -> None:
        self.subscriber = channels.new_id("s") if subscriber is None else subscriber
        self._own = subscriber is None
        checks.segment("subscriber", self.subscriber)
        self._channel, self._retries = channel, retries
        self._max_messages = checks.whole("max_messages", max_messages, 1, channels.MESSAGES_MAX)
        standard_ms = min(retries.poll_ms, channels.WAIT_MS_MAX)
        self._wait_ms = (
            standard_ms if wait_ms is None else checks.duration_ms("wait_ms", wait_ms, channels.WAIT_MS_MAX)
        )
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[Message]:
        """The messages, for as long as there are any to come."""
        failures = 0
        receipt = ""
        while not self._closed:
            began_s = time.monotonic()
            try:
                # Until this has succeeded nothing is polled: the same messages would come again.
                if receipt:
                    await self._channel.acknowledge(self.subscriber, receipt)
                    receipt = ""
                delivery = await self._channel.poll(
                    self.subscriber, max_messages=self._max_messages, wait_ms=self._wait_ms
                )
            except (ServerUnavailable, OutcomeUnknown, UnexpectedReply, Refused) as error:
                if isinstance(error, Refused) and channels.is_over(error):
                    raise
                delivery = NOTHING
            # A server that does not wait, because it closes for one, is not asked again at once.
            early = (time.monotonic() - began_s) * 1_000 < self._wait_ms / 2 or not self._wait_ms
            failures = failures + 1 if early and not delivery.receipt else 0
            if failures:
                await asyncio.sleep(self._retries.pause_ms(failures, random.random()) / 1_000)
            for message in delivery.messages:
                yield message
            receipt = delivery.receipt or receipt

    async def close(self) -> None:
        """Stop; a subscriber of its own is deleted."""
        if not self._closed:
            self._closed = True
            if self._own:
                # One that cannot be deleted now expires by itself.
                with suppress(ServerUnavailable, OutcomeUnknown):
                    await self._channel.unsubscribe(self.subscriber)

    async def __aenter__(self) -> AsyncSubscription:
        await self._channel.subscribe(self.subscriber)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
