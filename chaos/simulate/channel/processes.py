"""The publishers and subscribers of an episode: what `Channel` does, through the steps of `engine.channel`."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any, Protocol
from unittest.mock import patch

from chaos.simulate.chance import spread_ms
from chaos.simulate.channel.profiles import PlannedPublish
from chaos.simulate.channel.state import CHANNEL, ChannelState
from chaos.simulate.line import Line, Outcome, Process
from chaos.simulate.server import SimulatedServer
from chaos.simulate.world import MS, World
from engine.channel import contents, steps
from engine.channel.session_state import SessionState
from engine.channel.steps import OneStorage, Rest, Send, SendMany, Steps, waiting
from engine.errors import EngineError
from engine.models import dsps
from engine.ops.base import DeadlineBound, Operation, ServerClock
from engine.ops.channels import Acknowledged, Fetched, NewMessage, Published, Subscribed
from engine.redis.endpoint import DEADLINE_MS

STORAGE = "default"
#: Keys live longer than any episode.
TTL_S = dsps.ttl_s(dsps.ChannelRule().expire_ms)
#: Whoever has failed tries again after this.
_AGAIN_MS = 400
_WAIT_MS = 2_000


class CallersObserver(Protocol):
    """Checks what callers are told."""

    def told(self, message: NewMessage, published: Published) -> None:
        """A publisher hears what came of a message."""
        ...

    def received(self, process: Subscriber, fetched: Fetched) -> None:
        """A subscriber is given messages."""
        ...

    def acknowledged(self, process: Subscriber, receipt: str, came: Acknowledged) -> None:
        """A subscriber hears what came of a receipt."""
        ...


class ChannelProcess(Process):
    """A process with a channel open: carries out steps, one after the other."""

    def __init__(self, world: World[Any], server: SimulatedServer[ChannelState], name: str) -> None:
        super().__init__(world, name)
        self._server = server
        self._clock = ServerClock(None)
        self._nonces = count(1)
        self._events = 0
        self._plan = OneStorage(CHANNEL, STORAGE, SessionState(TTL_S, lambda: self.world.now_ns))

    def carry_out(self, steps: Steps[Any], line: Line, then: Callable[[Any], None]) -> None:
        """Run steps on a line; what they return, or the error that they raise, is given on."""

        def go_on(answer: Any) -> None:
            self.world.steps += 1
            try:
                with self._patched():
                    ask = steps.throw(answer) if isinstance(answer, EngineError) else steps.send(answer)
            except StopIteration as end:
                then(end.value)
                return
            except EngineError as error:
                then(error)
                return
            match ask:
                case Send(_, one):
                    self._send(one, line, go_on)
                case SendMany(_, asks):
                    self._send_all(list(asks), line, [], go_on)
                case Rest(_, deaf_ms):
                    self.at(self.world.now_ns + deaf_ms * MS, go_on, True)
                case _:
                    raise AssertionError(ask)

        if self._clock.known:
            go_on(None)
        else:
            line.greet(lambda: go_on(None))

    def _send(self, operation: Operation, line: Line, then: Callable[[Outcome], None], *, first: bool = True) -> None:
        def done(outcome: Outcome) -> None:
            if first and not isinstance(outcome, EngineError) and outcome.came_late:
                self._send(operation, line, then, first=False)
            else:
                then(outcome)

        leaves = operation
        if isinstance(operation, DeadlineBound):
            leaves = operation.stamped(self._clock.now_ms(self.world.now_ns) + DEADLINE_MS)
        line.carry(self._server.model.call(leaves), done)

    def _send_all(self, asks: list[Operation], line: Line, outcomes: list[Any], then: Callable[[list[Any]], None]) -> None:
        if not asks:
            then(outcomes)
            return
        self._send(asks[0], line, lambda outcome: self._send_all(asks[1:], line, [*outcomes, outcome], then))

    def _patched(self) -> Any:
        """Nonces and times of the steps are the episode's."""
        nonce = f"{int(self.world.chance.draw('nonce ' + self.name, next(self._nonces)) * (1 << 53)):016x}"
        secrets, times = SimpleNamespace(token_hex=lambda _: nonce), SimpleNamespace(monotonic_ns=lambda: self.world.now_ns)
        return patch.multiple(steps, secrets=secrets, time=times)


class Publisher(ChannelProcess):
    """Publishes what is planned, each call again until it is known what came of it, as its documentation tells callers to."""

    def __init__(self, world: World[Any], server: SimulatedServer[ChannelState], judge: CallersObserver, name: str) -> None:
        super().__init__(world, server, name)
        self._judge = judge
        self.open = 0

    def does(self, action: PlannedPublish) -> None:
        """Take on a call, from now on."""
        self.open += 1
        line = self._server.knows(Line(self, self._server.arrive, f"call{action.number}", self._clock))
        messages = tuple(NewMessage(id, contents.written({"of": id, "by": action.number})) for id in action.messages)
        self.at(self.world.now_ns + action.at_ms * MS, self._publish, messages, line)

    def _publish(self, messages: tuple[NewMessage, ...], line: Line) -> None:
        def hears(came: list[Published] | EngineError) -> None:
            if isinstance(came, EngineError):
                self.world.note(line.name, "is told", type(came).__name__, tuple(message.id for message in messages))
                self.at(self.world.now_ns + _AGAIN_MS * MS, self._publish, messages, line)
                return
            self.open -= 1
            for message, published in zip(messages, came, strict=True):
                self.world.note(line.name, f"hears of {message.id}", f"{published.result} {published.clock}", (message.id,))
                self._judge.told(message, published)

        self.carry_out(self._plan.publish_many([messages], None), line, hears)


class Subscriber(ChannelProcess):
    """Fetches and acknowledges. `gone` hears when it has died. Another one then goes on under the same `subscriber`."""

    def __init__(
        self,
        world: World[Any],
        server: SimulatedServer[ChannelState],
        judge: CallersObserver,
        subscriber: str,
        number: int,
        gone: Callable[[Subscriber], None],
    ) -> None:
        super().__init__(world, server, f"{subscriber}.{number}")
        self.subscriber = subscriber
        self._judge = judge
        self._gone = gone
        self._receipts: list[str] = []
        self._line = server.knows(Line(self, server.arrive, "work", self._clock))
        self.at(world.now_ns, self._subscribe)

    def _subscribe(self) -> None:
        def hears(came: Subscribed | EngineError) -> None:
            if isinstance(came, EngineError):
                self.at(self.world.now_ns + _AGAIN_MS * MS, self._subscribe)
                return
            self.world.note(self.name, "subscribes", f"{'created' if came.created else 'exists'} at {came.clock}")
            self._fetch()

        self.carry_out(self._plan.subscribe(self.subscriber), self._line, hears)

    def _fetch(self) -> None:
        if not self._lives_on():
            return
        most = 1 + int(self._draw(1) * self.world.profile.most)
        wait_ms = int(self._draw(2) * _WAIT_MS)
        steps = waiting(
            lambda waited_ms: self._plan.fetch(self.subscriber, most, waited_ms),
            wait_ms,
            TTL_S,
            lambda: self.world.now_ns,
            lambda found: found.more_messages,
        )
        self.carry_out(steps, self._line, self._fetched)

    def _fetched(self, came: Fetched | EngineError) -> None:
        if isinstance(came, EngineError):
            self.world.note(self.name, "cannot fetch", type(came).__name__)
            self.at(self.world.now_ns + _AGAIN_MS * MS, self._fetch)
            return
        profile = self.world.profile
        self._judge.received(self, came)
        if came.messages:
            self.world.note(self.name, "receives", " ".join(f"{message.id}@{message.clock}" for message in came.messages))
        if not self._lives_on():
            return
        if came.receipt is None or (not self._server_healed() and self._draw(3) < profile.lazy):
            self.at(self.world.now_ns + int(spread_ms(self._draw(4), 1, 300) * MS), self._fetch)
            return
        receipts = [came.receipt]
        if self._draw(5) < profile.twice:
            receipts.append(came.receipt)
        if self._receipts and self._draw(6) < profile.old:
            receipts.append(self._receipts[int(self._draw(7) * len(self._receipts))])
        self._receipts.append(came.receipt)
        self._acknowledge(receipts)

    def _acknowledge(self, receipts: list[str]) -> None:
        if not receipts:
            self._fetch()
            return

        def hears(came: Acknowledged | EngineError) -> None:
            if not isinstance(came, EngineError):
                self._judge.acknowledged(self, receipts[0], came)
            self.world.note(self.name, "acknowledges", type(came).__name__ if isinstance(came, EngineError) else came.result)
            self._acknowledge(receipts[1:])

        self.carry_out(self._plan.acknowledge(self.subscriber, receipts[0]), self._line, hears)

    def _server_healed(self) -> bool:
        return self.world.chance.healed

    def _lives_on(self) -> bool:
        """Whether no mishap ends it here; one may also freeze it or cut it off."""
        self._events += 1
        fault = self.world.chance.fault(self.name, self._events, self.world.profile.process)
        if fault is None:
            return True
        if fault.kind == "kill":
            self.world.note(self.name, "killed", "SIGKILL", fault=True)
            self.alive, self.died_ns = False, self.world.now_ns
            self.disturbed(self.world.now_ns)
            self._gone(self)
            return False
        until_ns = self.world.now_ns + int(spread_ms(fault.size, 20, 20_000) * MS)
        if fault.kind == "freeze":
            self.freeze(until_ns)
        else:
            self.cut_until_ns = until_ns
        self.world.note(self.name, fault.kind, f"for {(until_ns - self.world.now_ns) // MS} ms", fault=True)
        self.disturbed(until_ns)
        return True

    def _draw(self, salt: int) -> float:
        return self.world.chance.draw("reads " + self.name, self._events, salt)


def sent_by(body: bytes) -> tuple[str, int]:
    """The id of a stored message, and the call that has made it."""
    found = json.loads(body)
    return found["id"], found["content"]["by"]
