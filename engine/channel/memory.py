"""MemoryStorage: channels in the memory of one process, with the operations and the replies of those on a
server.

For tests, for services of one process, and as one of several storages. Threads may share it. What has expired
leaves it as others come, so it holds what is alive and little more; nothing survives the process."""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast, overload

from engine.channel.asynchronous.storage import Listener
from engine.channel.steps import Opening
from engine.errors import EngineError
from engine.models.dsps import clock_after, clock_ahead
from engine.ops.base import DeadlineBound, Operation
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
from engine.redis.endpoint import DEADLINE_MS
from engine.redis.exchange import Sent
from engine.redis.scripts import LATE_COPY_MS, REPLY_BYTES

# -- The clocks of a channel's messages in memory, in the order of the circle: what a sorted set is on a
# server.


class LiveIndex:
    """A set of clocks in order. Clocks of expired messages may still be among them."""

    def __init__(self) -> None:
        # Each half grows at its end: a single list would be moved as a whole for each message after the wrap.
        self._below = _Run()
        self._above = _Run()

    def add(self, at: int) -> None:
        """Add the clock of a new message."""
        (self._above if at >= 0 else self._below).add(at)

    def between(self, after: int, upto: int) -> Iterator[int]:
        """Those in (after, upto] on the circle: across the wrap where `upto` is the smaller number."""
        if after < upto:
            yield from self._below.between(after, upto)
            yield from self._above.between(after, upto)
        elif after > upto:
            yield from self._below.between(after, None)
            yield from self._above.between(after, None)
            yield from self._below.between(None, upto)
            yield from self._above.between(None, upto)

    def drop(self, alive: Callable[[int], bool]) -> bool:
        """Drop those in front that are not alive any more; whether any are left."""
        below, above = self._below.drop(alive), self._above.drop(alive)
        return below or above


class _Run:
    """Ascending numbers, of which the first are dropped sooner or later."""

    def __init__(self) -> None:
        self._all: list[int] = []
        #: Those before are dropped. They are deleted by many: one by one each would cost as much as there are
        #: behind it.
        self._start = 0

    def add(self, at: int) -> None:
        """Add a number, which is mostly the largest."""
        if not self._all or at > self._all[-1]:
            self._all.append(at)
            return
        index = bisect_left(self._all, at, self._start)
        if self._all[index] != at:
            insort(self._all, at, self._start)

    def between(self, after: int | None, upto: int | None) -> Iterator[int]:
        """Those in (after, upto]; None for no bound."""
        begin = self._start if after is None else bisect_right(self._all, after, self._start)
        end = len(self._all) if upto is None else bisect_right(self._all, upto, self._start)
        for index in range(begin, end):
            yield self._all[index]

    def drop(self, alive: Callable[[int], bool]) -> bool:
        """Drop those in front that are not alive any more; whether any are left."""
        while self._start < len(self._all) and not alive(self._all[self._start]):
            self._start += 1
        if self._start == len(self._all) or (self._start > 1_000 and self._start * 2 > len(self._all)):
            del self._all[: self._start]
            self._start = 0
        return bool(self._all)


# -- A mapping whose values expire, as a server's keys do; the store of MemoryStorage. A plain data
# structure without a lock.
#
# What has ended is not found any more from that instant on, and leaves the memory a little later, when
# somebody sweeps.

K = TypeVar("K")
V = TypeVar("V")

#: Values that one sweep looks at: more than anybody adds between two.
SWEPT_MAX = 4_096


class TtlMap(Generic[K, V]):
    """Values by key, each until its end, an instant in any unit that the caller counts in."""

    def __init__(self) -> None:
        self._values: dict[K, tuple[V, int]] = {}
        #: For each key one entry: when to look at it. Its end may have moved since: later, and it is put
        #: back; earlier, and it stays for so much longer without being found.
        self._looks: list[tuple[int, int, K]] = []
        self._watched: set[K] = set()
        self._added = 0

    def __len__(self) -> int:
        """How many values are in memory, expired ones included."""
        return len(self._values)

    def get(self, key: K, now: int) -> V | None:
        """The value; None where there is none or it has expired."""
        found = self._values.get(key)
        return found[0] if found is not None and now < found[1] else None

    def end(self, key: K) -> int:
        """When the value expires or has expired; 0 for one that is not in memory."""
        found = self._values.get(key)
        return 0 if found is None else found[1]

    def has(self, key: K) -> bool:
        """Whether a value is in memory, expired or not."""
        return key in self._values

    def put(self, key: K, value: V, end: int) -> None:
        """Set a value and when it expires."""
        self._values[key] = (value, end)
        if key not in self._watched:
            self._watched.add(key)
            self._look_at(key, end)

    def delete(self, key: K) -> None:
        """Delete a value, if there is one."""
        self._values.pop(key, None)

    def sweep(self, now: int) -> list[K]:
        """Delete some of the expired values. Returns their keys."""
        gone: list[K] = []
        for _ in range(SWEPT_MAX):
            if not self._looks or now < self._looks[0][0]:
                break
            key = heapq.heappop(self._looks)[2]
            found = self._values.get(key)
            if found is not None and now < found[1]:
                self._look_at(key, found[1])
                continue
            self._watched.discard(key)
            self._values.pop(key, None)
            gone.append(key)
        return gone

    def _look_at(self, key: K, when: int) -> None:
        self._added += 1
        heapq.heappush(self._looks, (when, self._added, key))


# -- The state of the channels in a MemoryStorage, and what each operation does to it: the rules of
# `lua/dsps`, in Python. Without a lock and without a clock: everything happens at the instant that the
# caller names.

#: A fetch ends before it carries more than this, but never before its first message.
FETCH_BYTES_MAX = REPLY_BYTES
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
    """A channel's clock and how often it went back; `turned`: it is found now that it did. `life`: a channel
    that ends and comes again has another one, and knows nothing of its eras before."""

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
            if live is not None and not live.drop(
                lambda at, channel=key.channel: self._values.has(_Key(channel, "m", at))
            ):
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
                clock = clock._replace(clock=clock_ahead(clock.clock, 1))
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
        self._values.put(answered, result, (operation.not_after_ms + LATE_COPY_MS) * 1000)
        return SubscribeReply(now_us, result, clock.clock, cursor.clock, clock.era, clock.turned)

    def _unsubscribe(self, channel: str, operation: Unsubscribe, now_us: int) -> UnsubscribeReply:
        key, answered = _Key(channel, "r", operation.subscriber), _Key(channel, "op", operation.nonce)
        earlier = cast("Any", self._values.get(answered, now_us))
        if earlier is not None or now_us // 1000 > operation.not_after_ms:
            return UnsubscribeReply(now_us, earlier or "refused")
        result = "missing" if self._values.get(key, now_us) is None else "deleted"
        self._values.delete(key)
        self._values.put(answered, result, (operation.not_after_ms + LATE_COPY_MS) * 1000)
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
        # Without an era a receipt is held against what the channel itself knows: its caller may remember one
        # that has ended.
        own = found if operation.era is not None else self._find(channel, operation.subscriber, None, now_us)
        beyond = (
            isinstance(own, str)
            or clock_after(operation.clock, own[0].clock)
            or operation.era not in (None, clock.era)
        )
        ahead = clock_after(operation.clock, cursor.clock)
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
        self._lengthen(
            _Key(channel, "r", operation.subscriber), _Cursor(operation.clock, clock.era, clock.life), end_us
        )
        return AcknowledgeReply(now_us, "OK", clock.clock, operation.clock, clock.era, clock.turned)

    def _ask_old(self, channel: str, operation: AskOld, now_us: int) -> OldReply:
        found = self._find(channel, operation.subscriber, None, now_us)
        if isinstance(found, str):
            return OldReply(now_us, found)
        clock, cursor = found
        known = [
            cast("int | None", self._values.get(_Key(channel, "mid", id), now_us))
            for id in operation.messages
        ]
        old = tuple(at is not None and not clock_after(at, cursor.clock) for at in known)
        return OldReply(now_us, "ok", clock.clock, cursor.clock, old)

    # What they share

    def _reckon(self, channel: str, seen: int | None, now_us: int) -> _Clock | None:
        """The clock of a channel, which goes on after what the caller has seen; None for a channel of which
        nobody knows."""
        now = cast("_Clock | None", self._values.get(_Key(channel, "clock"), now_us))
        if seen is not None and (now is None or clock_after(seen, now.clock)):
            now = now or self._begun()
            return now._replace(clock=seen, era=now.era + 1, turned=True)
        return now

    def _begun(self) -> _Clock:
        """The state of a channel that is created."""
        self._channel_lives += 1
        return _Clock(0, 0, self._channel_lives)

    def _find(
        self, channel: str, subscriber: str, seen: int | None, now_us: int
    ) -> tuple[_Clock, _Cursor] | Missing:
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
        """Extend a life that other callers may have set longer: their messages and cursors must not outlive
        the clock."""
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


class MemoryStorage:
    """Channels in memory. `now_ns`: a clock that never goes back; lives are counted by it, and
    `not_after_ms`."""

    def __init__(self, *, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._state = MemoryState()
        self._listeners: dict[str, dict[object, Listener]] = {}

    @overload
    def apply(self, channel: str, operation: Publish) -> PublishReply: ...
    @overload
    def apply(self, channel: str, operation: Subscribe) -> SubscribeReply: ...
    @overload
    def apply(self, channel: str, operation: Unsubscribe) -> UnsubscribeReply: ...
    @overload
    def apply(self, channel: str, operation: Fetch) -> FetchReply: ...
    @overload
    def apply(self, channel: str, operation: Acknowledge) -> AcknowledgeReply: ...
    @overload
    def apply(self, channel: str, operation: AskOld) -> OldReply: ...
    @overload
    def apply(self, channel: str, operation: Operation) -> object: ...
    def apply(self, channel: str, operation: Operation) -> object:
        """Carry out an operation, all of it at one instant."""
        with self._lock:
            reply = self._state.apply(channel, operation, self._now_us())
            listeners = (
                list(self._listeners.get(channel, {}).values()) if isinstance(operation, Publish) else []
            )
        for listener in listeners:
            listener()
        return reply

    def listen(self, channel: str, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each publish on a channel, from the thread that publishes, until what this
        returns is called."""
        me = object()
        with self._lock:
            self._listeners.setdefault(channel, {})[me] = listener

        def stop() -> None:
            with self._lock:
                listeners = self._listeners.get(channel, {})
                listeners.pop(me, None)
                if not listeners:
                    self._listeners.pop(channel, None)

        return stop

    def open(self, opening: Opening) -> OpenMemory:
        """For `Channel`."""
        return OpenMemory(self, opening.channel)

    def open_async(self, opening: Opening) -> AsyncOpenMemory:
        """For `AsyncChannel`."""
        return AsyncOpenMemory(self, opening.channel)

    def now_ms(self) -> int:
        """This storage's time, that `not_after_ms` is compared with."""
        return self._now_us() // 1000

    def held(self) -> int:
        """How many values are in memory, alive or not: two for each message, one for each channel and each
        subscriber."""
        return len(self._state)

    def _now_us(self) -> int:
        return self._now_ns() // 1000


class OpenMemory:
    """One channel in memory, as a channel object uses it."""

    live = True

    def __init__(self, storage: MemoryStorage, channel: str) -> None:
        self._storage = storage
        self._channel = channel
        self._stops: dict[Listener, Callable[[], None]] = {}

    def send(self, operation: Operation, intended_ns: int | None = None) -> Sent:
        """Carry out an operation."""
        first_send_ns = time.monotonic_ns()
        if isinstance(operation, DeadlineBound):
            operation = operation.stamped(self._storage.now_ms() + DEADLINE_MS)
        reply: object = self._storage.apply(self._channel, operation)
        return Sent(reply, first_send_ns, time.monotonic_ns(), True)

    def send_many(
        self, operations: Sequence[Operation], intended_ns: int | None = None
    ) -> list[Sent | EngineError]:
        """Carry out several, one after the other."""
        return [self.send(operation) for operation in operations]

    def listen(self, listener: Listener) -> None:
        """Call the listener after each publish."""
        if listener not in self._stops:
            self._stops[listener] = self._storage.listen(self._channel, listener)

    def unlisten(self, listener: Listener) -> None:
        """Stop calling the listener."""
        stop = self._stops.pop(listener, None)
        if stop is not None:
            stop()

    def close(self) -> None:
        """Stop calling listeners."""
        for listener in list(self._stops):
            self.unlisten(listener)


class AsyncOpenMemory:
    """One channel in memory, for asyncio. No call takes long, but each lets other tasks run, as one to a
    server does."""

    live = True

    def __init__(self, storage: MemoryStorage, channel: str) -> None:
        self._open = OpenMemory(storage, channel)
        self.listen = self._open.listen
        self.unlisten = self._open.unlisten

    async def send(self, operation: Operation, intended_ns: int | None = None) -> Sent:
        """Carry out an operation."""
        await asyncio.sleep(0)
        return self._open.send(operation)

    async def send_many(
        self, operations: Sequence[Operation], intended_ns: int | None = None
    ) -> list[Sent | EngineError]:
        """Carry out several, one after the other."""
        await asyncio.sleep(0)
        return self._open.send_many(operations)

    async def close(self) -> None:
        """Stop calling listeners."""
        self._open.close()
