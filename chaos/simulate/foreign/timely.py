"""Invariants of time with a foreign model: what waits is claimed, what is due or over is taken up."""

from __future__ import annotations

from typing import Any

from chaos.simulate.book import Book
from chaos.simulate.foreign.state import ForeignState, Format
from chaos.simulate.incarnations import Incarnations
from chaos.simulate.server import SimulatedServer
from chaos.simulate.timely import Timely
from chaos.simulate.world import MS, Found, World

#: Workers look again a tenth of a second after a look at the latest, and read the whole queue once a second.
_PICKUP_MS = 2_500
#: What is due is promoted by the next claim or sweep.
_DUE_MS = 500


class ForeignTimely(Timely):
    """Watches how long work lies where it should not."""

    def __init__(
        self,
        world: World[Any],
        server: SimulatedServer[ForeignState],
        book: Book,
        incarnations: Incarnations,
        form: Format,
    ) -> None:
        super().__init__(world, server, book, incarnations)
        self._form = form

    def check(self, state: ForeignState) -> None:
        """After a delivery: what waits is claimed, what is due is promoted, leases that have ended are taken."""
        world, book, now_ms = self._world, self._book, self._server.now_ms()
        over = [id for id, deadline_ms in state.zset("active").items() if deadline_ms < now_ms]
        for name, key in state.raw.items():
            if self._form.place(name) == "delayed":
                over += [id for id, score in key.value.items() if self._form.scored_ms(score) < now_ms]
        for known, found in ((book.claimable_ns, state.at("waiting")), (book.overdue_ns, over)):
            for id in [id for id in known if id not in found]:
                del known[id]
            for id in found:
                known.setdefault(id, world.now_ns)
        if not (book.claimable_ns or book.overdue_ns):
            return
        idle = self._idle_since_ns(self._calm_since_ns())
        if idle is None:
            return
        worker, idle_ns = idle
        for id, since_ns in book.claimable_ns.items():
            waited_ms = (world.now_ns - max(since_ns, idle_ns)) // MS
            # A worker runs one job at a time that has a crash behind it (rule 12).
            if waited_ms > _PICKUP_MS and not state.run(id).crashes:
                raise Found("pickup", f"{id} can be claimed, {worker.name} is idle, and {waited_ms} ms pass", (id,))
        if not self._may_reap(state, now_ms):
            return
        for id, since_ns in book.overdue_ns.items():
            waited_ms = (world.now_ns - max(since_ns, idle_ns)) // MS
            if waited_ms > _DUE_MS + self._follow_ms:
                raise Found("due", f"{id} is over its time, {worker.name} is idle, and {waited_ms} ms pass", (id,))
