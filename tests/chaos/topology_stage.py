"""Servers of a topology with one client that writes all the time, and faults carried out on them: no engine, no workers."""

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import redis
from redis.exceptions import NoScriptError, OutOfMemoryError, RedisClusterException

from chaos import topologies
from chaos.faults import FAULTS
from chaos.faults.base import Scene, carry_out
from chaos.network import Network
from chaos.plan import SERVERS, PlannedFault
from chaos.processes import send
from chaos.topology import Durable, Setting, make
from chaos.topology.base import client_of
from chaos.watch import NEVER, Answer
from record.history import HistoryFile
from tests.chaos.histories import waiting
from tests.chaos.network_stage import program

#: Keys of the writer: so many that a slot has some to move.
KEYS = 200
WRITE = "redis.call('SET', KEYS[1], ARGV[1])"
DIGEST = hashlib.sha1(WRITE.encode(), usedforsecurity=False).hexdigest()


@dataclass
class Writer:
    """Stands for a process of the run: what it was answered last, and every value that was acknowledged, by key."""

    answered: Answer = NEVER
    unanswered: dict[str, tuple[str, int]] = field(default_factory=dict)
    refused_ns: dict[str, int] = field(default_factory=dict)
    connected_ns: int = 0
    created: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    #: When that was, in monotonic ns.
    acknowledged_ns: dict[str, int] = field(default_factory=dict)


@dataclass
class TopologyStage:
    """Servers under load."""

    servers: Any
    writer: Writer
    client: Any
    harness: Path
    scene: Scene
    #: When each stage of the last fault was, in monotonic ns.
    at_ns: dict[str, int] = field(default_factory=dict)

    def carry_out(self, name: str) -> dict[str, tuple[bool, str]]:
        """Carry a fault out; what each of its stages saw."""
        planned, before = PlannedFault(f"1-{name}", name, SERVERS, 0), len(self.harness.read_text().splitlines())
        if isinstance(self.servers, Durable):
            # Of a snapshot that was not put back.
            shutil.rmtree(self.servers.folder.with_name("snapshot"), ignore_errors=True)
        fault = FAULTS[name](self.scene, planned)
        carry_out(fault, planned, harness=self.scene.harness, begin_phase=lambda name, t_ns: None)
        rows = [json.loads(line) for line in self.harness.read_text().splitlines()[before:]]
        rows = [row for row in rows if row["kind"] == "fault"]
        self.at_ns = {row["stage"]: row["t_ns"] for row in rows}
        return {row["stage"]: (row["result"] == "ok", row["detail"]) for row in rows}

    def lost(self) -> list[str]:
        """Keys that do not have what was acknowledged last. A writer that goes on soon writes them anew."""
        acknowledged = dict(self.writer.acknowledged)
        return [key for key, value in acknowledged.items() if int(self.client.get(key) or -1) < value]


wait = waiting(lambda: None)


def code_of(error: Exception) -> str:
    """The first word of an error reply; redis-py has cut it off where it has a class for it."""
    return "OOM" if isinstance(error, OutOfMemoryError) else str(error).partition(" ")[0]


def noting(client: Any, writer: Writer) -> Any:
    """The client, whose new connections are noted; not those of a cluster, which has a pool for each node."""
    if isinstance(client, redis.Redis):
        made = client.connection_pool.connection_class

        def connect(self: Any) -> Any:
            connected = made._connect(self)
            writer.connected_ns = time.monotonic_ns()
            return connected

        client.connection_pool.connection_class = type("Noting", (made,), {"_connect": connect})
    return client


def write(stop: threading.Event, client: Any, writer: Writer) -> None:
    number = 0
    while not stop.is_set():
        key, sent_ns = f"{{bench}}:{number % KEYS}", time.monotonic_ns()
        writer.unanswered.setdefault("write", ("write", sent_ns))
        try:
            client.evalsha(DIGEST, 1, key, number)
        except NoScriptError:
            writer.refused_ns["NOSCRIPT"] = time.monotonic_ns()
            with suppress(redis.RedisError, RedisClusterException):
                client.eval(WRITE, 1, key, number)
            continue
        except (redis.RedisError, RedisClusterException) as error:
            # A failover: the client asks again by itself.
            writer.refused_ns[code_of(error)] = time.monotonic_ns()
            stop.wait(0.02)
            continue
        writer.answered, writer.unanswered = Answer(sent_ns, time.monotonic_ns()), {}
        writer.created += 1
        writer.acknowledged[key], writer.acknowledged_ns[key] = number, writer.answered.done_ns
        number += 1
        if number >= KEYS:
            stop.wait(0.005)


@contextmanager
def stage(name: str, folder: Path, durability: str = "") -> Iterator[tuple[TopologyStage, Callable[[], None]]]:
    """The servers under load, and what ends the load."""
    (folder / "logs").mkdir()
    harness = HistoryFile(folder / "harness.jsonl", proc="harness", role="harness")
    with Network("", program=program(), log=folder / "toxiproxy.log") as network:
        setting = Setting(folder / "logs" / "server.log", durability, network, "bench")
        with make(name, setting) as servers:
            writer, stop = Writer(), threading.Event()
            url, timeout_s = servers.url, 1.0
            if name not in topologies.SEVERAL:
                network.lead_to(url)
                # A single server that pauses with its machine has not ended: the writer does not connect again for that.
                url, timeout_s = network.connect("writer"), 30.0
            client = noting(client_of(url, timeout_s), writer)
            spec = SimpleNamespace(model="none", queue="bench")
            crew: Any = SimpleNamespace(children={"writer": SimpleNamespace(alive=lambda: True)}, spec=spec)
            watch: Any = SimpleNamespace(view=lambda name: writer, poll=lambda: None, created=lambda: writer.created)
            scene = Scene(crew, watch, wait, send, 9_000, 11_000, network, servers, harness)
            thread = threading.Thread(target=write, args=(stop, client, writer))
            thread.start()

            def end() -> None:
                stop.set()
                thread.join()

            try:
                assert wait(lambda: len(writer.acknowledged) == KEYS, timeout_s=120)
                yield TopologyStage(servers, writer, client, folder / "harness.jsonl", scene), end
            finally:
                end()
                client.close()
                harness.close()
