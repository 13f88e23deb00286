"""The server of an episode: real scripts on a real server; the time, the arrivals and the mishaps come from the simulator."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import redis

from chaos.simulate.chance import Fault, spread_ms
from chaos.simulate.clocked import clocked_text
from chaos.simulate.control import Control
from chaos.simulate.cutting import cut_text, without_chance
from chaos.simulate.line import Greeting, Line, Message, describe_name
from chaos.simulate.presence import Clients
from chaos.simulate.profile import CLOCK_FORWARD_MS_MAX
from chaos.simulate.slot_move import NOT_LOCAL, Answer, SlotMove, error_of
from chaos.simulate.wire import Wire
from chaos.simulate.world import EPOCH_MS, MS, Found, World
from engine.errors import ScriptFault
from engine.observer import ServerIdentity
from engine.ops.base import Call, Operation
from engine.ops.claims import Wait
from engine.ops.workers import ListConnections
from engine.redis.exchange import message_of
from engine.redis.scripts import Script

_SAVED = "saved:"


class KeysState(Protocol):
    """The raw keys at one instant, as far as the server itself has to know them."""

    @property
    def raw(self) -> Mapping[str, Any]:
        """All keys by name."""
        ...

    @property
    def expires_ms(self) -> int:
        """When the next key expires; 0 for none."""
        ...

    def number(self, name: str) -> int:
        """The length of a list; 0 for none."""
        ...

    def members(self, name: str) -> tuple[str, ...]:
        """The members of a list or set; none for none."""
        ...


S = TypeVar("S", bound=KeysState)


@dataclass(frozen=True, slots=True)
class Reading(Generic[S]):
    """How the keys are read whose names begin with a prefix: by a script (ARGV: prefix, and '' or the time, by which it deletes
    first what has expired), whose reply `open` makes a state of, with the state before. `clocked`: the scripts have to be told
    the time behind their own arguments (chaos/simulate/clocked.py)."""

    prefix: str
    script: str
    empty: S
    open: Callable[[Any, S], S]
    clocked: bool = False


class Scripts:
    """The scripts of one model on one server, and those that stop in the middle, by the digests that calls name."""

    def __init__(self, wire: Wire, scripts: Mapping[str, Script], reading: Reading[Any]) -> None:
        self.reader = _digest(reading.script)
        self.whole: dict[str, str] = {}
        self.cut: dict[str, str] = {}
        wire.do("SCRIPT", "LOAD", reading.script)
        for script in scripts.values():
            text = without_chance(clocked_text(script.text) if reading.clocked else script.text)
            for digests, its_text in ((self.whole, text), (self.cut, cut_text(text))):
                digests[script.digest] = _digest(its_text)
                wire.do("SCRIPT", "LOAD", its_text)


@dataclass(frozen=True, slots=True)
class Delivery(Generic[S]):
    """One request as it was carried out, with the states before and after it. `reply` is None for an error, told by `error`."""

    message: Message
    operation: Operation
    reply: object
    error: str
    before: S
    after: S
    now_ms: int
    cut: bool
    #: How far the clock is behind the latest time that it would show by now had it never been set back.
    behind_ms: int


class ServerObserver(Protocol):
    """Checks what the server does."""

    def delivered(self, delivery: Delivery[Any]) -> None:
        """One request was carried out."""
        ...


class EraObserver(Protocol):
    """Goes back with a server that has lost its last writes."""

    def will_lose(self) -> None:
        """What is written from now on will be lost."""
        ...

    def new_era(self, state: Any) -> None:
        """A failover has taken the last writes back."""
        ...


class SimulatedServer(Generic[S]):
    """Takes messages in, in the order of their arrival. `observer` must be set before the first one, and `eras` where there are
    failovers."""

    def __init__(self, world: World, wire: Wire, model: Any, scripts: Scripts, reading: Reading[S], counts: Counter[str]) -> None:
        self.world = world
        self.model = model
        self.state = reading.empty
        self.observer: ServerObserver
        self.eras: EraObserver
        self.era = 0
        self.era_ns = 0
        self.offset_ms = 0
        #: When the clock was last set (monotonic).
        self.set_ns = 0
        self._lowest_ms = 0
        self._highest_ms = 0
        self._wire = wire
        self._scripts = scripts
        self._reading = reading
        self._counts = counts
        self._prefix = reading.prefix
        self._deliveries = 0
        self._stalled_until_ns = 0
        self._waiting: list[tuple[Message, tuple[str, ...], int]] = []
        self._lines: list[Line] = []
        self.clients = Clients(world)
        self.controls: list[Control] = []
        self._restore_at: int | None = None
        self._full_until: int | None = None
        # Sends, by line and number, that were answered with an error which says that nothing was applied.
        self._denied: set[tuple[str, int]] = set()
        self._slot = SlotMove(world, half_way="slot move half way" in world.profile.server)
        wire.ask([("FLUSHALL", "SYNC"), ("CONFIG", "SET", "maxmemory", "0")])

    def now_ms(self) -> int:
        """The time by the server's clock."""
        return EPOCH_MS + self.offset_ms + self.world.now_ns // MS

    @property
    def replid(self) -> str:
        """The replication id: another one in each era."""
        return f"{self.era:040x}"

    def correct_clock(self, forward_ms: int) -> None:
        """Somebody notices that the clock is behind and sets it right."""
        self._set_clock(self.offset_ms + forward_ms)
        self.world.note("server", "clock set right", f"{forward_ms} ms forward", fault=True)

    def _set_clock(self, offset_ms: int) -> None:
        self.offset_ms = offset_ms
        self._lowest_ms, self._highest_ms = min(self._lowest_ms, offset_ms), max(self._highest_ms, offset_ms)
        self.set_ns = self.world.now_ns

    def knows(self, line: Line) -> Line:
        """Lines whose connections break with the server."""
        self._lines.append(line)
        return line

    def tells(self, control: Control) -> None:
        """A worker's control connection reads what scripts publish."""
        self.controls.append(control)

    def arrive(self, message: Message) -> None:
        """A copy of a request reaches the server."""
        if self.world.now_ns < self._stalled_until_ns:
            self.world.at(self._stalled_until_ns, self.arrive, message)
            return
        call = message.call
        if call is None:
            head = next(iter(self.state.members("era")), "").encode()
            message.line.take_reply(message, Greeting(self.now_ms() * 1000, ServerIdentity("", self.replid, "master"), head))
        elif isinstance(call.operation, Wait):
            error = error_of(self._slot.answers(message))
            if error is not None:
                message.line.take_reply(message, error)
            else:
                self._wait(message, call.operation)
        elif isinstance(call.operation, ListConnections):
            message.line.take_reply(message, self.clients.look(message, call.operation))
        elif call.script is None:
            # What is noted of the queue in a key that all queues share.
            (reply,) = self._wire.ask([call.words()])
            message.line.take_reply(message, reply)
        else:
            self._deliver(message)

    def set_raw(self, *commands: tuple[Any, ...]) -> None:
        """Write raw keys, as somebody who is not the engine."""
        for reply in self._wire.ask(commands):
            if isinstance(reply, Exception):
                raise reply
        self.read()

    def prepare(self, call: Call[Any]) -> None:
        """Carry out a call before the episode begins: nothing happens to it."""
        assert call.script is not None
        more = (self.now_ms(),) if self._reading.clocked else ()
        words = ("EVALSHA", self._scripts.whole[call.script.digest], len(call.keys), *call.keys, *call.arguments, *more)
        self._wire.do(*words)

    def read(self, now_ms: int | str = "") -> None:
        """Read the state; with a time, expire first."""
        reply = self._wire.do("EVALSHA", self._scripts.reader, 0, self._prefix, now_ms)
        self.state = self._reading.open(reply, self.state)

    def settle(self) -> None:
        """No mishap lasts longer than this."""
        self._stalled_until_ns = self.world.now_ns
        if self._restore_at is not None:
            self._lose_tail()
        self._memory(full=False)
        self._slot.ends()

    def drop_waits(self, lines: tuple[Line, ...]) -> None:
        """Hear that the clients of these lines are gone."""
        self._waiting = [entry for entry in self._waiting if entry[0].line not in lines]

    # -- calls

    def _deliver(self, message: Message) -> None:
        sent = (message.line.name, message.number)
        if message.copy and sent in self._denied:
            # Such an error leaves no record by which a copy could be known, and a send that has been answered has no other copy:
            # the network alone makes none.
            return
        fault = None if message.copy else self.world.chance.fault("server", self._deliveries, self.world.profile.server)
        self._deliveries += 1
        if self._restore_at is not None and self._deliveries >= self._restore_at:
            self._lose_tail()
            # This message waits for the takeover as well: at once, it could lease a job in the very millisecond of a lost lease.
            self.world.at(self._stalled_until_ns, self.arrive, message)
            return
        if self._full_until is not None and self._deliveries >= self._full_until:
            self._memory(full=False)
        if fault is not None and self._strikes(fault, message):
            return
        if fault is not None and fault.kind == "cut script":
            self._carry_out(message, int(fault.size * 8))
        elif not self._sent_on(message):
            self._carry_out(message)

    def _sent_on(self, message: Message) -> bool:
        """Whether a slot that moves has kept the message from being carried out as a whole."""
        answer = self._slot.answers(message)
        if answer is Answer.PASSES:
            return False
        self._counts[f"slot {answer.value}"] += 1
        if answer is Answer.HALF_WAY:
            self._carry_out(message, self._slot.writes(), NOT_LOCAL)
            return True
        self.world.note(message.line.name, f"{describe_name(message.call)}#{message.number}", answer.value)
        error = error_of(answer)
        if error is None:
            self.world.at(self.world.now_ns + MS, self.arrive, message)
        else:
            self._denied.add((message.line.name, message.number))
            message.line.take_reply(message, error)
        return True

    def _carry_out(self, message: Message, cut: int | None = None, cut_error: Exception | None = None) -> None:
        """Run the script; with `cut` until it has written so often, and its client is then told `cut_error` if that is given."""
        call = message.call
        assert call is not None and call.script is not None
        now_ms = self.now_ms()
        arguments = list(call.arguments)
        if "now_ms" in call.script.arguments:
            arguments[call.script.arguments.index("now_ms")] = now_ms
        if self._reading.clocked:
            arguments.append(now_ms)
        digest = self._scripts.whole[call.script.digest]
        if cut is not None:
            digest = self._scripts.cut[call.script.digest]
            arguments.append(cut)
        commands: list[tuple[Any, ...]] = []
        if 0 < self.state.expires_ms <= now_ms:
            commands.append(("EVALSHA", self._scripts.reader, 0, self._prefix, now_ms))
        commands.append(("EVALSHA", digest, len(call.keys), *call.keys, *arguments))
        commands.append(("EVALSHA", self._scripts.reader, 0, self._prefix, ""))
        replies = self._wire.ask(commands)
        if len(replies) == 3:
            self.state = self._reading.open(replies[0], self.state)
        raw, read = replies[-2:]
        before, self.state = self.state, self._reading.open(read, self.state)
        self.world.steps += 1
        error = message_of(raw) if isinstance(raw, redis.ResponseError) else ""
        if error.startswith("OOM"):
            self._denied.add((message.line.name, message.number))
        try:
            reply = None if error else call.parse(raw)
        except ScriptFault as fault:
            raise Found("contract", str(fault)) from fault
        was_cut, behind_ms = cut is not None and bool(error), self._highest_ms - self.offset_ms
        delivery = Delivery(message, call.operation, reply, error, before, self.state, now_ms, was_cut, behind_ms)
        if "'PUBLISH'" in call.script.text:
            for channel, text in self._wire.published():
                for control in self.controls:
                    control.published(channel, text)
        self.observer.delivered(delivery)
        message.line.take_reply(message, cut_error if cut_error is not None and was_cut else raw)
        self._serve_waits()

    # -- waits

    def _wait(self, message: Message, wait: Wait) -> None:
        assert message.call is not None
        keys = tuple(str(word)[len(self._prefix) :] for word in message.call.arguments[1:-1])
        until_ns = self.world.now_ns + wait.block_ms * MS
        entry = (message, keys, until_ns)
        self._waiting.append(entry)
        self._serve_waits()
        if entry in self._waiting:
            self.world.at(until_ns, self._wait_over, entry)

    def _wait_over(self, entry: tuple[Message, tuple[str, ...], int]) -> None:
        if entry in self._waiting:
            self._waiting.remove(entry)
            entry[0].line.take_reply(entry[0], None)

    def _serve_waits(self) -> None:
        """Hand each marker to whoever has blocked for it longest."""
        for entry in list(self._waiting):
            full = next((key for key in entry[1] if self.state.number(key) > 0), None)
            if full is None:
                continue
            self._waiting.remove(entry)
            self._wire.do("LPOP", self._prefix + full)
            self.read()
            self.world.steps += 1
            self._counts["marker handed out"] += 1
            message = entry[0]
            taken = message.line.waits_for(message)
            self.world.note(message.line.name, f"Wait#{message.number}", "marker" if taken else "marker, nobody hears it")
            message.line.take_reply(message, [self._prefix + full, b"1"])

    # -- mishaps

    def _strikes(self, fault: Fault, message: Message) -> bool:
        """Whether the message has to come again later."""
        world = self.world
        if fault.kind == "cut script":
            world.note("server", "the next script is cut off", f"after {int(fault.size * 8)} writes", fault=True)
            world.disturbed(world.now_ns + 12_000 * MS)
            return False
        told = ""
        if fault.kind == "stall":
            length_ms = spread_ms(fault.size, 300, 30_000)
            self._stalled_until_ns = world.now_ns + int(length_ms * MS)
            world.disturbed(self._stalled_until_ns)
            told = f"{length_ms:.0f} ms"
            world.at(self._stalled_until_ns, self.arrive, message)
        elif fault.kind.startswith("clock"):
            told = self._step_clock(fault)
        elif fault.kind == "failover" and self._restore_at is None:
            told = self._begin_losing(1 + int(fault.size * world.profile.lost_most))
        elif fault.kind.startswith("slot move"):
            told = self._slot.begins(fault.size, self._lines)
            for entry in self._waiting:
                entry[0].line.take_reply(entry[0], error_of(Answer.MOVED))
            self._waiting.clear()
        elif fault.kind == "memory" and self._full_until is None:
            self._full_until = self._deliveries + 5 + int(fault.size * 80)
            self._memory(full=True)
            told = "full"
            world.disturbed(world.now_ns + MS)
        world.note("server", fault.kind, told, fault=True)
        return fault.kind == "stall"

    def _step_clock(self, fault: Fault) -> str:
        length_ms = int(spread_ms(fault.size, 500, 3_600_000))
        if fault.kind == "clock back":
            self._set_clock(self.offset_ms - length_ms)
        else:
            self._set_clock(min(self.offset_ms + length_ms, self._lowest_ms + CLOCK_FORWARD_MS_MAX))
        self.world.disturbed(self.world.now_ns + MS)
        return f"to {self.offset_ms} ms from the start"

    def _begin_losing(self, deliveries: int) -> str:
        names = [self._prefix + name for name in self.state.raw]
        if names:
            self.set_raw(*(("COPY", name, _SAVED + name, "REPLACE") for name in names))
        self._restore_at = self._deliveries + deliveries
        self.eras.will_lose()
        return f"what the next {deliveries} deliveries write will be lost"

    def _lose_tail(self) -> None:
        """Another server takes over, without the last writes; all connections break."""
        self._restore_at = None
        saved = self._wire.do("KEYS", _SAVED + "*")
        names = [self._prefix + name for name in self.state.raw]
        commands: list[tuple[Any, ...]] = [("DEL", *names)] if names else []
        commands += [("RENAME", name, name[len(_SAVED) :]) for name in sorted(saved)]
        self.set_raw(*commands)
        self.era += 1
        self.era_ns = self.world.now_ns
        self._waiting.clear()
        self.world.note("server", "failover", f"era {self.era} begins without the last writes", fault=True)
        self.world.disturbed(self.world.now_ns + MS)
        for line in self._lines:
            line.process.disturbed(self.world.now_ns + MS)
            line.breaks()
        least_ms, most_ms = self.world.profile.takeover_clock_ms
        if least_ms < most_ms:
            ahead_ms = least_ms + int((most_ms - least_ms) * self.world.chance.draw("takeover clock", self.era))
            self._set_clock(self.offset_ms + ahead_ms)
            self.world.note("server", "its clock", f"is {ahead_ms} ms ahead of the one before")
        self.eras.new_era(self.state)
        # Nobody takes over within the same millisecond.
        length_ms = spread_ms(self.world.chance.draw("takeover", self.era), 20, 8_000)
        self._stalled_until_ns = self.world.now_ns + int(length_ms * MS)
        self.world.disturbed(self._stalled_until_ns)
        self.clients.new_era()
        for control in self.controls:
            control.breaks(self._stalled_until_ns)

    def _memory(self, *, full: bool) -> None:
        self._wire.do("CONFIG", "SET", "maxmemory", "1" if full else "0")
        if not full and self._full_until is not None:
            self._full_until = None
            self.world.note("server", "memory", "free again", fault=True)
            self.world.disturbed(self.world.now_ns + MS)


def _digest(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
