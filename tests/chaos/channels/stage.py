"""A publisher and a subscriber on threads, each behind a real proxy, and a server that may end: a stage for faults."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.channels.crew import ChannelCrew, ChannelScene
from chaos.channels.faults import FAULTS
from chaos.channels.keyspace import Keyspace
from chaos.channels.spec import Channel as SpecChannel
from chaos.channels.spec import ChannelSpec
from chaos.channels.watch import ChannelWatch
from chaos.faults.base import Fault
from chaos.network import Network
from chaos.plan import SERVERS, PlannedFault
from chaos.processes import Child, send
from chaos.topology import Durable, Setting
from engine import Channel, models
from engine.testing import start_guarded
from record import channels, history
from tests.chaos.histories import again_and_again, waiting
from tests.chaos.test_toxiproxy import program

CHANNEL, SUBSCRIBER = "orders", "reader"
PUBLISHER_PROC, SUBSCRIBER_PROC = "publisher-1", "subscriber-1"
TARGETS = f"{SUBSCRIBER_PROC},{PUBLISHER_PROC}"


@dataclass
class Stage:
    """The scene, and what is behind it."""

    scene: ChannelScene
    folder: Path

    def make(self, name: str) -> Fault:
        return FAULTS[name](self.scene, planned(name))


def planned(name: str, delay_ms: int = 0) -> PlannedFault:
    return PlannedFault(f"1-{name}", name, SERVERS if name.startswith(("server", "snapshot")) else TARGETS, delay_ms)


def open_channel(url: str, folder: Path, proc: str) -> Channel:
    file = history.HistoryFile(folder / f"{proc}.jsonl", proc=proc, role=proc.partition("-")[0])
    return Channel(CHANNEL, models.Dsps(), url=url, observer=channels.ChannelRecorder(file, channel=CHANNEL))


def publish(channel: Channel) -> Callable[[], object]:
    messages = ((f"m{number}", {"number": number}) for number in range(10**9))
    return lambda: channel.publish(*next(messages))


def read(channel: Channel) -> Callable[[], object]:
    def act() -> None:
        found = channel.fetch(SUBSCRIBER, wait_ms=500)
        if found.receipt is not None:
            channel.acknowledge(SUBSCRIBER, found.receipt)

    return act


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Everything at work, and gone afterwards."""
    watch, over = ChannelWatch(tmp_path), threading.Event()
    (tmp_path / "logs").mkdir()

    with ExitStack() as stack:
        manifest = history.HistoryFile(tmp_path / "manifest.jsonl", proc="manifest", role="harness")
        harness = history.HistoryFile(tmp_path / "harness.jsonl", proc="harness", role="harness")
        servers = stack.enter_context(Durable(Setting(tmp_path / "logs" / "server.log")))
        network = stack.enter_context(Network(servers.url, program=program(), log=tmp_path / "logs" / "toxiproxy.log"))
        keyspace = Keyspace(servers.url, [SpecChannel(CHANNEL, "one", (SUBSCRIBER,), (), 1, 1_800_000)])
        stack.callback(keyspace.close)
        crew = ChannelCrew(ChannelSpec("stage", 1), network.connect, tmp_path, tmp_path / "logs", manifest, watch)
        for name in (PUBLISHER_PROC, SUBSCRIBER_PROC):
            watch.follow(name)
            # Stands for a process: who talks to the server is a thread of this one.
            sleeper = start_guarded([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
            crew.children[name] = Child(name, name.partition("-")[0], sleeper, tmp_path / "log")
            stack.callback(sleeper.wait)
            stack.callback(sleeper.kill)
        publisher = stack.enter_context(open_channel(network.connect(PUBLISHER_PROC), tmp_path, PUBLISHER_PROC))
        subscriber = stack.enter_context(open_channel(network.connect(SUBSCRIBER_PROC), tmp_path, SUBSCRIBER_PROC))
        subscriber.subscribe(SUBSCRIBER)
        threads = [again_and_again(over, publish(publisher), 0.01), again_and_again(over, read(subscriber))]
        stack.callback(lambda: [thread.join() for thread in threads])
        stack.callback(over.set)
        stack.callback(network.heal_all)
        times = {"lease_ms": 9_000, "recovery_bound_ms": 9_000}
        servers_of = {"network": network, "servers": servers, "keyspace": keyspace, "harness": harness}
        scene = ChannelScene(crew=crew, watch=watch, wait=waiting(watch.poll), signal=send, **times, **servers_of)
        assert scene.wait(lambda: watch.finished() > 10, timeout_s=120)
        yield Stage(scene, tmp_path)
        watch.close()
