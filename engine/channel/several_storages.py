"""The steps of a channel with several storages: it writes to all and reads from all, and one that works is
enough. Messages are told apart by their ids, for each storage has clocks of its own.

It cannot hide this. A storage that was away lacks what was published meanwhile, and undoes an unsubscribe
that it missed as soon as it is back."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from engine.channel import replies
from engine.channel.replies import Page
from engine.channel.session_state import SessionState, SuspectCursors
from engine.channel.steps import Round, Steps
from engine.errors import EngineError, Malformed, OutcomeUnknown, ScriptFault, logger
from engine.models.dsps import clock_after, clock_distance
from engine.ops.base import PIPELINE_CALLS, Operation
from engine.ops.channels import (
    Acknowledged,
    Fetched,
    FetchReply,
    Message,
    NewMessage,
    OldReply,
    Published,
    Subscribed,
)
from engine.redis.exchange import Sent

log = logger("ironclaim.channel")

# -- Merges the replies of several storages into one page: each message once, in the order of the
# storages where they agree. Pure functions.


class Part(NamedTuple):
    """The reply of one storage: a page, and where the subscriber and the channel are in it."""

    page: Page
    cursor: int
    clock: int


class Merged(NamedTuple):
    """`upto`: for each storage the clock that the receipt stands for; all up to it is delivered, lost, or old
    elsewhere. `dropped`: how many messages were left out because they are old somewhere."""

    messages: tuple[Message, ...]
    upto: dict[str, int]
    more: bool
    lost: int
    corrupt: int
    dropped: int


def holders(parts: Mapping[str, Part]) -> dict[str, dict[str, int]]:
    """Message id -> the storages that brought it, with its clock in each."""
    found: dict[str, dict[str, int]] = {}
    for storage, part in parts.items():
        for message in part.page.messages:
            found.setdefault(message.id, {})[storage] = message.clock
    return found


def merge(parts: Mapping[str, Part], old: set[str], most: int) -> Merged:
    """Merge at most `most` messages. Each has the clock of the first storage that brought it."""
    order: list[Message] = []
    for part in parts.values():
        order = _woven(order, part.page.messages)
    fresh = [message for message in order if message.id not in old]
    delivered = {message.id for message in fresh[:most]}
    upto: dict[str, int] = {}
    lost = 0
    for storage, part in parts.items():
        reached = _reached(part, delivered | old)
        if reached is None:
            continue
        upto[storage] = reached
        own = [message for message in part.page.messages if not clock_after(message.clock, reached)]
        gone = clock_distance(part.cursor, reached) - len(own) - part.page.corrupt
        # What another storage delivers is not lost.
        lost = max(lost, gone - len(delivered - {message.id for message in own}))
    return Merged(
        tuple(fresh[:most]),
        upto,
        len(fresh) > most or any(part.page.more for part in parts.values()),
        lost,
        max((part.page.corrupt for part in parts.values()), default=0),
        len(order) - len(fresh),
    )


def _woven(first: Sequence[Message], second: Sequence[Message]) -> list[Message]:
    """Both, each message once: what only the second has stands where it has it, behind what only the first
    has there."""
    positions = {message.id: at for at, message in enumerate(first)}
    woven: list[Message] = []
    pending: list[Message] = []
    taken = 0
    for message in second:
        at = positions.get(message.id)
        if at is None:
            pending.append(message)
        elif at >= taken:
            woven += [*first[taken:at], *pending, first[at]]
            pending, taken = [], at + 1
    return [*woven, *first[taken:], *pending]


def _reached(part: Part, done: set[str]) -> int | None:
    """The clock up to which everything that this storage brought is done; None where that is nothing."""
    before: int | None = None
    for message in part.page.messages:
        if message.id not in done:
            return before
        before = message.clock
    return part.page.upto


# -- Which of several storages are asked: one that failed is left out for a while, and then tried beside
# the others without being waited for. So a server that is away costs one call its patience, and not every
# call. No I/O.

#: For how long one is left out that failed, twice as long each time it fails again.
_ASIDE_MS_MIN = 500
_ASIDE_MS_MAX = 30_000
#: After so many different ones nothing more is said.
_FAULTS_MAX = 100


class Health:
    """The health of the storages of one channel."""

    def __init__(
        self, channel: str, storages: Iterable[str], now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._channel = channel
        self._storages = tuple(storages)
        self._now_ns = now_ns
        #: Those that failed last: until when they are left out, and for how long that was.
        self._aside: dict[str, tuple[int, int]] = {}
        self._faults: set[tuple[str, str]] = set()

    def chosen(self, among: Iterable[str] | None = None) -> list[str]:
        """The storages to ask: all that are not left out, or all when there are no others."""
        now_ns = self._now_ns()
        wanted = [id for id in self._storages if among is None or id in among]
        return [id for id in wanted if id not in self._aside or now_ns >= self._aside[id][0]] or wanted

    def doubtful(self, storages: Iterable[str]) -> bool:
        """Whether one of these failed when it was asked last."""
        return any(id in self._aside for id in storages)

    def answered(self, id: str) -> None:
        """This storage answered: it is left out no longer."""
        if self._aside.pop(id, None) is not None:
            log.info("storage %s of channel %s works again", id, self._channel)

    def failed(self, id: str, why: object) -> None:
        """This storage did not answer: leave it out for a while. Logged once until it answers again."""
        if id not in self._aside:
            log.warning(
                "storage %s of channel %s is left out until it works again: %s", id, self._channel, why
            )
        before_ms = self._aside[id][1] if id in self._aside else _ASIDE_MS_MIN // 2
        aside_ms = min(before_ms * 2, _ASIDE_MS_MAX)
        self._aside[id] = (self._now_ns() + aside_ms * 1_000_000, aside_ms)

    def faulted(self, id: str, why: object) -> None:
        """This storage works and cannot do this one thing, as where a key is damaged. It is not left out,
        because other calls are none the worse for that. Each fault is logged once."""
        fault = (id, str(why))
        if fault not in self._faults and len(self._faults) < _FAULTS_MAX:
            self._faults.add(fault)
            log.warning("storage %s of channel %s: %s", id, self._channel, why)


R = TypeVar("R")

_Answers = Mapping[str, Sequence[Sent | EngineError]]

#: How long a fetch that need not wait goes on while all that it finds is old, or nothing yet.
_SEARCH_NS = 2_000_000_000


class SeveralStorages:
    """The steps of a channel's calls on several storages. `sessions`: by the ids that receipts call them, in
    the order in which they are preferred."""

    def __init__(
        self,
        channel: str,
        sessions: Mapping[str, SessionState],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._channel = channel
        self._sessions = dict(sessions)
        self._now_ns = now_ns
        self._health = Health(channel, sessions, now_ns)
        self._suspects = SuspectCursors(now_ns)

    def publish(self, message: NewMessage, intended_ns: int | None) -> Steps[Published]:
        """Publish a message. Raises OutcomeUnknown, ServerUnavailable when no storage took it."""
        (came,) = yield from self._publish(((message,),), intended_ns)
        if isinstance(came, EngineError):
            raise came
        return came

    def publish_many(
        self, parts: Sequence[tuple[NewMessage, ...]], intended_ns: int | None
    ) -> Steps[list[Published]]:
        """A part goes out in one script, several in pipelines. After one that failed everywhere no further
        one goes out."""
        results: list[Published | EngineError] = []
        for at in range(0, len(parts), PIPELINE_CALLS):
            results += yield from self._publish(parts[at : at + PIPELINE_CALLS], intended_ns)
            if any(isinstance(result, EngineError) for result in results):
                break
        return replies.concluded(results, sum(map(len, parts)))

    def subscribe(self, subscriber: str) -> Steps[Subscribed]:
        """Create a subscriber. Raises OutcomeUnknown, ServerUnavailable."""
        found = _succeeded((yield from self._subscribe(subscriber, None)))
        created = all(reply.result == "created" for reply in found.values())
        return Subscribed(created, next(iter(found.values())).clock or 0)

    def unsubscribe(self, subscriber: str) -> Steps[bool]:
        """Delete a subscriber; False when there was none. Raises OutcomeUnknown, ServerUnavailable."""
        nonce = secrets.token_hex(8)
        answers = yield from self._ask(lambda id: [self._sessions[id].unsubscribe(subscriber, nonce)])
        return any(_succeeded(_each(answers, lambda _, sent: replies.unsubscribed(sent))).values())

    def fetch(self, subscriber: str, most: int, waited_ms: int = 0) -> Steps[tuple[Fetched, bool]]:
        """Poll once. Returns messages, and whether to return them at once. Raises ChannelNotFound,
        SubscriptionNotFound."""
        until_ns = self._now_ns() + _SEARCH_NS
        while True:
            parts = yield from self._parts(subscriber, most, waited_ms)
            old = yield from self._old(subscriber, parts)
            merged = merge(parts, old, most)
            turned_back = any(part.page.turned_back for part in parts.values())
            for id, at in merged.upto.items():
                self._sessions[id].gave(subscriber, at, parts[id].page.proof)
            speaks = bool(merged.messages or merged.lost or merged.corrupt or turned_back)
            searching = any(part.page.searching for part in parts.values())
            if not speaks and merged.dropped:
                yield from self._acknowledge(subscriber, merged.upto)
                searching = True
            if speaks or not searching or self._now_ns() > until_ns:
                return self._fetched(subscriber, parts, merged), speaks

    def acknowledge(self, subscriber: str, receipt: str) -> Steps[Acknowledged]:
        """Acknowledge a receipt. Raises Malformed, ChannelNotFound, SubscriptionNotFound."""
        given = replies.read_outer(receipt)
        at = {
            id: replies.read_inner(self._channel, subscriber, given[id])
            for id in self._sessions
            if id in given
        }
        if not at:
            raise Malformed(
                "receipt", receipt, f"one with a part of one of the storages {', '.join(self._sessions)}"
            )
        came = _succeeded((yield from self._acknowledge(subscriber, at)))
        found = [one for one in came.values() if isinstance(one, Acknowledged)]
        if not found:
            raise self._missing(subscriber, came)
        moved = any(one.result == "OK" for one in found)
        return Acknowledged("OK" if moved else "stale", any(one.era_changed for one in found))

    def are_old(self, subscriber: str, ids: tuple[str, ...]) -> Steps[dict[str, bool]]:
        """Whether each message is old for the subscriber. Raises ChannelNotFound, SubscriptionNotFound."""
        answers = yield from self._ask(lambda id: [self._sessions[id].ask_old(subscriber, ids)])
        found = _succeeded(_each(answers, lambda _, sent: replies.reply_of(sent, OldReply)))
        known = [reply for reply in found.values() if reply.result == "ok"]
        if not known:
            raise self._missing(subscriber, found)
        return {id: any(reply.old[at] for reply in known) for at, id in enumerate(ids)}

    def _ask(
        self,
        asks_of: Callable[[str], Sequence[Operation]],
        among: Iterable[str] | None = None,
        intended_ns: int | None = None,
        enough: Callable[[Sequence[Any]], bool] | None = None,
    ) -> Steps[_Answers]:
        """Ask those that are not left out; their answers, in the order of the storages. One that failed when
        it was asked last is not waited for."""
        chosen = self._health.chosen(among)
        doubtful = self._health.doubtful(chosen)
        answers: _Answers = yield Round(
            {id: asks_of(id) for id in chosen}, intended_ns, _any_answer if doubtful else enough
        )
        for id in chosen:
            failures = [one for one in answers.get(id, ()) if isinstance(one, EngineError)]
            failure = next((one for one in failures if not isinstance(one, ScriptFault)), None)
            if failure is not None:
                self._health.failed(id, failure)
            elif id in answers:
                self._health.answered(id)
                for fault in failures[:1]:
                    self._health.faulted(id, fault)
            elif self._health.doubtful((id,)):
                self._health.failed(id, "no answer")
        return {id: answers[id] for id in chosen if id in answers}

    def _publish(
        self, parts: Sequence[tuple[NewMessage, ...]], intended_ns: int | None
    ) -> Steps[list[Published | EngineError]]:
        """What came of each message, of at most 8 parts."""
        answers = yield from self._ask(
            lambda id: [self._sessions[id].publish(part) for part in parts], None, intended_ns
        )
        by_storage: list[list[Published | EngineError]] = []
        for id, outcomes in answers.items():
            came: list[Published | EngineError] = []
            for part, outcome in zip(parts, outcomes, strict=True):
                if isinstance(outcome, EngineError):
                    came += [outcome] * len(part)
                else:
                    came += replies.published(self._sessions[id], outcome)
            by_storage.append(came)
        return [_published(outcomes) for outcomes in zip(*by_storage, strict=True)]

    def _subscribe(self, subscriber: str, among: Iterable[str] | None) -> Steps[dict[str, Any]]:
        nonce = secrets.token_hex(8)
        answers = yield from self._ask(lambda id: [self._sessions[id].subscribe(subscriber, nonce)], among)
        return _each(answers, lambda id, sent: replies.subscribed(self._sessions[id], sent))

    def _parts(self, subscriber: str, most: int, waited_ms: int) -> Steps[dict[str, Part]]:
        """The reply of each storage that knows the subscriber; in the others it is created."""
        answers = yield from self._ask(
            lambda id: [self._sessions[id].fetch(subscriber, most, waited_ms)], None, None, _has_messages
        )
        found = _succeeded(_each(answers, lambda id, sent: self._part(id, subscriber, sent)))
        parts = {id: part for id, part in found.items() if isinstance(part, Part)}
        absent = [id for id in found if id not in parts]
        if not parts:
            raise self._missing(subscriber, found)
        if absent:
            for id, created in (yield from self._subscribe(subscriber, absent)).items():
                if not isinstance(created, EngineError):
                    self._suspects.began(subscriber, id)
        clocks_of = {id: (part.clock, part.cursor) for id, part in parts.items()}
        for id in self._sessions:
            self._suspects.learn(subscriber, id, clocks_of)
        return parts

    def _part(self, id: str, subscriber: str, sent: Sent) -> Part | FetchReply:
        page = replies.page(self._sessions[id], subscriber, sent)
        reply = replies.reply_of(sent, FetchReply)
        if page is None or reply.cursor is None or reply.clock is None:
            return reply
        return Part(page, reply.cursor, reply.clock)

    def _old(self, subscriber: str, parts: Mapping[str, Part]) -> Steps[set[str]]:
        """Messages that not every storage brought, and that one which did not says are old: it alone had them
        acknowledged."""
        suspects: dict[str, tuple[str, ...]] = {}
        for message, clocks_of in holders(parts).items():
            for id in parts:
                if id not in clocks_of and self._suspects.believed(subscriber, id, clocks_of):
                    suspects[id] = (*suspects.get(id, ()), message)
        if not suspects:
            return set()
        answers = yield from self._ask(
            lambda id: [self._sessions[id].ask_old(subscriber, suspects[id])], suspects
        )
        old: set[str] = set()
        for id, reply in _each(answers, lambda _, sent: replies.reply_of(sent, OldReply)).items():
            if not isinstance(reply, EngineError) and reply.result == "ok":
                old |= {message for message, is_old in zip(suspects[id], reply.old, strict=True) if is_old}
        return old

    def _acknowledge(self, subscriber: str, at: Mapping[str, int]) -> Steps[dict[str, Any]]:
        """For each storage an Acknowledged, the reply of one where channel or subscriber are missing, or an
        error."""
        operations = {id: self._sessions[id].acknowledge(subscriber, clock) for id, clock in at.items()}
        answers = yield from self._ask(lambda id: [operations[id]], at)
        return _each(
            answers,
            lambda id, sent: replies.acknowledged(self._sessions[id], operations[id], sent) or sent.reply,
        )

    def _fetched(self, subscriber: str, parts: Mapping[str, Part], merged: Merged) -> Fetched:
        inner = {id: replies.inner(self._channel, subscriber, at) for id, at in merged.upto.items()}
        first = next(iter(parts.values())).page
        changed = any(part.page.era_changed for part in parts.values())
        receipt = replies.outer(inner) if inner else None
        return Fetched(merged.messages, receipt, merged.more, merged.lost, first.era, changed, merged.corrupt)

    def _missing(self, subscriber: str, found: Mapping[str, Any]) -> EngineError:
        """The error where no storage knows the subscriber: that the channel is missing only if all say so."""
        some = sorted(found.values(), key=lambda reply: reply.result == "channel-not-found")
        return replies.missing(self._channel, subscriber, some[0])


def _each(answers: _Answers, read: Callable[[str, Sent], R]) -> dict[str, R | EngineError]:
    """The result of a single operation in each storage."""
    found: dict[str, R | EngineError] = {}
    for id, (answer,) in answers.items():
        try:
            found[id] = answer if isinstance(answer, EngineError) else read(id, answer)
        except EngineError as error:
            found[id] = error
    return found


def _succeeded(found: Mapping[str, R | EngineError]) -> dict[str, R]:
    """The results of the storages that worked. Raises when none did."""
    worked = {id: came for id, came in found.items() if not isinstance(came, EngineError)}
    if not worked:
        raise _worst([came for came in found.values() if isinstance(came, EngineError)])
    return worked


def _worst(errors: Sequence[EngineError]) -> EngineError:
    """The error to raise of several: one that leaves the outcome open comes before one that does not."""
    return next((error for error in errors if isinstance(error, OutcomeUnknown)), errors[0])


def _published(outcomes: Sequence[Published | EngineError]) -> Published | EngineError:
    """One message in several storages: a duplicate if one of them knew it, at the clock of the first that has
    it."""
    took = [outcome for outcome in outcomes if isinstance(outcome, Published)]
    if not took:
        return _worst([outcome for outcome in outcomes if isinstance(outcome, EngineError)])
    created = all(one.result == "created" for one in took)
    return Published(
        "created" if created else "duplicate",
        took[0].clock,
        took[0].era,
        any(one.era_changed for one in took),
    )


def _any_answer(answers: Sequence[Any]) -> bool:
    return not any(isinstance(answer, EngineError) for answer in answers)


def _has_messages(answers: Sequence[Any]) -> bool:
    """Whether one storage has messages, after which the others have only a moment more."""
    return any(isinstance(answer, Sent) and bool(answer.reply.items) for answer in answers)
