"""What a measurement puts on its server: jobs of the harness's own, or those of a service (`chaos.service.capacity`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bench import models
from bench.arrivals import NAME, payload
from chaos.capacity.crew import QUEUE, CapacityCrew
from chaos.capacity.recovery import recoveries
from chaos.capacity.request import Request
from chaos.capacity.stage import Stage
from chaos.runs import RunFolder
from chaos.watch import Watch
from engine import Queue
from record.history import HistoryFile

#: Jobs by whose memory that of one is told.
MEMORY_JOBS = 5_000


@dataclass(frozen=True, slots=True)
class OwnWork:
    """Jobs that are all alike, and handlers that wait. `web_port`: of Locust's page, 0 = none."""

    request: Request
    web_port: int = 0

    IDLE: ClassVar[str] = "the workers ran no job"

    @property
    def queue(self) -> str:
        return QUEUE

    @property
    def several_kinds(self) -> bool:
        return False

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
