"""Two real worker processes on a real server, with a producer, all started as a drill starts them: the stage for faults that act
inside of processes and servers."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import models
from chaos.faults import FAULTS
from chaos.faults.base import Scene
from chaos.network import Network
from chaos.plan import KILLING, PRODUCER, PlannedFault
from chaos.preload import control, library
from chaos.processes import Crew, send
from chaos.spec import RunSpec
from chaos.topology import Setting, make
from chaos.watch import Watch
from record.history import HistoryFile
from record.recorder import Recorder
from tests.chaos.histories import again_and_again, carried_out, waiting
from tests.chaos.network_stage import program

LEASE_MS, TARGET = 3_000, "worker-1"

#: Handlers take so long, so that some always run.
WORK_MS = 60


def produce(stack: ExitStack, spec: RunSpec, url: str, history: Path, delay_ms: int) -> None:
    """Puts a job into the queue every 15 ms, and writes a history as a producer does."""
    file, over = HistoryFile(history / f"{PRODUCER}.jsonl", proc=PRODUCER, role="producer"), threading.Event()
    queue = models.queue(spec.model, spec.queue, url=url, observer=Recorder(file, queue=spec.queue))
    stack.callback(queue.close)
    payload = models.carried(spec.model).payload({"index": 0, "work_ms": WORK_MS, "fail_first": 0, "pad": ""})
    thread = again_and_again(over, lambda: queue.enqueue("email", payload, delay_ms=delay_ms), 0.015)
    stack.callback(lambda: (over.set(), thread.join()))


@dataclass
class Stage:
    """The scene, and what was recorded of the faults that were carried out on it."""

    scene: Scene
    folder: Path
    #: What was recorded of the last fault.
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def fault(self, name: str, target: str = TARGET, make_fault: Callable[[Scene, PlannedFault], Any] | None = None) -> Any:
        return (make_fault or FAULTS[name])(self.scene, planned(name, target))

    def carry_out(self, name: str, target: str = TARGET, **more: Any) -> dict[str, tuple[bool, str]]:
        """Carry a fault out; what each of its stages saw."""
        fault = self.fault(name, target, **more)
        self.rows, *_ = carried_out(fault, planned(name, target), self.folder / f"harness-{name}.jsonl")
        return {row["stage"]: (row["result"] == "ok", row["detail"]) for row in self.rows}


def planned(name: str, target: str) -> PlannedFault:
    return PlannedFault(f"1-{name}", name, target, 0, "worker-3" if name in KILLING else "")


def told(url: str, name: str) -> str:
    """The url of every process."""
    del name
    return url


@contextmanager
def stage(folder: Path, *, topology: str = "embedded", pretend: bool = False, dns: bool = False, **more: Any) -> Iterator[Stage]:
    """Everything at work. `pretend`: faults that act inside of processes, or on the network, do nothing. `dns`: processes are
    told a host name. More: `durability`, `model`, and the `delay_ms` of each job."""
    logs, history = folder / "logs", folder / "history"
    logs.mkdir()
    history.mkdir()
    spec = replace(RunSpec(id="stage", seed=1), topology=topology, lease_ms=LEASE_MS, sweep_ms=200, schedules=())
    spec = replace(spec, model=more.get("model", "lanes"))
    preload, watch = control.Preload(library.build(print), logs, pretend=pretend), Watch(history)
    with ExitStack() as stack:
        network = (
            stack.enter_context(Network("", program=program(), log=logs / "toxiproxy.log", pretend=pretend)) if dns else None
        )
        setting = Setting(logs / "server.log", more.get("durability", ""), environment=preload.environment("server"))
        servers = stack.enter_context(make(topology, setting))
        connect: Callable[[str], str] = partial(told, servers.url)
        if network:
            network.lead_to(servers.url)
            network.host = control.HOST
            preload.lead_to(network.listens_at)
            connect = network.connect
        manifest = HistoryFile(folder / "manifest.jsonl", proc="manifest", role="harness")
        stack.callback(manifest.close)
        crew = Crew(spec, connect, history, logs, manifest, watch)
        crew.preload = preload
        stack.callback(watch.close)
        stack.callback(crew.stop_all, 5.0)

        scene = Scene(
            crew, watch, waiting(watch.poll), send, LEASE_MS, LEASE_MS + 2_000, network, servers, preload=preload, pretend=pretend
        )
        for name in (TARGET, "worker-2"):
            crew.start_worker(name)
        watch.follow(PRODUCER)
        produce(stack, spec, servers.url, history, more.get("delay_ms", 0))
        assert scene.wait(lambda: all(watch.view(name).started for name in (TARGET, "worker-2")), timeout_s=120)
        yield Stage(scene, folder)
