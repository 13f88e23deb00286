"""The synchronous driver: runs calls on a server, one connection per call, and re-sends by the decisions of `delivery`.

Nothing else of the engine touches a socket. Safe from threads and from gevent greenlets.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import redis

from engine.call import Call
from engine.connections import Connections
from engine.delivery import DEADLINE_MS, Delivery, GiveUp, Trouble, Verdict, trouble_of_reply
from engine.errors import EngineError, OutcomeUnknown, ScriptFault, ServerUnavailable, UnsafeServer
from engine.observer import Observer, Outcome
from engine.operations import Reply
from engine.scripts import Script
from engine.server_clock import ServerClock

T = TypeVar("T")

#: A reply that takes longer than this counts as lost, and the call is sent again on a new connection.
TIMEOUT_MS = 2_000


class Sent:
    """What a finished call cost: used by workers, which count leases from the first send (rule 9)."""

    __slots__ = ("definite", "done_ns", "first_send_ns", "reply")

    def __init__(self, reply: Any, first_send_ns: int, done_ns: int, definite: bool) -> None:
        self.reply = reply
        self.first_send_ns = first_send_ns
        self.done_ns = done_ns
        self.definite = definite


class SyncDriver:
    """Runs calls. `block_ms_max` widens the reply timeout for calls that block on the server."""

    def __init__(
        self,
        url: str,
        scripts: Iterable[Script],
        *,
        observer: Observer | None = None,
        clock: ServerClock | None = None,
        timeout_ms: int = TIMEOUT_MS,
        deadline_ms: int = DEADLINE_MS,
        block_ms_max: int = 0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.clock = clock or ServerClock()
        self.deadline_ms = deadline_ms
        self._observer = observer
        self._pause = pause
        self._block_ms_max = block_ms_max
        timeout_ms += block_ms_max
        self._connections = Connections(url, scripts, clock=self.clock, observer=observer, timeout_ms=timeout_ms)

    def run(self, call: Call[T], intended_ns: int | None = None) -> T:
        """The parsed reply. Raises OutcomeUnknown, ServerUnavailable, ScriptFault or UnsafeServer."""
        return cast("T", self.send(call, intended_ns).reply)

    def server_now_ms(self) -> int:
        """The server's time, never ahead of it; the first use connects."""
        if not self.clock.known:
            self._learn_time()
        return self.clock.now_ms(time.monotonic_ns())

    def close(self) -> None:
        """Close the idle connections."""
        self._connections.close()

    def send(self, call: Call[Any], intended_ns: int | None = None, *, again: bool = False) -> Sent:
        """Run a call and say when it was first sent. Raises as `run` does.

        A call that blocks for longer than this driver waits is a ScriptFault: its reply would be taken for lost.
        `again`: a copy of this call from an earlier `send` is still unanswered, so a refusal says nothing definite (rule 5).
        """
        if call.block_ms > self._block_ms_max:
            raise ScriptFault(
                f"{type(call.operation).__name__}: blocks {call.block_ms} ms, this driver waits {self._block_ms_max} ms"
            )
        first_send_ns = last_send_ns = time.monotonic_ns()
        observer = self._observer
        ticket = observer.invoked(call, first_send_ns, intended_ns) if observer is not None else None
        delivery = Delivery(first_send_ns, random.random, self.deadline_ms, unanswered=int(again))
        sends = 0
        reply: Reply | None = None
        failure: EngineError | None = None
        while reply is None and failure is None:
            last_send_ns = time.monotonic_ns()
            trouble, answer, cause = self._exchange(call)
            if trouble is not Trouble.NOT_SENT:
                sends += 1
            if trouble is None:
                try:
                    reply = call.parse(answer)
                except ScriptFault as error:
                    failure = error
            elif isinstance(cause, UnsafeServer):
                failure = cause if delivery.definite else OutcomeUnknown(f"{type(call.operation).__name__}: {cause}")
            else:
                failure = self._next(call, delivery, trouble, cause)
        done_ns = time.monotonic_ns()
        if reply is not None:
            self._learn(reply, done_ns)
        if observer is not None:
            applied = True if reply is not None else False if isinstance(failure, ServerUnavailable | UnsafeServer) else None
            errors = tuple(delivery.errors)
            outcome = Outcome(
                reply, str(failure or ""), delivery.definite, applied, sends, errors, first_send_ns, last_send_ns, done_ns
            )
            observer.completed(call, ticket, outcome)
        if failure is not None:
            raise failure
        return Sent(reply, first_send_ns, done_ns, delivery.definite)

    def _exchange(self, call: Call[Any]) -> tuple[Trouble | None, Any, Exception | None]:
        """One send: (None, reply, None), or the trouble and its cause."""
        try:
            connection = self._connections.take()
        except UnsafeServer as error:
            return Trouble.NOT_SENT, None, error
        except (redis.RedisError, OSError) as error:
            return (trouble_of_reply(_coded(error)) if _is_reply(error) else Trouble.NOT_SENT), None, error
        try:
            connection.send_command(*call.words())
            reply = connection.read_response()
        except (redis.RedisError, OSError) as error:
            if _is_reply(error):
                trouble = trouble_of_reply(_coded(error))
                if trouble is Trouble.TRANSIENT:
                    # The next connection loads the scripts again (rule 28).
                    connection.disconnect()
                self._connections.give_back(connection)
                return trouble, None, error
            connection.disconnect()
            return Trouble.UNANSWERED, None, error
        except BaseException:
            # A killed greenlet or an interrupt: the reply may still come, so the connection is not for others.
            connection.disconnect()
            raise
        self._connections.give_back(connection)
        return None, reply, None

    def _next(self, call: Call[Any], delivery: Delivery, trouble: Trouble, cause: Exception | None) -> EngineError | None:
        """Wait before the next send (None), or say how the call ends."""
        message = _coded(cause) if cause is not None and _is_reply(cause) else f"{type(cause).__name__}: {cause}"
        step = delivery.after(trouble, message, time.monotonic_ns())
        if not isinstance(step, GiveUp):
            self._pause(step.after_ms / 1000)
            return None
        what = type(call.operation).__name__
        if step.verdict is Verdict.FAULT:
            return ScriptFault(f"{what}: the server answered {message}")
        if step.verdict is Verdict.UNKNOWN:
            lost = f"{delivery.unanswered} of {len(delivery.errors)} sends unanswered"
            return OutcomeUnknown(f"{what}: {lost}, last error {message}")
        return ServerUnavailable(f"{what}: {len(delivery.errors)} tries, nothing was applied, last error {message}")

    def _learn(self, reply: Reply, arrival_ns: int) -> None:
        srv_us = getattr(reply, "srv_us", None)
        if isinstance(srv_us, int):
            self.clock.learn(srv_us, arrival_ns)

    def _learn_time(self) -> None:
        """Connect until a handshake has told the server's time."""
        delivery = Delivery(time.monotonic_ns(), random.random, self.deadline_ms)
        while not self.clock.known:
            try:
                self._connections.give_back(self._connections.take())
            except (redis.RedisError, OSError) as error:
                trouble = trouble_of_reply(_coded(error)) if _is_reply(error) else Trouble.NOT_SENT
                step = delivery.after(trouble, str(error), time.monotonic_ns())
                if isinstance(step, GiveUp):
                    raise ServerUnavailable(f"cannot connect, nothing was applied: {_coded(error)}") from error
                self._pause(step.after_ms / 1000)


def _is_reply(error: BaseException) -> bool:
    """True for an error that the server sent, False for a connection that failed."""
    return isinstance(error, redis.ResponseError) or getattr(error, "status_code", None) is not None


def _coded(error: BaseException) -> str:
    """The server's error with its code, which redis-py cuts off for the codes that it knows."""
    code = getattr(error, "status_code", None)
    text = str(error)
    return f"{code} {text}" if isinstance(code, str) and not text.startswith(code) else text
