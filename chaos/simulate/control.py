"""The control connection of a worker: what scripts publish reaches it late, twice or never, and the server lists it among its
clients until it ends."""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulate.chance import spread_ms
from chaos.simulate.line import Process
from chaos.simulate.presence import Clients
from chaos.simulate.world import MS, World
from engine.ops.workers import ClientConnection, ControlMessage, read_control
from engine.worker.machine.events import ControlLost, Subscribed

#: A connection that broke reads again after this.
_AGAIN_MS = 200

Told = ControlMessage | Subscribed | ControlLost


class Control:
    """It reads from the start of its process on. `take` gets what is told, as an event of the process. `seen`: its process may
    ask how the server lists it; `direct`: others may see by it whether the process lives."""

    def __init__(
        self,
        process: Process,
        channels: tuple[str, ...],
        take: Callable[[Told], None],
        clients: Clients,
        *,
        seen: bool,
        direct: bool,
    ) -> None:
        self.name = f"{process.name}.control"
        self.process = process
        self._world: World = process.world
        self._channels = channels
        self._take = take
        self._clients = clients
        self._seen = seen
        self._direct = direct
        self._connection: ClientConnection | None = None
        self._count = 0
        self._away_until_ns = 0

    def begins(self) -> None:
        """The process has begun to work."""
        if self._world.profile.presence:
            self._reads_again()

    def ends(self) -> None:
        """The server hears that the process is gone."""
        if self._connection is not None:
            self._clients.ends(self._connection)
            self._connection = None

    def published(self, channel: str, text: bytes) -> None:
        """A script has published something."""
        world, told = self._world, read_control(text)
        if channel not in self._channels or told is None or not self.process.alive:
            return
        number, self._count = self._count, self._count + 1
        if world.now_ns < max(self._away_until_ns, self.process.cut_until_ns):
            self.process.disturbed(world.now_ns)
            return
        rates = {"unheard": world.profile.unheard, **world.profile.network} if world.profile.unheard else world.profile.network
        fault = world.chance.fault(self.name, number, rates)
        there_ns = world.now_ns + int(spread_ms(world.chance.draw(self.name, number, 1), 0.03, 3) * MS)
        world.note(self.name, "is told", text.decode())
        if fault is not None:
            self.process.disturbed(there_ns)
            world.note(self.name, f"{fault.kind} of what it is told", fault=True)
            if fault.kind in ("unheard", "lose request", "lose reply"):
                return
            if fault.kind == "break":
                self.breaks(world.now_ns + _AGAIN_MS * MS)
                return
            late_ns = world.now_ns + int(spread_ms(fault.size, 5, world.profile.latest_ms) * MS)
            if fault.kind == "copy":
                self.process.at(late_ns, self._take, told)
            else:
                there_ns = late_ns
        self.process.at(there_ns, self._take, told)

    def cut(self, until_ns: int) -> None:
        """The connection ends at both sides, and is made again then."""
        if not self.process.alive:
            return
        if self._world.now_ns < self.process.cut_until_ns:
            # Neither can the process connect again nor say that it has not.
            self.process.disturbed(self._world.now_ns)
        self.breaks(until_ns)

    def breaks(self, until_ns: int) -> None:
        """The connection fails; what is published until it reads again is missed."""
        self._away_until_ns = max(self._away_until_ns, until_ns)
        if self._connection is not None:
            self.ends()
            self.process.at(self._world.now_ns + MS // 10, self._take, ControlLost())
        self.process.at(self._away_until_ns, self._reads_again)

    def _reads_again(self) -> None:
        if self._world.now_ns < self._away_until_ns:
            return
        if self._seen and self._connection is None:
            self._connection = self._clients.connects(self.process.name, direct=self._direct)
        self._take(Subscribed(self._connection))
