"""Where steps run: one server, workers, and a Locust that waits for orders. It carries out steps one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Protocol

import redis

from bench import models
from bench.arrivals import NAME, payload
from bench.capacity_steps import Order, Sent
from bench.micro.memory import settled
from chaos.capacity.crew import QUEUE, CapacityCrew, MeasuredCrew
from chaos.capacity.figures import HandlerTimes, Look, Looker, Used
from chaos.capacity.recovery import recoveries
from chaos.capacity.request import Request
from chaos.capacity.steps import Seen, Step, measured
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.plan import PRODUCER, worker_names
from chaos.runs import RunFolder
from chaos.topology import Setting, make
from chaos.watch import Watch
from engine import EngineError, Queue, UnsupportedFeature
from engine.testing import ServerFailed
from record.history import HistoryFile

#: Interpreters have to start and import; on a busy machine that takes long.
START_TIMEOUT_S = 120.0

#: Locust begins a step within a second of its order, and waits 12 s for the last answers.
ANSWER_TIMEOUT_S = 60.0

LOOK_S = 0.25

#: What is left of a step is waited for so long: what waits longer has missed any target that is sensible.
SETTLE_S = 5.0
EMPTY_TIMEOUT_S = 120.0

#: Round trips whose median is told.
PINGS = 101


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
class MemoryLook:
    """The server's memory in bytes: all that it uses, the same without what it keeps for its replicas, which is not more with
    more jobs, and what is resident."""

    used: int
    jobs: int
    resident: int


@dataclass
class Stage:
    """Everything that runs. Raises HarnessError when a process ends, or does not do what it should in time."""

    work: Work
    request: Request
    queue: Queue
    server: redis.Redis
    crew: MeasuredCrew[Any]
    looker: Looker
    #: What one look costs the server.
    look: Used
    interrupts: Interrupts
    #: What a topology says about itself when it does not work any more.
    complaint: Callable[[], str]
    times: HandlerTimes = field(default_factory=HandlerTimes)
    steps: int = 0

    def start_workers(self, count: int) -> None:
        """Let so many workers run, and wait until each of them works and nothing is left."""
        names = worker_names(count)
        self.crew.stop([name for name in self.crew.workers() if name not in names])
        begun = {name: self.times.read(self.crew.times(name)) for name in names}
        fresh = [name for name in names if name not in self.crew.workers()]
        for name in fresh:
            self.crew.start_worker(name)
        self.wait(lambda: self.work.begun(self, {name: begun[name] for name in fresh}), START_TIMEOUT_S, self.work.IDLE)
        self.wait(self.is_empty, EMPTY_TIMEOUT_S)
        self.clear()

    def take(self, rate_per_s: float, seconds: float, settle_s: float = SETTLE_S) -> Step:
        """Carry out one step, and measure it. What is left then is waited for so long, and taken away."""
        order, sent, looks = self.sent(rate_per_s, seconds)
        workers = self.crew.workers()

        def noted() -> bool:
            for name in workers:
                self.times.read(self.crew.times(name))
            # A worker notes the end of a job a moment after the server knows of it.
            return len(self.times.ran) >= sent.created and self.is_empty()

        self.wait(noted, settle_s)
        seen = Seen(order, sent, self.times.ran, looks, self.look, len(workers), time.monotonic_ns())
        step = measured(seen, self.request)
        self.times.ran.clear()
        self.clear()
        return step

    def sent(self, rate_per_s: float, seconds: float) -> tuple[Order, Sent, list[Look]]:
        """Have one step sent: its order, what came of that, and the looks meanwhile."""
        self.steps += 1
        order, looks = Order(self.steps, rate_per_s, seconds), list[Look]()
        answer = self.crew.order(order)

        def answered() -> bool:
            looks.append(self.looker.look())
            return answer.exists()

        self.wait(answered, seconds + ANSWER_TIMEOUT_S, "the load did not carry out its order", LOOK_S)
        return order, Sent.read(answer.read_text()), looks

    def clear(self) -> None:
        """Take away what waits, where the model can, and wait until nothing is left."""
        # Where it cannot, it is worked off.
        with suppress(UnsupportedFeature):
            self.queue.drain(delayed=True)
        self.wait(self.is_empty, EMPTY_TIMEOUT_S, "the queue was not empty")

    def memory(self) -> dict[str, float]:
        """Bytes of a job that waits, and of one that has finished; and how much more the server's resident memory grows than
        what it uses. Before any worker runs; it leaves them running."""
        empty = self.look_at_memory()
        jobs = self.work.fill(self)
        full = self.look_at_memory()
        self.start_workers(self.request.workers_measured)
        retained = self.look_at_memory()
        return {
            "bytes_per_waiting": max(1.0, (full.jobs - empty.jobs) / jobs),
            "bytes_per_retained": max(0.0, (retained.jobs - empty.jobs) / jobs),
            "fragmentation": max(1.0, (full.resident - empty.resident) / max(1, full.used - empty.used)),
        }

    def look_at_memory(self) -> MemoryLook:
        """The server's memory, once it has settled."""
        used = settled(self.server)
        info: Any = self.server.info("memory")
        # Older servers know of the backlog alone.
        for_replicas = info.get("mem_total_replication_buffers", info["mem_replication_backlog"])
        return MemoryLook(used, used - for_replicas, info["used_memory_rss"])

    def round_trip_ms(self) -> float:
        """An empty round trip on a connection that is open."""
        took = list[int]()
        for _ in range(PINGS):
            began_ns = time.monotonic_ns()
            self.server.ping()
            took.append(time.monotonic_ns() - began_ns)
        return median(took) / 1e6

    def is_empty(self) -> bool:
        """True when no job waits or runs."""
        counts = self.queue.counts()
        return not counts.waiting and not counts.active and not counts.delayed

    def wait(self, condition: Callable[[], bool], timeout_s: float, complaint: str = "", poll_s: float = 0.05) -> bool:
        """Wait until the condition holds. When it does not in time: False, or HarnessError where a complaint is given."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self.interrupts.check()
            if gone := self.crew.unplanned_exits():
                raise HarnessError(f"capacity: {gone[0].ending()}")
            if broken := self.complaint():
                raise HarnessError(f"capacity: {broken}")
            if condition():
                return True
            if time.monotonic() >= deadline_s:
                if complaint:
                    raise HarnessError(f"capacity: {complaint} within {timeout_s:.0f} s; see {self.crew.logs}")
                return False
            time.sleep(poll_s)


@contextmanager
def stage(work: Work, folder: RunFolder, interrupts: Interrupts) -> Iterator[Stage]:
    """Start the server and what sends; workers are started by `memory` or `start_workers`. All is gone afterwards.

    Raises HarnessError, ServerMissing and Interrupted.
    """
    with ExitStack() as stack:
        try:
            setting = Setting(folder.logs / "server.log", work.request.durability, direct=True, tag=work.queue)
            servers = stack.enter_context(make(work.request.topology, setting))
            url, at = servers.url, servers.address()
            queue = stack.enter_context(work.open(url))
            server = stack.enter_context(redis.Redis(at.host, at.port, decode_responses=True))
            manifest = HistoryFile(folder.history / "manifest.jsonl", proc="manifest", role="harness")
            stack.callback(manifest.close)
            watch = Watch(folder.history)
            stack.callback(watch.close)
            crew = work.crew(url, folder, manifest, watch)
            # What they complain about is no matter: Locust with a shape ends by SIGTERM itself, for it catches none.
            stack.callback(crew.stop_all)
            crew.start_producer(PRODUCER)

            def complaint() -> str:
                return servers.complaint() or servers.unplanned_failover()

            looker = Looker(queue, server, crew.pids)
            yield Stage(work, work.request, queue, server, crew, looker, looker.cost(), interrupts, complaint)
        except (ServerFailed, EngineError, redis.RedisError, OSError) as error:
            raise HarnessError(f"capacity: {type(error).__name__}: {error}") from error


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
