"""A drill in which the engine and the original Bull share a queue: a crew of both, and a look at the queue's keys as they are."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from chaos.drill import Drill
from chaos.interop.crew import MixedCrew, on_node
from chaos.interop.keyspace import BullKeys
from chaos.interop.load import jobs
from chaos.interop.scenarios import Mixture


@dataclass(kw_only=True)
class MixedDrill(Drill):
    """One run of a mixture."""

    mixture: Mixture

    crew_of = MixedCrew
    _crew: MixedCrew = field(init=False, repr=False)

    def _set_up(self, stack: ExitStack) -> None:
        super()._set_up(stack)
        self._keys = BullKeys(self._servers.url, self.spec.queue)
        stack.callback(self._keys.close)

    def _start_workers(self) -> tuple[str, ...]:
        crew, mixture = self._crew, self.mixture
        crew.port = urlsplit(self._servers.url).port or 0
        crew.node_concurrency = mixture.concurrency
        crew.sent = {name: jobs(self.spec.seed, name, mixture.mix) for name in mixture.producers}
        for name in mixture.workers:
            crew.start_worker(name)
        return mixture.workers

    def _works(self, name: str) -> bool:
        # A worker of Bull is connected; it writes nothing down while there are no jobs.
        return bool(self._watch.view(name).connected_ns) if on_node(name) else super()._works(name)

    def _start_producers(self) -> None:
        for name in self.mixture.producers:
            self._crew.start_producer(name)
        self._require(lambda: all(self._watch.view(name).created for name in self.mixture.producers), "a producer created no job")

    def _end_load(self) -> None:
        self.errors += self._crew.stop(list(self.mixture.producers))

    def _drained(self) -> bool:
        return self._keys.drained()

    def _snapshot(self, name: str) -> None:
        self._keys.snapshot(self._harness, name, time.monotonic_ns())
