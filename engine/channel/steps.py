"""What a channel decides is written once as steps, generators without I/O: they yield one of these requests
and are sent what came of it. `Channel` and `AsyncChannel` carry them out. Then how callers wait, and the
steps of the calls of a channel with one storage; `several_storages` has those of one with several."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from engine.channel import replies
from engine.channel.replies import Page
from engine.channel.session_state import SessionState
from engine.errors import EngineError, Malformed
from engine.observer import Observer
from engine.ops.base import PIPELINE_CALLS, Operation
from engine.ops.channels import Acknowledged, Fetched, NewMessage, OldReply, Published, Subscribed
from engine.redis.exchange import Sent

T = TypeVar("T")

#: What one storage answered, a Sent or an error for each operation that it was asked for.
Answers = list[Sent | EngineError]


class Send(NamedTuple):
    """Run one operation in one storage; answered with a Sent. What it raises ends the steps."""

    storage: str
    operation: Operation
    intended_ns: int | None = None


class SendMany(NamedTuple):
    """Run at most 100 operations in one storage, atomically; answered with a Sent or an EngineError for
    each."""

    storage: str
    operations: Sequence[Operation]
    intended_ns: int | None = None


class Round(NamedTuple):
    """Run operations in several storages at once, those of one storage atomically; answered with a mapping
    of storage -> a Sent or an EngineError for each of its operations.

    When `enough` says so of the answer of one storage, the others have `late_ms` more. Those that have not
    answered by then are not in the mapping. None: all are waited for.
    """

    asks: Mapping[str, Sequence[Operation]]
    intended_ns: int | None = None
    enough: Callable[[Sequence[Any]], bool] | None = None
    late_ms: int = 300


class Rest(NamedTuple):
    """Wait until a storage tells of a publication, unless one has since the last rest was over; at most so
    long, `deaf_ms` while there is a storage that may not tell. Answered with False when the channel was
    closed meanwhile."""

    most_ms: int
    deaf_ms: int


Request = Send | SendMany | Round | Rest
#: Steps that return T.
Steps = Generator[Request, Any, T]


def sent_of(answer: object) -> Sent:
    """The answer of a Send."""
    assert isinstance(answer, Sent)
    return answer


@dataclass(frozen=True, slots=True)
class Opening:
    """Which channel a storage is opened for. `lua`: another folder of scripts; `observer` is told of
    every call."""

    channel: str
    lua: Path | None = None
    observer: Observer | None = None


# -- How a fetch waits: it polls, rests until a storage reports a publication, and polls again. No wake-up
# is lost. A waiting call has been listening since before its poll, and a storage that could not tell for
# a while tells as soon as it can again.

#: The longest wait, as in the original.
WAIT_MS_MAX = 30_000
#: A look from time to time keeps the subscriber alive, and bounds what a lost notification could cost.
_LOOK_MS = 10_000
#: How long a rest may be while a storage may not tell.
_DEAF_MS = 1_000


def waiting(
    look: Callable[[int], Steps[tuple[T, bool]]],
    wait_ms: int,
    ttl_s: int,
    now_ns: Callable[[], int] = time.monotonic_ns,
    has_more: Callable[[T], bool] = lambda _: False,
) -> Steps[T]:
    """Look until one says that it has something to tell, or the time is over; what the last one brought. Each
    is told how many ms had been waited for it: 0 for the first alone. After one that has more to find, the
    next follows at once: nothing tells of messages that are there already."""
    begun_ns = now_ns()
    waited_ms = 0
    until_ns = begun_ns + min(wait_ms, WAIT_MS_MAX) * 1_000_000
    while True:
        found, speaks = yield from look(waited_ms)
        left_ms = (until_ns - now_ns()) // 1_000_000
        if speaks or left_ms <= 0:
            return found
        most_ms = 0 if has_more(found) else min(left_ms, _LOOK_MS, ttl_s * 1000 // 3)
        if not (yield Rest(most_ms, min(most_ms, _DEAF_MS))):
            return found
        waited_ms = max(1, (now_ns() - begun_ns) // 1_000_000)


# -- How tasks wait, and how threads and greenlets do: for messages, and for the answers of several storages.


class AsyncWaiter:
    """A task that rests in a fetch until there may be messages, on the event loop that runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._woken = asyncio.Event()
        self._closed = False

    def wake(self) -> None:
        """Wake the task. Safe from any thread."""
        if threading.get_ident() == self._thread:
            self._woken.set()
        else:
            # In a closed loop no task waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._woken.set)

    def close(self) -> None:
        """Wake the task for the last time: the channel is closed."""
        self._closed = True
        self.wake()

    async def rest(self, most_ms: int) -> bool:
        """Wait until it is woken, or was since the last rest, for at most this time. Returns False when the
        channel is closed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_ms / 1000):
                await self._woken.wait()
        self._woken.clear()
        return not self._closed


async def async_ask_at_once(
    asked: Round, ask: Callable[[str], Coroutine[Any, Any, Answers]]
) -> dict[str, Answers]:
    """Ask several storages at once, each in a task of its own. Returns the answers that came in time."""
    tasks = {id: asyncio.create_task(ask(id)) for id in asked.asks}
    left, until_s = set(tasks.values()), None
    loop = asyncio.get_running_loop()
    try:
        while left:
            grace_s = None if until_s is None else max(0.0, until_s - loop.time())
            done, left = await asyncio.wait(left, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            if (
                until_s is None
                and asked.enough is not None
                and any(asked.enough(task.result()) for task in done)
            ):
                until_s = loop.time() + asked.late_ms / 1000
    finally:
        for task in left:
            task.cancel()
    return {id: task.result() for id, task in tasks.items() if task not in left}


class Waiter:
    """A thread or greenlet that rests in a fetch until there may be messages."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self._closed = False

    def wake(self) -> None:
        """Wake it; from any thread."""
        self._woken.set()

    def close(self) -> None:
        """Wake it for the last time: the channel is closed."""
        self._closed = True
        self._woken.set()

    def rest(self, most_ms: int) -> bool:
        """Wait until it is woken, or was since the last rest was over; at most so long. False when the
        channel is closed."""
        self._woken.wait(most_ms / 1000)
        self._woken.clear()
        return not self._closed


def ask_at_once(asked: Round, ask: Callable[[str], Answers]) -> dict[str, Answers]:
    """Ask several storages at once, each in a thread (or greenlet) of its own; the answers of those that gave
    them in time."""
    answers: dict[str, Answers] = {}
    broken: list[Exception] = []
    changed = threading.Condition()

    def ask_one(id: str) -> None:
        try:
            came = ask(id)
        except Exception as error:
            # Nobody else would learn of it, and the caller would wait for ever.
            broken.append(error)
            came = []
        with changed:
            answers[id] = came
            changed.notify()

    for id in asked.asks:
        threading.Thread(target=ask_one, args=(id,), name=f"ironclaim-storage-{id}", daemon=True).start()
    until_s: float | None = None
    with changed:
        while len(answers) < len(asked.asks):
            if until_s is None and asked.enough is not None and any(map(asked.enough, answers.values())):
                until_s = time.monotonic() + asked.late_ms / 1000
            left_s = None if until_s is None else until_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                break
            changed.wait(left_s)
        if broken:
            raise broken[0]
        return dict(answers)


# -- The steps of a channel with one storage: one operation for each call.

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
