"""What a measurement puts on its server: jobs of the harness's own, or those of a service (`chaos.service.capacity`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from bench import models
from bench.arrivals import NAME, payload
from chaos.capacity.crew import QUEUE, CapacityCrew, MeasuredCrew
from chaos.capacity.recovery import recoveries
from chaos.capacity.request import Request
from chaos.runs import RunFolder
from chaos.watch import Watch
from engine import Queue
from record.history import HistoryFile

if TYPE_CHECKING:
    from chaos.capacity.stage import Stage

#: Jobs by whose memory that of one is told.
MEMORY_JOBS = 5_000


class Work(Protocol):
    """A queue, its workers and its load. `request`: what is asked for, as far as it is known before anything runs."""

    #: What is complained about where workers do not begin to work.
    IDLE: ClassVar[str]

    @property
    def request(self) -> Request: ...

    @property
    def queue(self) -> str:
        """The name of the queue."""
        ...

    @property
    def label(self) -> str:
        """What the folder of the run is called after."""
        ...

    @property
    def several_kinds(self) -> bool:
        """True where workers differ, so that fewer of them are not the same service."""
        ...

    def open(self, url: str) -> Queue:
        """The queue at this url, without I/O so far."""
        ...

    def crew(self, url: str, folder: RunFolder, manifest: HistoryFile, watch: Watch) -> MeasuredCrew[Any]:
        """Its processes, of which none has been started."""
        ...

    def fill(self, stage: Stage) -> int:
        """Let jobs wait, before any worker runs; how many. Raises HarnessError for none."""
        ...

    def begun(self, stage: Stage, before: Mapping[str, int]) -> bool:
        """Whether each of these workers works; `before`: how many ends of jobs they had noted before they were started."""
        ...

    def learned(self, stage: Stage) -> Request:
        """What is asked for, with what is only known when workers run. Raises HarnessError."""
        ...

    def recovery(self, runs: Path, stage: Stage) -> dict[str, dict[str, Any]]:
        """How soon work goes on after a loss (see `chaos.capacity.recovery`)."""
        ...


@dataclass(frozen=True, slots=True)
class OwnWork:
    """Jobs that are all alike, and handlers that wait. `web_port`: of Locust's page, 0 = none."""

    request: Request
    web_port: int = 0

    IDLE: ClassVar[str] = "the workers ran no job"
    queue: ClassVar[str] = QUEUE
    several_kinds: ClassVar[bool] = False

    @property
    def label(self) -> str:
        return self.request.model

    def open(self, url: str) -> Queue:
        return models.queue(self.request.model, QUEUE, url=url)

    def crew(self, url: str, folder: RunFolder, manifest: HistoryFile, watch: Watch) -> CapacityCrew:
        more: Any = {"web_port": self.web_port}
        return CapacityCrew(self.request, lambda name: url, folder.history, folder.logs, manifest, watch, **more)

    def fill(self, stage: Stage) -> int:
        stage.queue.enqueue_many([{"name": NAME, "payload": self._carried()} for _ in range(MEMORY_JOBS)])
        return MEMORY_JOBS

    def begun(self, stage: Stage, before: Mapping[str, int]) -> bool:
        stage.queue.enqueue(NAME, self._carried())
        return all(stage.times.read(stage.crew.times(name)) > jobs for name, jobs in before.items())

    def learned(self, stage: Stage) -> Request:
        return self.request

    def recovery(self, runs: Path, stage: Stage) -> dict[str, dict[str, Any]]:
        return recoveries(runs, self.request.model, self.request.topology)

    def _carried(self) -> dict[str, Any]:
        """A short job's payload in the form that the model carries."""
        return models.carried(self.request.model).payload(payload(self.request.payload_bytes, 1.0))
