"""A connection of one process and the calls on it, one at a time, by the decisions of `engine.redis.exchange`: what the
synchronous driver does, with messages in place of a socket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import redis

from chaos.simulate.chance import spread_ms
from chaos.simulate.world import MS, Found, World
from engine.errors import EngineError, ScriptFault
from engine.observer import ServerIdentity
from engine.ops.base import Call, ServerClock
from engine.redis.endpoint import DEADLINE_MS, TIMEOUT_MS
from engine.redis.exchange import InFlightCall, Sent, not_sent

Outcome = Sent | EngineError


class Process:
    """Something with lines that can be frozen, cut off and killed."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.born_ns = world.now_ns
        self.died_ns = 0
        self._frozen_until_ns = 0
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.cut_until_ns = 0
        #: When the last fault that touched this process had spent its force.
        self.trouble_ns = 0

    def at(self, when_ns: int, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at a time, if the process still lives and as soon as it is not frozen."""
        self.world.at(when_ns, self._happen, action, arguments)

    def disturbed(self, until_ns: int) -> None:
        """A fault touches this process until then."""
        self.trouble_ns = max(self.trouble_ns, until_ns)
        self.world.disturbed(until_ns)

    def _happen(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self.alive:
            return
        if self.world.now_ns < self._frozen_until_ns:
            self._held.append((action, arguments))
        else:
            action(*arguments)

    def freeze(self, until_ns: int) -> None:
        """Nothing happens here until then; what was to happen meanwhile then does, late and in its order."""
        self._frozen_until_ns = until_ns
        self.world.at(until_ns, self.thaw)

    def thaw(self) -> None:
        """Go on, at once."""
        self._frozen_until_ns = min(self._frozen_until_ns, self.world.now_ns)
        held, self._held = self._held, []
        for action, arguments in held:
            self.world.at(self.world.now_ns, self._happen, action, arguments)


@dataclass(slots=True)
class Message:
    """One copy of a request on its way. `call` None: the handshake of a new connection. `number`: which send of the line."""

    line: Line
    attempt: int
    number: int
    call: Call[Any] | None
    copy: int
    reply_ns: int
    reply_lost: bool
    first_send_ns: int


class Greeting(NamedTuple):
    """What a handshake brings: the server's time, who it is, and the latest entry of `era`."""

    srv_us: int
    server: ServerIdentity
    head: bytes


class Line:
    """One slot of a process. `carry` one call at a time; `done` hears what came of it. `arrive` takes in what reaches the
    server."""

    def __init__(
        self, process: Process, arrive: Callable[[Message], None], slot: str, clock: ServerClock, block_ms_max: int = 0
    ) -> None:
        self.process = process
        self._arrive = arrive
        self.name = f"{process.name}.{slot}"
        self._world = process.world
        self._clock = clock
        self._block_ms_max = block_ms_max
        self._connected = False
        # The message under way is the handshake of a new connection.
        self._greeting = False
        # Its second part: what the watch asks of a server that it does not know. Lines that only wait have none.
        self._asks = False
        self._watch = clock.watch if not block_ms_max else None
        self._attempt = 0
        self._sends = 0
        self._in_flight: InFlightCall | None = None
        self._done: Callable[[Outcome], None] | None = None

    def carry(self, call: Call[Any], done: Callable[[Outcome], None], *, again: bool = False) -> None:
        """Run a call. Once it is over `done` is called, as an event of the process."""
        self._in_flight = InFlightCall(call, self._clock, None, DEADLINE_MS, self._block_ms_max, None, again)
        self._done = done
        self._leave()

    def greet(self, done: Callable[[], None]) -> None:
        """Shake hands again and again until the server has told its time."""
        self._done = lambda _: done()
        self._leave()

    @property
    def busy(self) -> bool:
        """Whether a call is on its way."""
        return self._in_flight is not None

    def waits_for(self, message: Message) -> bool:
        """Whether the reply to this message would still be read."""
        return self.process.alive and message.attempt == self._attempt and not message.copy

    def breaks(self) -> None:
        """The connection fails under the call that it carries."""
        if self._in_flight is not None or self._done is not None:
            self.process.at(self._world.now_ns + MS // 10, self._failed, self._attempt, "ConnectionError")
        self._connected = False

    def _leave(self) -> None:
        self._attempt += 1
        self._asks = False
        call = self._in_flight.call if self._connected and self._in_flight is not None else None
        self._greeting = call is None
        timeout_ms = TIMEOUT_MS + (self._block_ms_max if call is not None else 0)
        self.process.at(self._world.now_ns + timeout_ms * MS, self._failed, self._attempt, "TimeoutError")
        self._send(call)

    def _send(self, call: Call[Any] | None) -> None:
        world, chance = self._world, self._world.chance
        number, self._sends = self._sends, self._sends + 1
        now_ns = world.now_ns
        there_ns = now_ns + int(spread_ms(chance.draw(self.name, number, 1), 0.03, 3) * MS)
        back_ns = int(spread_ms(chance.draw(self.name, number, 2), 0.03, 3) * MS)
        message = Message(self, self._attempt, number, call, 0, back_ns, False, now_ns)
        fault = chance.fault(self.name, number, world.profile.network)
        # A wait that is lost shows when its block is over, and one that nobody hears takes a marker until then.
        blocks_ns = self._block_ms_max * MS
        if now_ns < self.process.cut_until_ns:
            self.process.disturbed(self.process.cut_until_ns + blocks_ns)
            return None
        lost = False
        if fault is not None:
            late_ms = spread_ms(fault.size, 5, world.profile.latest_ms)
            told, effect_ns = f"{late_ms:.0f} ms late", now_ns + int(late_ms * MS)
            match fault.kind:
                case "lose request":
                    lost, told, effect_ns = True, "", now_ns + TIMEOUT_MS * MS
                case "lose reply":
                    message.reply_lost, told, effect_ns = True, "", now_ns + TIMEOUT_MS * MS
                case "late request":
                    there_ns = effect_ns
                case "late reply":
                    message.reply_ns = int(late_ms * MS)
                case "copy":
                    if call is None or call.script is None:
                        return self._dispatch(message, there_ns)
                    copy = Message(self, self._attempt, number, call, 1, back_ns, True, now_ns)
                    world.at(effect_ns, self._arrive, copy)
                case _:
                    told, effect_ns = "", now_ns + MS
                    self.process.at(now_ns + int(fault.size * 3 * MS), self._failed, self._attempt, "ConnectionError")
            self.process.disturbed(effect_ns + blocks_ns)
            what = describe_name(call)
            world.note(self.name, f"{fault.kind} of {what}#{number}", told, fault=True)
        if not lost:
            self._dispatch(message, there_ns)
        return None

    def _dispatch(self, message: Message, there_ns: int) -> None:
        self._world.at(there_ns, self._arrive, message)

    # -- what comes back

    def take_reply(self, message: Message, reply: Any) -> None:
        """A reply leaves the server."""
        if message.copy or message.reply_lost:
            return
        self.process.at(self._world.now_ns + message.reply_ns, self._answered, message.attempt, reply)

    def _answered(self, attempt: int, reply: Any) -> None:
        if attempt != self._attempt:
            return
        if self._greeting:
            if self._asks and self._watch is not None:
                self._watch.concluded(reply)
            elif self._met(reply):
                return
            self._connected = True
            if self._in_flight is not None:
                self._leave()
            else:
                self._over(None)
            return
        self._returns(reply)

    def _met(self, greeting: Greeting) -> bool:
        """Whether something is to be asked of this server before the first call."""
        self._clock.learn(greeting.srv_us, self._world.now_ns)
        asked: tuple[Any, ...] = self._watch.greeted(greeting.server, [greeting.head]) if self._watch is not None else ()
        if asked:
            self._attempt += 1
            self._asks = True
            self.process.at(self._world.now_ns + TIMEOUT_MS * MS, self._failed, self._attempt, "TimeoutError")
            self._send(asked[0])
        return bool(asked)

    def _failed(self, attempt: int, why: str) -> None:
        if attempt != self._attempt or self._done is None:
            return
        error = (
            redis.TimeoutError("Timeout reading from socket")
            if why == "TimeoutError"
            else redis.ConnectionError("Connection lost")
        )
        if self._in_flight is None:
            self._attempt += 1
            self.process.at(self._world.now_ns + 200 * MS, self._leave)
        else:
            self._connected = False
            self._returns(not_sent(error) if self._greeting else error)

    def _returns(self, reply: Any) -> None:
        in_flight = self._in_flight
        assert in_flight is not None
        self._attempt += 1
        pause_s = in_flight.returns(reply)
        if in_flight.ended:
            self._over(in_flight.outcome())
        else:
            self.process.at(self._world.now_ns + int(pause_s * 1000 * MS), self._leaves_again)

    def _leaves_again(self) -> None:
        if self._in_flight is not None:
            self._in_flight.leaves_again()
            self._leave()

    def _over(self, outcome: Any) -> None:
        self._attempt += 1
        done, self._done, self._in_flight = self._done, None, None
        profile = self._world.profile
        if isinstance(outcome, ScriptFault) and not (profile.full_queue or "cut script" in profile.server):
            # Rules 1 and 27: what a slot that moves, or a failure, answers is not for the caller.
            raise Found("fault", f"{self.name}: {outcome}")
        if done is not None:
            done(outcome)


def describe_name(call: Call[Any] | None) -> str:
    """What a call is called in the trace."""
    return "Hello" if call is None else type(call.operation).__name__
