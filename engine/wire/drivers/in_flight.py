"""One call on its way: what its driver does after each send, what its observer hears, and how it ends. No socket, no waiting.

The three ways to run calls (synchronous, asyncio, many in one pipeline) differ in how they send and how they wait. What they
decide is here and in `delivery`, once.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.exceptions import AskError, TryAgainError

from engine.errors import EngineError, OutcomeUnknown, ScriptFault, ServerUnavailable, UnsafeServer, WrongKeyType
from engine.observer import Intended, Observer, Outcome
from engine.server_clock import ServerClock
from engine.wire.call import Call
from engine.wire.drivers.client_errors import message_of, trouble_of
from engine.wire.drivers.delivery import Delivery, GiveUp, Trouble, Verdict

_INNER_CAPITAL = re.compile("(?<=[a-z])(?=[A-Z])")
_OF_SLOTS = (AskError, TryAgainError)
#: Calls that go out together.
PIPELINE_MAX = 100


class Sent(NamedTuple):
    """What an answered call cost: used by workers, which count leases from the first send (rule 9). Times are monotonic ns;
    `definite`: no copy of the call is unanswered."""

    reply: Any
    first_send_ns: int
    done_ns: int
    definite: bool

    @property
    def came_late(self) -> bool:
        """True for a refusal with no copy unanswered: the estimate of the server's time was off. It has been learned anew, so
        start once more (rule 3)."""
        return self.definite and getattr(self.reply, "refused", False)


class NotSent(Exception):
    """Stands for the reply of a call that was not sent because there was no connection; its cause says why."""


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

    Raises ScriptFault for a call that blocks longer than its driver waits: its reply would be taken for lost. `again`: a copy
    of this call that was sent earlier is still unanswered, so a refusal says nothing definite (rule 5).
    """

    __slots__ = (
        *("call", "ended", "_again", "_clock", "_deadline_ms", "_delivery", "_done_ns", "_failure", "_first_send_ns"),
        *("_last_send_ns", "_mark", "_observer", "_reply", "_sends", "_ticket"),
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
            raise ScriptFault(f"{_name(call)}: blocks {call.block_ms} ms, this driver waits {block_ms_max} ms")
        self.call = call
        #: Nothing is left to send: `sent` has the reply or raises.
        self.ended = False
        self._clock = clock
        self._mark = clock.watch.mark_of(call) if clock.watch is not None else None
        self._observer = observer
        self._deadline_ms = deadline_ms if call.patient else 0
        self._again = again
        self._first_send_ns = self._last_send_ns = time.monotonic_ns()
        self._ticket = observer.invoked(call, self._first_send_ns, intended_ns) if observer is not None else None
        # Made at the first trouble: most calls have none.
        self._delivery: Delivery | None = None
        self._sends = 0
        self._reply: Any = None
        self._failure: EngineError | None = None
        self._done_ns = 0

    def leaves_again(self) -> None:
        """Count another send of the call."""
        self._last_send_ns = time.monotonic_ns()

    def returns(self, reply: Any) -> float:
        """Take what a send brought: a reply as it came, NotSent, or another exception. Unless the call has `ended`, send again
        after the pause that this returns, in seconds."""
        if not isinstance(reply, NotSent):  # anchor: redirection-is-no-answer
            self._sends += 1
        if not isinstance(reply, Exception):
            try:
                self._reply = self.call.parse(reply)
            except ScriptFault as error:
                self._failure = error
            else:
                if self._clock.watch is not None:
                    self._clock.watch.answered(self.call, reply, self._mark)
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

    @property
    def _definite(self) -> bool:
        return not self._again if self._delivery is None else self._delivery.definite

    def _step(self, error: Exception) -> float | EngineError:
        """Decide the pause before the next send, or end the call."""
        if self._delivery is None:
            self._delivery = Delivery(self._first_send_ns, random.random, self._deadline_ms, unanswered=int(self._again))
        delivery, what = self._delivery, _name(self.call)
        sent = not isinstance(error, NotSent)
        cause = error if sent or not isinstance(error.__cause__, Exception) else error.__cause__
        if isinstance(cause, UnsafeServer):
            return cause if delivery.definite else OutcomeUnknown(f"{what}: {cause}")
        message = message_of(cause)
        step = delivery.after(trouble_of(cause, sent=sent), message, time.monotonic_ns())
        if not isinstance(step, GiveUp):
            return step.after_ms / 1000
        if step.verdict is Verdict.FAULT:
            fault = WrongKeyType if message.startswith("WRONGTYPE") else ScriptFault
            return fault(f"{what}: the server answered {message}")
        if step.verdict is Verdict.UNKNOWN:
            lost = f"{delivery.unanswered} of {len(delivery.errors)} sends unanswered"
            return OutcomeUnknown(f"{what}: {lost}, last error {message}")
        return ServerUnavailable(f"{what}: {len(delivery.errors)} tries, nothing was applied, last error {message}")

    def _end(self) -> None:
        self.ended = True
        self._done_ns = time.monotonic_ns()
        srv_us = getattr(self._reply, "srv_us", None)
        if isinstance(srv_us, int):
            self._clock.learn(srv_us, self._done_ns)
        if self._observer is None:
            return
        failure = self._failure
        applied = True if failure is None else False if isinstance(failure, ServerUnavailable | UnsafeServer) else None
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
    """Hand out what calls that went out together brought; the pause before the next send in seconds, 0 when all have ended:
    the longest of theirs, so that they go out together again.

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
        """The pause before the next try, in seconds. Raises ServerUnavailable at the deadline, and UnsafeServer at once."""
        if isinstance(error, UnsafeServer):
            raise error
        message = message_of(error)
        step = self._delivery.after(trouble_of(error, sent=False), message, time.monotonic_ns())
        if isinstance(step, GiveUp):
            raise ServerUnavailable(f"cannot connect, nothing was applied: {message}") from error
        return step.after_ms / 1000


def _name(call: Call[Any]) -> str:
    """The name of the operation in error messages."""
    return call.operation.label or _INNER_CAPITAL.sub(" ", type(call.operation).__name__).lower()
