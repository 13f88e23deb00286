"""A real worker and a real producer, each behind a real proxy: the stage for faults of the network."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chaos import faults, plan, spec
from chaos.faults.base import Scene
from chaos.network import Network
from chaos.processes import Crew, send
from chaos.watch import Watch
from engine import Handlers, Job, Queue, Worker
from engine.testing import EmbeddedServer
from record.history import HistoryFile
from record.recorder import Recorder
from tests.chaos.histories import again_and_again, waiting
from tests.chaos.test_toxiproxy import program

LEASE_MS, TARGETS = 1_500, "worker-1,producer-1"


def planned(name: str) -> plan.PlannedFault:
    return plan.PlannedFault(f"1-{name}", name, TARGETS, 0)


@dataclass
class Stage:
    """A worker and a producer, each behind its proxy, and the scene around them."""

    network: Network
    scene: Scene
    folder: Path

    def make(self, name: str) -> Any:
        return faults.FAULTS[name](self.scene, planned(name))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    watch = Watch(folder)
    manifest = HistoryFile(folder / "manifest.jsonl", proc="manifest", role="harness")
    handlers = Handlers()

    @handlers("work")
    def work(job: Job) -> None:
        time.sleep(0.03)

    def connect(network: Network, name: str, role: str) -> Queue:
        watch.follow(name)
        recorder = Recorder(HistoryFile(folder / f"{name}.jsonl", proc=name, role=role), queue="stage")
        return Queue("stage", url=network.connect(name), observer=recorder)

    with EmbeddedServer() as server, Network(server.url, program=program(), log=folder / "log") as network:
        worker = Worker(connect(network, "worker-1", "worker"), handlers, name="worker-1", lease_ms=LEASE_MS, sweep_ms=300)
        working = threading.Thread(target=worker.run)
        working.start()
        queue, over = connect(network, "producer-1", "producer"), threading.Event()
        producing = again_and_again(over, lambda: queue.enqueue("work", {}), 0.01)
        crew = Crew(spec.RunSpec(id="stage", seed=1), network.connect, folder, folder, manifest, watch)
        scene = Scene(crew, watch, waiting(watch.poll), send, LEASE_MS, LEASE_MS + 2_000, network)
        assert scene.wait(lambda: watch.finished() > 10, timeout_s=120)
        yield Stage(network, scene, folder)
        network.heal_all()
        over.set()
        producing.join()
        worker.stop()
        working.join()
        watch.close()
