"""The decisions about a call on its way, without a socket or a wait: what an exception of redis-py means, and
after each send whether the call was answered, is sent again, or ends with an unknown outcome.

In this order: exceptions classified; `InFlightCall`, which a driver holds; `Delivery`, which decides;
durability "replica"; calls of one piece that go to several nodes."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import redis
from redis.exceptions import AskError, MovedError, TryAgainError

from engine.errors import (
    AuthenticationFailed,
    EngineError,
    OutcomeUnknown,
    ScriptFault,
    ServerUnavailable,
    UnsafeServer,
    WrongKeyType,
)
from engine.observer import Intended, Observer, Outcome
from engine.ops.base import Call, ServerClock
from engine.redis.endpoint import DEADLINE_MS, slot_of

#: What a connection raises while it is made or used; UnsafeServer comes from the handshake.
FAILURES = (redis.RedisError, OSError, UnsafeServer)


def is_reply(error: BaseException) -> bool:
    """True for an error that the server sent, False for a connection that failed."""
    return isinstance(error, redis.ResponseError) or getattr(error, "status_code", None) is not None


def message_of(error: BaseException) -> str:
    """One line for people: a server's error with its code, which redis-py cuts off for the codes that it
    knows; any other with its type."""
    if not is_reply(error):
        return f"{type(error).__name__}: {error}"
    code = getattr(error, "status_code", None)
    text = str(error)
    return f"{code} {text}" if isinstance(code, str) and not text.startswith(code) else text


def trouble_of(error: BaseException, *, sent: bool) -> Trouble:
    """What an exception means for a send: `sent` tells whether any byte of it may have left."""
    if is_reply(error):
        trouble = trouble_of_reply(message_of(error))
        # An error of the handshake, such as a wrong password, is no fault of the waiting call.
        return trouble if sent or trouble is not Trouble.FAULT else Trouble.REFUSED
    return Trouble.UNANSWERED if sent else Trouble.NOT_SENT


# -- One call on its way: what its driver does after each send, what its observer is told, and how it ends.
# No socket, no waiting.
#
# The three ways to run calls (synchronous, asyncio, many in one pipeline) differ in how they send and how
# they wait. What they decide is here and in `delivery`, once.

_INNER_CAPITAL = re.compile("(?<=[a-z])(?=[A-Z])")
_OF_SLOTS = (AskError, TryAgainError)
#: Calls that go out together.
PIPELINE_MAX = 100


class Sent(NamedTuple):
    """What an answered call cost: used by workers, which count leases from the first send (rule 9). Times are
    monotonic ns; `definite`: no copy of the call is unanswered."""

    reply: Any
    first_send_ns: int
    done_ns: int
    definite: bool

    @property
    def came_late(self) -> bool:
        """True for a refusal with no copy unanswered: the estimate of the server's time was off. It has been
        learned anew, so start once more (rule 3)."""
        return self.definite and getattr(self.reply, "refused", False)


class NotSent(Exception):
    """Stands for the reply of a call that was not sent because there was no connection; its cause says
    why."""


def not_sent(cause: Exception) -> NotSent:
    """A NotSent with this cause."""
    error = NotSent(str(cause))
    error.__cause__ = cause
    return error


def pipeline(calls: Sequence[Call[Any]]) -> Sequence[Call[Any]]:
    """The calls, when they are few enough to go out together. Raises ScriptFault."""
    if len(calls) > PIPELINE_MAX:
        raise ScriptFault(f"pipeline: {len(calls)} calls, at most {PIPELINE_MAX} go out together")
    return calls


def loads_again(replies: Sequence[Any]) -> bool:
    """Whether the next call needs a new connection, whose handshake loads the scripts again (rule 28)."""
    # A slot that is elsewhere, or on its way, says nothing about this connection.
    errors = [reply for reply in replies if isinstance(reply, Exception) and not isinstance(reply, _OF_SLOTS)]
    return any(trouble_of(error, sent=True) is Trouble.TRANSIENT for error in errors)


class InFlightCall:
    """One call from its first send, for which it is made, to its end.

    Raises ScriptFault for a call that blocks longer than its driver waits: its reply would be taken for lost.
    `again`: a copy of this call that was sent earlier is still unanswered, so a refusal says nothing definite
    (rule 5).
    """

    __slots__ = (
        *(
            "call",
            "ended",
            "_again",
            "_clock",
            "_deadline_ms",
            "_delivery",
            "_definite",
            "_done_ns",
            "_failure",
            "_first_send_ns",
        ),
        *("_last_send_ns", "_mark", "_observer", "_reply", "_sends", "_ticket", "_watch"),
    )

    def __init__(
        self,
        call: Call[Any],
        clock: ServerClock,
        observer: Observer | None,
        deadline_ms: int,
        block_ms_max: int = 0,
        intended_ns: Intended = None,
        again: bool = False,
    ) -> None:
        if call.block_ms > block_ms_max:
            raise ScriptFault(
                f"{_name(call)}: blocks {call.block_ms} ms, this driver waits {block_ms_max} ms"
            )
        self.call = call
        #: Nothing is left to send: `sent` has the reply or raises.
        self.ended = False
        self._clock = clock
        watch = clock.watch
        self._watch = watch if watch is not None and type(call.operation) in watch.readers else None
        self._mark = self._watch.mark_of(call) if self._watch is not None else None
        self._observer = observer
        self._deadline_ms = deadline_ms if call.patient else 0
        self._again = again
        self._first_send_ns = self._last_send_ns = time.monotonic_ns()
        self._ticket = (
            observer.invoked(call, self._first_send_ns, intended_ns) if observer is not None else None
        )
        # Made at the first trouble: most calls have none.
        self._delivery: Delivery | None = None
        self._sends = 0
        self._reply: Any = None
        self._failure: EngineError | None = None
        # No copy of the call is unanswered.
        self._definite = not again

    def leaves_again(self) -> None:
        """Count another send of the call."""
        self._last_send_ns = time.monotonic_ns()

    def returns(self, reply: Any) -> float:
        """Take what a send brought: a reply as it came, NotSent, or another exception. Unless the call has
        `ended`, send again after the pause that this returns, in seconds."""
        if not isinstance(reply, NotSent):  # anchor: redirection-is-no-answer
            self._sends += 1
        if not isinstance(reply, Exception):
            try:
                self._reply = self.call.parse(reply)
            except ScriptFault as error:
                self._failure = error
            else:
                if self._watch is not None:
                    self._watch.answered(self.call, reply, self._mark)
        else:
            step = self._step(reply)
            if not isinstance(step, EngineError):
                return step
            self._failure = step
        self._end()
        return 0.0

    def sent(self) -> Sent:
        """The reply. Raises OutcomeUnknown, ServerUnavailable, ScriptFault or UnsafeServer."""
        if self._failure is not None:
            raise self._failure
        return Sent(self._reply, self._first_send_ns, self._done_ns, self._definite)

    def outcome(self) -> Sent | EngineError:
        """The reply, or the error that `sent` would raise."""
        return self._failure or self.sent()

    def _step(self, error: Exception) -> float | EngineError:
        """Decide the pause before the next send, or end the call."""
        if self._delivery is None:
            self._delivery = Delivery(
                self._first_send_ns, random.random, self._deadline_ms, unanswered=int(self._again)
            )
        delivery, what = self._delivery, _name(self.call)
        sent = not isinstance(error, NotSent)
        cause = error if sent or not isinstance(error.__cause__, Exception) else error.__cause__
        if isinstance(cause, UnsafeServer):
            return cause if delivery.definite else OutcomeUnknown(f"{what}: {cause}")
        message = message_of(cause)
        step = delivery.after(trouble_of(cause, sent=sent), message, time.monotonic_ns())
        if not isinstance(step, GiveUp):
            return step.after_ms / 1000
        if step.outcome is NoReply.FAULT:
            fault = WrongKeyType if message.startswith("WRONGTYPE") else ScriptFault
            return fault(f"{what}: the server answered {message}")
        if step.outcome is NoReply.UNKNOWN:
            lost = f"{delivery.unanswered} of {len(delivery.errors)} sends unanswered"
            return OutcomeUnknown(f"{what}: {lost}, last error {message}")
        text = f"{what}: {len(delivery.errors)} tries, nothing was applied, last error {message}"
        return _unavailable(message)(text)

    def _end(self) -> None:
        self.ended = True
        self._done_ns = time.monotonic_ns()
        if self._delivery is not None:
            self._definite = self._delivery.definite
        srv_us = getattr(self._reply, "srv_us", None)
        if isinstance(srv_us, int):
            self._clock.learn(srv_us, self._done_ns)
        if self._observer is None:
            return
        failure = self._failure
        applied = (
            True
            if failure is None
            else False
            if isinstance(failure, ServerUnavailable | UnsafeServer)
            else None
        )
        outcome = Outcome(
            self._reply,
            str(failure or ""),
            self._definite,
            applied,
            self._sends,
            tuple(self._delivery.errors) if self._delivery is not None else (),
            self._first_send_ns,
            self._last_send_ns,
            self._done_ns,
        )
        self._observer.completed(self.call, self._ticket, outcome)


def settle(in_flight: Sequence[InFlightCall], replies: Sequence[Any]) -> float:
    """Hand out what calls that went out together brought; the pause before the next send in seconds, 0 when
    all have ended: the longest of theirs, so that they go out together again.

    A failure of the connection ends the replies early: all calls from there on are unanswered.
    """
    pause_s = 0.0
    for at, in_flight_call in enumerate(in_flight):
        pause_s = max(pause_s, in_flight_call.returns(replies[min(at, len(replies) - 1)]))
    return pause_s


class FirstContact:
    """The tries to connect before the first call, until a handshake has told the server's time."""

    def __init__(self, deadline_ms: int) -> None:
        self._delivery = Delivery(time.monotonic_ns(), random.random, deadline_ms)

    def failed(self, error: Exception) -> float:
        """The pause before the next try, in seconds. Raises ServerUnavailable at the deadline, and
        UnsafeServer at once."""
        if isinstance(error, UnsafeServer):
            raise error
        message = message_of(error)
        step = self._delivery.after(trouble_of(error, sent=False), message, time.monotonic_ns())
        if isinstance(step, GiveUp):
            raise _unavailable(message)(f"cannot connect, nothing was applied: {message}") from error
        return step.after_ms / 1000


def refused_credentials(replies: Sequence[object]) -> Exception | None:
    """The first of these replies that turns the credentials down, if there is one."""
    return next(
        (one for one in replies if isinstance(one, Exception) and message_of(one).startswith(_CREDENTIALS)),
        None,
    )


def _unavailable(message: str) -> type[ServerUnavailable]:
    return AuthenticationFailed if message.startswith(_CREDENTIALS) else ServerUnavailable


def _name(call: Call[Any]) -> str:
    """The name of the operation in error messages."""
    return call.operation.label or _INNER_CAPITAL.sub(" ", type(call.operation).__name__).lower()


# -- What a driver does next with one call: send it, wait, or give up. Pure decisions, no socket (rules 5
# and 31).
#
# Every call of the engine carries an identity that makes a second send harmless. So a call without an answer
# is sent again until its deadline. What is unknown after that is said to be unknown.

_PAUSE_FIRST_MS = 10
_PAUSE_MOST_MS = 500
#: A slot that is on its way is there soon, and a call that meets it should cost no second.
_SLOT_PAUSE_MOST_MS = 100

#: Error replies that say "not now": the command was not applied and may be sent again (rule 27).
_TRANSIENT = (
    *("LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "ASK", "MOVED", "NOSCRIPT", "UNBLOCKED"),
    # A primary that was demoted: the next connection may reach another one.
    "READONLY",
)
#: Those about a slot that is elsewhere, or on its way.
_SLOT_WORDS = ("TRYAGAIN", "ASK", "MOVED")
#: Error replies that refuse for longer than a call should wait: also not applied.
_REFUSED = ("OOM", "MISCONF", "NOREPLICAS", "NOAUTH", "NOPERM", "WRONGPASS", "DENIED")
#: Those about user and password: wrong, missing, or not wanted.
_CREDENTIALS = ("WRONGPASS", "NOAUTH", "ERR AUTH", "ERR invalid password")
_REFUSED_TEXT = "ERR max number of clients"
#: A script met a key that its slot's move has taken away, perhaps after some of its writes: rule 1 makes it
#: safe to send it again (rule 27).
_HALF_WAY_TEXT = "access a non local key"


class Trouble(Enum):
    """What happened to one send."""

    NOT_SENT = "not sent"  # no connection: this send cannot have been applied
    UNANSWERED = "unanswered"  # sent and lost: it may have been applied, now or later
    TRANSIENT = "transient"  # refused for the moment
    REFUSED = "refused"  # refused
    FAULT = "fault"  # an error of the script itself


class NoReply(Enum):
    """How a call ends without a reply."""

    UNAVAILABLE = "unavailable"  # nothing was applied
    UNKNOWN = "unknown"  # it may have been applied
    FAULT = "fault"  # the server answered with an error outside the contract


class SendAgain(NamedTuple):
    """Send the same bytes again after a pause."""

    after_ms: int


class GiveUp(NamedTuple):
    """Stop sending."""

    outcome: NoReply


def trouble_of_reply(message: str) -> Trouble:
    """Classify an error reply by its first word, and one that has none of its own by its text."""
    code = message.split(" ", 1)[0]
    if code in _TRANSIENT:
        return Trouble.TRANSIENT
    if code in _REFUSED or message.startswith(_REFUSED_TEXT):
        return Trouble.REFUSED
    if _HALF_WAY_TEXT in message:
        return Trouble.UNANSWERED
    return Trouble.FAULT


@dataclass(slots=True)
class Delivery:
    """The sends of one call. `started_ns` and every `now_ns` are monotonic; `jitter` gives numbers in [0,
    1)."""

    started_ns: int
    jitter: Callable[[], float]
    deadline_ms: int = DEADLINE_MS
    errors: list[str] = field(default_factory=list[str])
    unanswered: int = 0

    @property
    def definite(self) -> bool:
        """True while no copy is unanswered: a refusal then says that nothing was applied (rules 5 and 31)."""
        return self.unanswered == 0

    def after(self, trouble: Trouble, message: str, now_ns: int) -> SendAgain | GiveUp:
        """The next step after a send that brought no usable reply."""
        self.errors.append(message)
        if trouble is Trouble.UNANSWERED:
            self.unanswered += 1
        if trouble is Trouble.FAULT:  # anchor: slots-that-move-are-no-fault
            return GiveUp(NoReply.FAULT if self.definite else NoReply.UNKNOWN)
        if trouble is Trouble.REFUSED:
            return GiveUp(NoReply.UNAVAILABLE if self.definite else NoReply.UNKNOWN)
        # Full jitter above half: clients of a server that comes back do not all arrive in the same
        # millisecond.
        most_ms = _SLOT_PAUSE_MOST_MS if message.startswith(_SLOT_WORDS) else _PAUSE_MOST_MS
        pause_ms = min(most_ms, _PAUSE_FIRST_MS * 2 ** min(len(self.errors) - 1, 10))
        pause_ms = int(pause_ms * (0.5 + self.jitter() / 2))
        if (now_ns - self.started_ns) // 1_000_000 + pause_ms >= self.deadline_ms:
            return GiveUp(NoReply.UNAVAILABLE if self.definite else NoReply.UNKNOWN)
        return SendAgain(pause_ms)


# -- Durability "replica" (rule 8): a call that writes counts as answered when a replica has what it
# wrote. No socket: the drivers send the words of `after` behind their calls, on the same connection, and
# let `judge` look at what came.
#
# A call that a replica has not confirmed is sent again by its identity, and its outcome is unknown in the
# end. Such a repeat may find nothing left to write, and WAIT on a new connection then says 1 with the replica
# frozen. So each send writes one key as well.


class NotReplicated(Exception):
    """Stands for the reply of a call that no replica has confirmed: a failover would decide whether it was
    applied."""


class Durability:
    """`witness` writes one key whenever it is sent; `wait_ms`: how long each send waits for a replica."""

    def __init__(self, witness: Call[Any], wait_ms: int) -> None:
        self.wait_ms = wait_ms
        self._words: tuple[tuple[object, ...], ...] = (witness.words(), ("WAIT", 1, wait_ms))

    def after(self, in_flight: Sequence[InFlightCall]) -> tuple[tuple[object, ...], ...]:
        """The commands to send behind these calls."""
        return self._words if any(_writes(in_flight_call.call) for in_flight_call in in_flight) else ()

    def judge(self, in_flight: Sequence[InFlightCall], replies: Sequence[Any]) -> Sequence[Any]:
        """The replies of the calls, with NotReplicated in place of each that a replica has not confirmed. A
        failure of the connection ends the replies early, as it did without this."""
        if not self.after(in_flight):
            return replies
        own, more = replies[: len(in_flight)], replies[len(in_flight) :]
        if len(more) == len(self._words) and isinstance(more[-1], int) and more[-1] > 0:
            return own
        errors = [message_of(reply) for reply in more if isinstance(reply, Exception)]
        doubt = NotReplicated(errors[0] if errors else f"no replica within {self.wait_ms} ms")
        return [
            doubt if not isinstance(reply, Exception) and _writes(in_flight_call.call) else reply
            for in_flight_call, reply in zip(in_flight, own, strict=False)
        ]


def _writes(call: Call[Any]) -> bool:
    return call.script is not None and call.script.writes


# -- Calls of one piece that are for several nodes of a cluster, or that ASK sends on: which node gets
# which, and their replies.

#: Where in a piece some calls stand.
Places = list[int]


def slots_of(in_flight: Sequence[InFlightCall], home: int) -> Callable[[int], int]:
    """The slot of the call at a place: that of its first key, `home` for a call without keys."""

    def slot(at: int) -> int:
        keys = in_flight[at].call.keys
        return slot_of(keys[0]) if keys else home

    return slot


def grouped(places: Iterable[int], slot: Callable[[int], int]) -> dict[int, Places]:
    """Places by slot, in their order."""
    found: dict[int, Places] = {}
    for at in places:
        found.setdefault(slot(at), []).append(at)
    return found


class Replies:
    """The replies to the calls of a piece, put in their places from exchanges of some of them."""

    def __init__(self, count: int) -> None:
        self.all: list[Any] = [None] * count

    def put(self, places: Places, replies: Sequence[Any]) -> None:
        """Take the replies of the calls at these places; a failure of the connection ends them early."""
        for at, place in enumerate(places):
            self.all[place] = replies[min(at, len(replies) - 1)]

    def asked(self, places: Places) -> dict[str, tuple[AskError, Places]]:
        """Those of these calls that are sent on, by the address of the node that imports their slot."""
        found: dict[str, tuple[AskError, Places]] = {}
        for place in places:
            error = self.all[place]
            if isinstance(error, AskError) and not isinstance(error, MovedError):
                found.setdefault(str(error).rsplit(" ", 1)[-1], (error, []))[1].append(place)
        return found


def asking(commands: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The commands, each let in by a node that imports their slot."""
    return [word for command in commands for word in (("ASKING",), command)]


def without_asking(replies: Sequence[Any]) -> list[Any]:
    """The replies to commands that `asking` has let in; the failure of a connection may have ended them
    anywhere."""
    return [*replies[1::2], *(replies[-1:] if len(replies) % 2 else ())]
