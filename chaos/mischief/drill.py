"""A drill without planned faults, in which a foreign client meddles for as long as there is load."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from bench.models import FOREIGN
from chaos import rows
from chaos.drill import Drill
from chaos.processes import Child, Crew

#: The client's process. Declared findings cover jobs that it had in hand.
CLIENT = f"{FOREIGN}client-1"


@dataclass
class MeddledCrew(Crew):
    """The children of a run, and the client that meddles."""

    def start_client(self, name: str) -> Child:
        """Announce the foreign client in the manifest, then start it."""
        history, sink = f"{name}.jsonl", f"{name}.sink.jsonl"
        self.manifest.append([rows.process("worker", name, history), rows.process("sink", name, sink)])
        spec = self.spec
        words = [name, self.connect(name), spec.model, spec.queue, str(spec.seed), self.history / history, self.history / sink]
        return self._start(name, "producer", [sys.executable, "-m", "chaos.mischief.client", *map(str, words)], {})


@dataclass
class MischiefDrill(Drill):
    """A run of jobs with a foreign client in it."""

    crew_of = MeddledCrew
    _crew: MeddledCrew = field(init=False, repr=False)

    def _begin_load(self) -> None:
        super()._begin_load()
        self._crew.start_client(CLIENT)

    def _end_load(self) -> None:
        self.errors += self._crew.stop([CLIENT])
        super()._end_load()
