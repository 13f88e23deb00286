"""The state of the channels in a MemoryStorage, and what each operation does to it: the rules of `lua/dsps`, in Python. Without a
lock and without a clock: everything happens at the instant that the caller names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

from engine.channel import clock as clocks
from engine.channel.live_index import LiveIndex
from engine.channel.ttl_map import TtlMap
from engine.ops.base import Operation
from engine.ops.channels import (
    Acknowledge,
    AcknowledgeReply,
    AskOld,
    Fetch,
    FetchReply,
    Missing,
    NewMessage,
    OldReply,
    Publish,
    PublishedMessage,
    PublishReply,
    Subscribe,
    SubscribeReply,
    Unsubscribe,
    UnsubscribeReply,
)

#: A fetch ends before it carries more than this, but never before its first message.
FETCH_BYTES_MAX = 1_048_576
#: How much longer than its call the answer of a subscribe or unsubscribe is remembered.
_ANSWER_MARGIN_MS = 20_000
#: When a message ends that is not there (any more).
_NONE_MS = -2


class _Key(NamedTuple):
    """Named as on a server: `clock`, `r` a cursor, `m` a body, `mid` a message id, `op` an answer."""

    channel: str
    kind: Literal["clock", "r", "m", "mid", "op"]
    name: str | int = ""


class _Cursor(NamedTuple):
    """Where a subscriber is, and the era that it knows of in that life of the channel."""

    clock: int
    era: int
    life: int


class _Clock(NamedTuple):
    """A channel's clock and how often it went back; `turned`: it is found now that it did. `life`: a channel that ends and comes
    again has another one, and knows nothing of its eras before."""

    clock: int
    era: int
    life: int
    turned: bool = False

    def known_to(self, cursor: _Cursor) -> bool:
        """Whether the subscriber knows of this era."""
        return (cursor.era if cursor.life == self.life else 0) == self.era


class MemoryState:
    """All channels of one storage, and what lives in them."""

    def __init__(self) -> None:
        self._values: TtlMap[_Key, Any] = TtlMap()
        self._live: dict[str, LiveIndex] = {}
        self._channel_lives = 0
        self._apply: Mapping[type, Callable[[str, Any, int], object]] = {
            Publish: self._publish,
            Subscribe: self._subscribe,
            Unsubscribe: self._unsubscribe,
            Fetch: self._fetch,
            Acknowledge: self._acknowledge,
            AskOld: self._ask_old,
        }

    def __len__(self) -> int:
        """How many values are in memory, alive or not."""
        return len(self._values)

    def apply(self, channel: str, operation: Operation, now_us: int) -> object:
        """Carry out an operation."""
        for key in self._values.sweep(now_us):
            live = self._live.get(key.channel) if key.kind == "m" else None
            if live is not None and not live.drop(lambda at, channel=key.channel: self._values.has(_Key(channel, "m", at))):
                del self._live[key.channel]
        return self._apply[type(operation)](channel, operation, now_us)

    # The operations

    def _publish(self, channel: str, operation: Publish, now_us: int) -> PublishReply:
        reckoned = self._reckon(channel, operation.seen, now_us)
        late = now_us // 1000 > operation.not_after_ms
        clock, end_us = reckoned or self._begun(), _end_us(now_us, operation.ttl_s)
        items: list[PublishedMessage] = []
        for message in operation.messages:
            known = cast("int | None", self._values.get(_Key(channel, "mid", message.id), now_us))
            if known is not None:
                items.append(PublishedMessage("duplicate", known))
            elif late:
                items.append(PublishedMessage("refused", None))
            else:
                clock = clock._replace(clock=clocks.ahead(clock.clock, 1))
                self._add(channel, message, clock.clock, end_us)
                items.append(PublishedMessage("created", clock.clock))
        if all(item.result == "refused" for item in items):
            return PublishReply(now_us, *self._as_is(channel, now_us), False, tuple(items))
        self._keep(channel, clock, end_us)
        return PublishReply(now_us, clock.clock, clock.era, clock.turned, tuple(items))

    def _subscribe(self, channel: str, operation: Subscribe, now_us: int) -> SubscribeReply:
        key, answered = _Key(channel, "r", operation.subscriber), _Key(channel, "op", operation.nonce)
        cursor = cast("_Cursor | None", self._values.get(key, now_us))
        earlier = cast("Any", self._values.get(answered, now_us))
        if earlier is not None or now_us // 1000 > operation.not_after_ms:
            clock, era = self._as_is(channel, now_us)
            return SubscribeReply(now_us, earlier or "refused", clock, cursor and cursor.clock, era, False)
        clock = self._reckon(channel, operation.seen, now_us) or self._begun()
        end_us = _end_us(now_us, operation.ttl_s)
        self._keep(channel, clock, end_us)
        result: Literal["created", "exists"] = "exists"
        if cursor is None:
            result, cursor = "created", _Cursor(clock.clock, clock.era, clock.life)
            self._values.put(key, cursor, end_us)
        self._values.put(answered, result, (operation.not_after_ms + _ANSWER_MARGIN_MS) * 1000)
        return SubscribeReply(now_us, result, clock.clock, cursor.clock, clock.era, clock.turned)

    def _unsubscribe(self, channel: str, operation: Unsubscribe, now_us: int) -> UnsubscribeReply:
        key, answered = _Key(channel, "r", operation.subscriber), _Key(channel, "op", operation.nonce)
        earlier = cast("Any", self._values.get(answered, now_us))
        if earlier is not None or now_us // 1000 > operation.not_after_ms:
            return UnsubscribeReply(now_us, earlier or "refused")
        result = "missing" if self._values.get(key, now_us) is None else "deleted"
        self._values.delete(key)
        self._values.put(answered, result, (operation.not_after_ms + _ANSWER_MARGIN_MS) * 1000)
        return UnsubscribeReply(now_us, result)

    def _fetch(self, channel: str, operation: Fetch, now_us: int) -> FetchReply:
        found = self._find(channel, operation.subscriber, operation.seen, now_us)
        if isinstance(found, str):
            return FetchReply(now_us, found)
        clock, cursor = found
        # With nothing to acknowledge, the caller can only be informed once that the clock went back.
        told = cursor._replace(era=clock.era, life=clock.life) if cursor.clock == clock.clock else cursor
        end_us = _end_us(now_us, operation.ttl_s)
        self._keep(channel, clock, end_us)
        self._lengthen(_Key(channel, "r", operation.subscriber), told, end_us)
        items: list[tuple[int, bytes]] = []
        size, upto, more = 0, clock.clock, False
        for at, body in self._unread(channel, cursor.clock, clock.clock, now_us):
            size += len(body)
            if len(items) == operation.most or (items and size > FETCH_BYTES_MAX):
                upto, more = items[-1][0] if items else cursor.clock, True
                break
            items.append((at, body))
        return FetchReply(
            now_us,
            "ok",
            clock.clock,
            cursor.clock,
            clock.era,
            clock.turned,
            era_changed=not clock.known_to(cursor),
            upto=upto,
            more=more,
            items=tuple(items),
            proof_ms=self._ends_ms(channel, items[-1][0] if items else upto, now_us),
        )

    def _acknowledge(self, channel: str, operation: Acknowledge, now_us: int) -> AcknowledgeReply:
        found = self._find(channel, operation.subscriber, operation.seen, now_us)
        if isinstance(found, str):
            return AcknowledgeReply(now_us, found)
        clock, cursor = found
        # Without an era a receipt is held against what the channel itself knows: its caller may remember one that has ended.
        own = found if operation.era is not None else self._find(channel, operation.subscriber, None, now_us)
        beyond = isinstance(own, str) or clocks.after(operation.clock, own[0].clock) or operation.era not in (None, clock.era)
        ahead = clocks.after(operation.clock, cursor.clock)
        unproven = False
        if operation.proof is not None and ahead and not beyond:
            at, ends_ms = operation.proof
            found_ms = self._ends_ms(channel, at, now_us)
            unproven = found_ms != ends_ms and (found_ms != _NONE_MS or ends_ms > now_us // 1000)
            beyond = unproven and found_ms != _NONE_MS
        if beyond or unproven or not ahead:
            return AcknowledgeReply(now_us, "stale", clock.clock, cursor.clock, clock.era, beyond=beyond)
        end_us = _end_us(now_us, operation.ttl_s)
        self._keep(channel, clock, end_us)
        self._lengthen(_Key(channel, "r", operation.subscriber), _Cursor(operation.clock, clock.era, clock.life), end_us)
        return AcknowledgeReply(now_us, "OK", clock.clock, operation.clock, clock.era, clock.turned)

    def _ask_old(self, channel: str, operation: AskOld, now_us: int) -> OldReply:
        found = self._find(channel, operation.subscriber, None, now_us)
        if isinstance(found, str):
            return OldReply(now_us, found)
        clock, cursor = found
        known = [cast("int | None", self._values.get(_Key(channel, "mid", id), now_us)) for id in operation.messages]
        old = tuple(at is not None and not clocks.after(at, cursor.clock) for at in known)
        return OldReply(now_us, "ok", clock.clock, cursor.clock, old)

    # What they share

    def _reckon(self, channel: str, seen: int | None, now_us: int) -> _Clock | None:
        """The clock of a channel, which goes on after what the caller has seen; None for a channel of which nobody knows."""
        now = cast("_Clock | None", self._values.get(_Key(channel, "clock"), now_us))
        if seen is not None and (now is None or clocks.after(seen, now.clock)):
            now = now or self._begun()
            return now._replace(clock=seen, era=now.era + 1, turned=True)
        return now

    def _begun(self) -> _Clock:
        """The state of a channel that is created."""
        self._channel_lives += 1
        return _Clock(0, 0, self._channel_lives)

    def _find(self, channel: str, subscriber: str, seen: int | None, now_us: int) -> tuple[_Clock, _Cursor] | Missing:
        clock = self._reckon(channel, seen, now_us)
        if clock is None:
            return "channel-not-found"
        cursor = cast("_Cursor | None", self._values.get(_Key(channel, "r", subscriber), now_us))
        return (clock, cursor) if cursor is not None else "subscription-not-found"

    def _as_is(self, channel: str, now_us: int) -> tuple[int | None, int]:
        """The clock and the era of a channel to which nothing was done."""
        now = cast("_Clock | None", self._values.get(_Key(channel, "clock"), now_us))
        return (now.clock, now.era) if now else (None, 0)

    def _keep(self, channel: str, clock: _Clock, end_us: int) -> None:
        self._lengthen(_Key(channel, "clock"), clock._replace(turned=False), end_us)

    def _lengthen(self, key: _Key, value: object, end_us: int) -> None:
        """Extend a life that other callers may have set longer: their messages and cursors must not outlive the clock."""
        self._values.put(key, value, max(end_us, self._values.end(key)))

    def _add(self, channel: str, message: NewMessage, at: int, end_us: int) -> None:
        self._values.put(_Key(channel, "mid", message.id), at, end_us)
        self._values.put(_Key(channel, "m", at), message.body(), end_us)
        self._live.setdefault(channel, LiveIndex()).add(at)

    def _ends_ms(self, channel: str, at: int, now_us: int) -> int:
        """When the message with this clock expires, as Redis says it."""
        key = _Key(channel, "m", at)
        return _NONE_MS if self._values.get(key, now_us) is None else self._values.end(key) // 1000

    def _unread(self, channel: str, after: int, upto: int, now_us: int) -> Iterator[tuple[int, bytes]]:
        """The living messages in (after, upto], in order."""
        for at in self._live[channel].between(after, upto) if channel in self._live else ():
            body = cast("bytes | None", self._values.get(_Key(channel, "m", at), now_us))
            if body is not None:
                yield at, body


def _end_us(now_us: int, ttl_s: int) -> int:
    return now_us + ttl_s * 1_000_000
