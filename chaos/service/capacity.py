"""The capacity of a service: its own workers, handlers and load, measured as those of the harness are (`chaos.capacity`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from bench.capacity_steps import Timed
from bench.handler_times import timed
from chaos.capacity.crew import MeasuredCrew
from chaos.capacity.recovery import recoveries
from chaos.capacity.request import BOUNDS, Request, target_ms
from chaos.capacity.stage import Stage
from chaos.errors import HarnessError
from chaos.runs import RunFolder
from chaos.service.crew import ServiceCrew
from chaos.service.drill import open_queue
from chaos.service.file import read
from chaos.service.known import Known, resolved
from chaos.service.spec import ServiceSpec
from chaos.spec import RunSpec
from chaos.watch import Watch
from engine import Queue
from record.history import HistoryFile

#: Jobs whose memory tells that of one: so many a second, for so long.
FILL_PER_S, FILL_S = 250, 2.0

#: What may be asked of a service; the rest is what it is.
ASKED = ("rate_per_s", "p99_ms", "backlog_s", "seed", "step_s", "last_step_s", "verify_times", "within_s")

#: The objective of a chaos.toml that is the target where nobody names one.
OBJECTIVE = ("latency", "all", "end_to_end", "p99_ms")

#: A target that nobody names is at least so many times the handlers' own p99: below it no rate would meet it.
SLOW_TIMES = 2

#: Handlers that are quicker are taken for this.
HANDLER_LEAST_MS = BOUNDS["handler_ms"][0]

#: What a target is before handlers were measured: none of them is a miss.
ANY_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class ServiceRequest(Request):
    """What is asked of a service. `processes`: of its workers."""

    processes: int = 1

    @property
    def workers_measured(self) -> int:
        return self.processes


@dataclass
class ServiceCapacityCrew(ServiceCrew, MeasuredCrew[RunSpec]):
    """The processes of a service, which note when handlers ran and record no history."""

    def start_producer(self, name: str) -> Any:
        """Start the load, which waits for its first order."""
        self.orders.mkdir(exist_ok=True)
        return super().start_producer(name)

    def _paced(self) -> list[str]:
        return ["--orders", str(self.orders)]

    def _led(self, name: str) -> dict[str, str]:
        told = Timed(self.spec.model, self.connect(name), self.spec.queue, str(self.times(name)))
        return {**self.own_environment(name), **timed(told)}


@dataclass
class ServiceWork:
    """A service that is measured. `request` is known in full once its workers run."""

    known: Known
    spec: ServiceSpec
    request: Request
    #: The target that was named, by an option or by an objective.
    p99_ms: float | None = None
    #: Lease and sweep of its workers, the longest.
    lease_ms: int = field(default=0, init=False)
    sweep_ms: int = field(default=0, init=False)

    IDLE: ClassVar[str] = "the workers told no settings: is each command a worker of the queue, without an observer in its code?"

    @property
    def queue(self) -> str:
        return self.spec.queue

    @property
    def label(self) -> str:
        return "service"

    @property
    def several_kinds(self) -> bool:
        return len(set(self.known.service.workers)) > 1

    def open(self, url: str) -> Queue:
        return open_queue(self.known.service, self.spec.queue, url)

    def crew(self, url: str, folder: RunFolder, manifest: HistoryFile, watch: Watch) -> ServiceCapacityCrew:
        made = ServiceCapacityCrew(self.spec, lambda name: url, folder.history, folder.logs, manifest, watch)
        made.service = self.known.service
        for number in range(1, len(made.service.apps) + 1):
            made.start_app(f"web-{number}")
        return made

    def fill(self, stage: Stage) -> int:
        _, sent, _ = stage.sent(FILL_PER_S, FILL_S)
        if not sent.created:
            raise HarnessError(f"capacity: the load created no job in {FILL_S:g} s; see {stage.crew.logs}")
        stage.request = replace(stage.request, payload_bytes=max(round(sent.payload_bytes), 64))
        return sent.created

    def begun(self, stage: Stage, before: Mapping[str, int]) -> bool:
        files = [stage.crew.times(name) for name in before]
        for file in files:
            stage.times.read(file)
        return all(file in stage.times.configured for file in files)

    def learned(self, stage: Stage) -> Request:
        told = list(stage.times.configured.values())
        self.lease_ms = max(one["lease_ms"] for one in told)
        self.sweep_ms = max(one["sweep_ms"] for one in told)
        at_once = round(sum(one["concurrency"] for one in told) / len(told))
        # A calm step tells how long handlers take; of it nothing is a miss.
        request = stage.request = replace(stage.request, handlers_at_once=max(1, at_once), p99_ms=ANY_MS)
        step = stage.take(request.least_per_s, request.step_s)
        if not (finished := sum(count for *_, count in step.columns["service_ms"]["histogram"])):
            raise HarnessError(f"capacity: no handler ended in {request.step_s:g} s; a longer --step may show some")
        handler_ms = max(HANDLER_LEAST_MS, step.columns["service_ms"]["mean"])
        slowest_ms = upper_ms(step.columns["service_ms"]["histogram"], 0.99 * finished)
        wanted_ms = self.p99_ms or max(target_ms(handler_ms), SLOW_TIMES * slowest_ms)
        return replace(request, handler_ms=round(handler_ms, 3), p99_ms=round(wanted_ms, 1))

    def recovery(self, runs: Path, stage: Stage) -> dict[str, dict[str, Any]]:
        asked = stage.request
        more: dict[str, Any] = {"lease_ms": self.lease_ms, "sweep_ms": self.sweep_ms, "service": self.spec.queue}
        return recoveries(runs, asked.model, asked.topology, **more)


def upper_ms(histogram: Sequence[tuple[float, float, int]], rank: float) -> float:
    """The upper edge of the bin that holds the value of a rank."""
    seen = 0
    for _, upper, count in histogram:
        seen += count
        if seen >= rank:
            return upper
    return histogram[-1][1]


def service_work(file: Path, asked: Mapping[str, Any], options: Sequence[str]) -> ServiceWork:
    """What is measured of the service of a file. Raises HarnessError in one line for a file that says what it must not, an option
    that the file decides, and a load that has no instants."""
    for name in options:
        if name not in ASKED:
            option = {"payload_bytes": "payload", "handlers_at_once": "handlers"}.get(name, name).replace("_", "-")
            raise HarnessError(f"--{option} cannot be given with {file.name}: the service is measured as it is")
    known = resolved(read(file))
    service = known.service
    if service.servers:
        raise HarnessError(
            f"{file.name}: servers are given: a capacity is that of a server of the harness's own, which nobody else uses; leave "
            "[servers] out, and name a topology"
        )
    if known.of_users:
        raise HarnessError(
            f"{file.name}: load is {service.load}, a Locust user, which waits for answers before it goes on: a capacity needs a "
            "function, whose jobs leave at given instants"
        )
    spec = known.spec(asked.get("seed", 1))
    objective: Any = service.slo
    for name in OBJECTIVE:
        objective = objective.get(name) if isinstance(objective, dict) else None
    p99_ms = asked.get("p99_ms", objective)
    shape: dict[str, Any] = {"model": spec.model, "topology": service.topology, "durability": spec.durability}
    request = ServiceRequest(**{**asked, **shape, "p99_ms": p99_ms or ANY_MS}, processes=len(service.workers))
    return ServiceWork(known, spec, request, p99_ms)
