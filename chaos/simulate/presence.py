"""The clients that a simulated server lists, and the mishaps of control connections: one is cut and made again, or most are at
once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from chaos.simulate.chance import spread_ms
from chaos.simulate.line import Message, Process
from chaos.simulate.world import MS, World
from engine.ops.workers import ClientConnection, ListConnections

#: A live process is connected again after so long; now and then only later, which it then says.
_AGAIN_MS = (1, 200)
_LATER_MS = (700, 4000)
#: How often it is later.
_LATE_SHARE = 0.4
#: Cuts that an episode plans at most.
_CUTS = 20


class Cuttable(Protocol):
    """A control connection."""

    process: Process

    def cut(self, until_ns: int) -> None:
        """It ends, and is made again then."""
        ...


@dataclass(slots=True)
class Answer:
    """What a look was answered: how many clients it asked for, how many of them were missing, and how long it took at least."""

    asked: int
    missing: int
    took_ns: int


class Clients:
    """Who is connected to the server of this era, by client id; they are counted from 1 in each."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._era = 0
        self._addresses: dict[int, str] = {}
        self._last = 0
        #: When each connection ended that has, by client id and run id.
        self.ended_ns: dict[str, int] = {}
        #: The last look of each process, by its name.
        self.answers: dict[str, Answer] = {}

    @property
    def run_id(self) -> str:
        """The server of this era."""
        return f"run{self._era}"

    def connects(self, name: str, *, direct: bool) -> ClientConnection:
        """A process has a control connection."""
        self._last += 1
        connection = ClientConnection(self._last, f"{name}:{self._era}.{self._last}", self.run_id, direct)
        self._addresses[self._last] = connection.address
        return connection

    def ends(self, connection: ClientConnection) -> None:
        """The server hears that a connection is gone."""
        if connection.run_id == self.run_id and self._addresses.pop(connection.client_id, None) is not None:
            self.ended_ns[f"{connection.client_id} {connection.run_id}"] = self._world.now_ns

    def new_era(self) -> None:
        """Another server has taken over: nobody is connected to it."""
        self._era += 1
        self._addresses, self._last = {}, 0

    def lists(self, registration: str) -> bool:
        """Whether the connection that a worker has named is there."""
        client_id, _, run_id = registration.partition(" ")
        return run_id == self.run_id and int(client_id) in self._addresses

    def look(self, message: Message, operation: ListConnections) -> bytes:
        """The answer to a look."""
        there = [client_id for client_id in operation.client_ids if client_id in self._addresses]
        took_ns = self._world.now_ns - message.first_send_ns + message.reply_ns
        asked = len(operation.client_ids)
        self.answers[message.line.process.name] = Answer(asked, asked - len(there), took_ns)
        return "".join(f"id={client_id} addr={self._addresses[client_id]} name=\n" for client_id in there).encode()


def plan_cuts(world: World, controls: Sequence[Cuttable]) -> None:
    """Cut control connections over the length of an episode. `controls`: those of all processes so far, when it comes to it."""
    profile = world.profile
    for number in range(_CUTS):
        at_ns = world.now_ns + int(world.chance.draw("cuts", number, 1) * profile.chaos_ms) * MS
        fault = world.chance.fault("cut", number, {"cut one": profile.cuts, "cut most": profile.cuts_of_most})
        if fault is not None:
            world.at(at_ns, _cut, world, controls, fault.kind, number)


def _cut(world: World, controls: Sequence[Cuttable], kind: str, number: int) -> None:
    alive = [control for control in controls if control.process.alive]
    if not alive:
        return
    first = int(world.chance.draw("cut", number, 2) * len(alive))
    for at, control in enumerate(alive if kind == "cut most" else alive[first : first + 1]):
        late = world.chance.draw("cut", number, 3 + 2 * at) < _LATE_SHARE
        length_ms = spread_ms(world.chance.draw("cut", number, 4 + 2 * at), *(_LATER_MS if late else _AGAIN_MS))
        world.note(control.process.name, kind, f"its control connection, for {length_ms:.0f} ms", fault=True)
        control.cut(world.now_ns + int(length_ms * MS))
