"""The workers of an episode, dead ones as well, and which of them a token was given to."""

from __future__ import annotations

from chaos.simulate.worker import SimulatedWorker


class Incarnations:
    """Each worker names itself anew whenever it has to, and its tokens begin with that name."""

    def __init__(self) -> None:
        self.workers: list[SimulatedWorker] = []
        self._owners: dict[str, SimulatedWorker] = {}

    def add(self, incarnation: str, worker: SimulatedWorker) -> None:
        """The worker has this name from now on."""
        self._owners[incarnation] = worker
        if worker not in self.workers:
            self.workers.append(worker)

    def get(self, incarnation: str) -> SimulatedWorker | None:
        """The worker that has or had this name."""
        return self._owners.get(incarnation)

    def owner_of(self, token: str) -> SimulatedWorker | None:
        """The worker that a token (`fence:incarnation:counter`) was given to."""
        return self.get(token.split(":")[1]) if ":" in token else None
