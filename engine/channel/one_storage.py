"""The steps of a channel with one storage: one operation for each call."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence

from engine.channel import replies
from engine.channel.replies import Page
from engine.channel.session_state import SessionState
from engine.channel.steps import Send, SendMany, Steps, sent_of
from engine.errors import EngineError, Malformed
from engine.ops.channels import Acknowledged, Fetched, NewMessage, OldReply, Published, Subscribed
from engine.redis.call import PIPELINE_CALLS
from engine.redis.exchange import Sent

#: How long a fetch that need not wait goes on looking for living messages among those that foreign publishers
#: left.
_SEARCH_MS = 2_000


class OneStorage:
    """The steps of a channel's calls on one storage, which receipts call `id`."""

    def __init__(self, channel: str, id: str, session: SessionState) -> None:
        self._channel = channel
        self._id = id
        self._session = session

    def publish(self, message: NewMessage, intended_ns: int | None) -> Steps[Published]:
        """Publish a message. Raises OutcomeUnknown, ServerUnavailable."""
        sent = sent_of((yield Send(self._id, self._session.publish((message,)), intended_ns)))
        (came,) = replies.published(self._session, sent)
        if isinstance(came, EngineError):
            raise came
        return came

    def publish_many(
        self, parts: Sequence[tuple[NewMessage, ...]], intended_ns: int | None
    ) -> Steps[list[Published]]:
        """A part goes out in one script, several in pipelines. After one that failed no further pipeline goes
        out."""
        results: list[Published | EngineError] = []
        for at in range(0, len(parts), PIPELINE_CALLS):
            flight = parts[at : at + PIPELINE_CALLS]
            asks = [self._session.publish(part) for part in flight]
            outcomes: list[Sent | EngineError] = yield SendMany(self._id, asks, intended_ns)
            for part, outcome in zip(flight, outcomes, strict=True):
                if isinstance(outcome, EngineError):
                    results += [outcome] * len(part)
                else:
                    results += replies.published(self._session, outcome)
            if any(isinstance(result, EngineError) for result in results):
                break
        return replies.concluded(results, sum(map(len, parts)))

    def subscribe(self, subscriber: str) -> Steps[Subscribed]:
        """Create a subscriber. Raises OutcomeUnknown, ServerUnavailable."""
        sent = yield Send(self._id, self._session.subscribe(subscriber, secrets.token_hex(8)))
        reply = replies.subscribed(self._session, sent_of(sent))
        return Subscribed(reply.result == "created", reply.clock or 0)

    def unsubscribe(self, subscriber: str) -> Steps[bool]:
        """Delete a subscriber; False when there was none. Raises OutcomeUnknown, ServerUnavailable."""
        sent = yield Send(self._id, self._session.unsubscribe(subscriber, secrets.token_hex(8)))
        return replies.unsubscribed(sent_of(sent))

    def fetch(self, subscriber: str, most: int, waited_ms: int = 0) -> Steps[tuple[Fetched, bool]]:
        """Poll once. Returns messages, and whether to return them at once. Raises ChannelNotFound,
        SubscriptionNotFound."""
        until_ns = time.monotonic_ns() + _SEARCH_MS * 1_000_000
        while True:
            sent = sent_of((yield Send(self._id, self._session.fetch(subscriber, most, waited_ms))))
            found = replies.page(self._session, subscriber, sent)
            if found is None:
                raise replies.missing(self._channel, subscriber, sent.reply)
            if not found.searching or found.messages or time.monotonic_ns() > until_ns:
                return self._fetched(subscriber, found), found.speaks

    def acknowledge(self, subscriber: str, receipt: str) -> Steps[Acknowledged]:
        """Acknowledge a receipt. Raises Malformed, ChannelNotFound, SubscriptionNotFound."""
        at = self._read(subscriber, replies.read_outer(receipt), receipt)
        operation = self._session.acknowledge(subscriber, at)
        sent = sent_of((yield Send(self._id, operation)))
        found = replies.acknowledged(self._session, operation, sent)
        if found is None:
            raise replies.missing(self._channel, subscriber, sent.reply)
        return found

    def are_old(self, subscriber: str, ids: tuple[str, ...]) -> Steps[dict[str, bool]]:
        """Whether each message is old for the subscriber. Raises ChannelNotFound, SubscriptionNotFound."""
        sent = sent_of((yield Send(self._id, self._session.ask_old(subscriber, ids))))
        reply = replies.reply_of(sent, OldReply)
        if reply.result != "ok":
            raise replies.missing(self._channel, subscriber, reply)
        return dict(zip(ids, reply.old, strict=True))

    def _fetched(self, subscriber: str, found: Page) -> Fetched:
        receipt = None
        if found.upto is not None:
            self._session.gave(subscriber, found.upto, found.proof)
            receipt = replies.outer({self._id: replies.inner(self._channel, subscriber, found.upto)})
        return Fetched(
            found.messages, receipt, found.more, found.lost, found.era, found.era_changed, found.corrupt
        )

    def _read(self, subscriber: str, parts: Mapping[str, str], receipt: str) -> int:
        """The clock that a receipt holds for this storage."""
        if self._id not in parts:
            raise Malformed("receipt", receipt, f"one with a part of storage {self._id}")
        return replies.read_inner(self._channel, subscriber, parts[self._id])
