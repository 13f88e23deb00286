"""A private cluster of primaries on loopback ports, and slots that move between them in stages that a test can stop at.

with EmbeddedCluster() as cluster:
    move = cluster.begin_move(slot, target=1)     # MIGRATING and IMPORTING are set, no key has moved
    move.move_keys(move.keys_left()[:3])               # half way: ASK, TRYAGAIN and "non local key" are real now
    move.finish()

with EmbeddedCluster(replicas=1) as cluster:
    cluster.kill(node := cluster.owner_of(slot))       # SIGKILL: its replica is promoted
    cluster.wait_for_promotion(slot, node)
    cluster.start_again(node)                          # empty, and a replica of the new owner"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import redis

from chaos.topology.embedded_sentinel import REPLICATION_FLAGS, Announce, own_port
from engine.testing.server import (
    LOOPBACK,
    NOT_RUNNING,
    POLL_S,
    PORT_TAKEN,
    PORTS_MAX,
    PROBE_TIMEOUT_S,
    START_TIMEOUT_S,
    EmbeddedServer,
    ServerFailed,
    ask_server,
    free_port,
)

SLOTS = 16_384

#: Votes and failures are decided within this. Longer than a busy machine leaves a process waiting: a node taken for dead would
#: make the whole cluster refuse.
NODE_TIMEOUT_MS = 3_000

#: Upper bound of a promotion, and of the time until a node that came back is a replica in step.
PROMOTION_TIMEOUT_S = 30.0

#: Upper bound of one MIGRATE.
MIGRATE_TIMEOUT_MS = 5_000

#: redis-py's own types leave its replies unknown.
Client = Any


class EmbeddedCluster:
    """Three primaries, alive inside the `with` block and gone after it, each an `EmbeddedServer` with a folder of its own.

    `binary`: the program; without it see `server_binary`. Nodes are named by their number: first the primaries, then `replicas`
    of each of them. `announce`: what stands in front of each node (see `chaos.topology.embedded_sentinel`), by the name
    `server-0` and so on; `logs`: folder for their output, kept; `flags`: makes more of each node's command line. Enter it from a
    thread that lives as long as the cluster should. Raises ServerMissing and ServerFailed as `EmbeddedServer` does.
    """

    def __init__(
        self,
        *,
        primaries: int = 3,
        replicas: int = 0,
        node_timeout_ms: int = NODE_TIMEOUT_MS,
        binary: str | os.PathLike[str] | None = None,
        logs: Path | None = None,
        announce: Announce = own_port,
        flags: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._primaries = primaries
        self._nodes = primaries * (1 + replicas)
        self._node_timeout_ms = node_timeout_ms
        self._binary = binary
        self._logs = logs
        self._announce = announce
        self._flags = flags
        #: What clients and replicas know each node by.
        self.announced_ports: list[int] = []
        self._stack = ExitStack()
        self.servers: list[EmbeddedServer] = []
        self._clients: list[Client] = []
        self._names: list[str] = []

    @property
    def ports(self) -> tuple[int, ...]:
        """TCP port of each node. Raises ServerFailed outside the `with` block."""
        if not self.servers:
            raise ServerFailed(NOT_RUNNING)
        return tuple(server.port for server in self.servers)

    @property
    def urls(self) -> tuple[str, ...]:
        """What a client connects to, for each node."""
        return tuple(f"redis://{LOOPBACK}:{port}/0" for port in self.ports)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process id of each node."""
        return tuple(server.pid for server in self.servers)

    def client(self, node: int) -> Client:
        """A connection to one node. It follows nothing: MOVED and ASK are raised as errors."""
        return self._clients[node]

    def slot_of(self, key: str) -> int:
        """The slot that holds a key."""
        return int(self._clients[0].execute_command("CLUSTER KEYSLOT", key))

    def owner_of(self, slot: int) -> int:
        """The node that serves a slot, as the nodes themselves see it. Raises ServerFailed when they do not come to agree.

        After a move a node may go back to the old owner for a moment: a message of that one was on its way, and the new epoch of
        the new one is not known there yet. Its next message sets it right, within a second or so.
        """
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while len(owners := {self._owner_seen_by(node, slot) for node in self._alive()}) != 1:
            if time.monotonic() > deadline_s:
                raise ServerFailed(f"slot {slot}: the nodes name different owners {sorted(owners)}")
            time.sleep(POLL_S)
        return owners.pop()

    def flush(self) -> None:
        """Empty every primary, and wait until it is done."""
        for node, server in enumerate(self.servers):
            if self._nodes == self._primaries or self.role(node) == "master":
                server.flush()

    def alive(self, node: int) -> bool:
        """True while the process of a node runs."""
        return self.servers[node].process.poll() is None

    def role(self, node: int) -> str:
        """What a node says it is: master or slave."""
        return str(self._clients[node].info("replication")["role"])

    def replicas_of(self, node: int) -> list[int]:
        """The nodes that follow a primary, as it sees them."""
        rows: list[Any] = self._clients[node].execute_command("CLUSTER SLOTS")
        own = [row for row in rows if row[2][2].decode() == self._names[node]]
        return sorted({self._names.index(one[2].decode()) for row in own for one in row[3:]})

    def kill(self, node: int) -> None:
        """SIGKILL a node, and wait until it is gone."""
        self.servers[node].kill()

    def start_again(self, node: int) -> None:
        """Start a killed node on its port, with its name and without data: it follows whoever took its slots."""
        self.servers[node].start_again()

    def failover(self, replica: int) -> None:
        """Let a replica take the place of its primary, as an operator does: no write is lost. Raises redis-py's ResponseError."""
        self._clients[replica].execute_command("CLUSTER FAILOVER")

    def primary_of(self, slot: int) -> int | None:
        """The node that a majority of all nodes takes for the owner of a slot, if it lives; None while there is none. Nodes that
        do not answer at once have no vote."""
        votes = [owner for node in self._alive() if (owner := self._owner_told_by(node, slot)) is not None]
        owner = max(votes, key=votes.count, default=None)
        return owner if owner is not None and votes.count(owner) > self._nodes // 2 and self.alive(owner) else None

    def wait_for_promotion(self, slot: int, old: int, timeout_s: float = PROMOTION_TIMEOUT_S) -> int:
        """Wait until another node than `old` owns a slot. Raises ServerFailed."""
        deadline_s = time.monotonic() + timeout_s
        while (now := self.primary_of(slot)) in (None, old):
            if time.monotonic() > deadline_s:
                raise ServerFailed(f"slot {slot}: node {now} owns it {timeout_s:g} s after node {old} did")
            time.sleep(POLL_S)
        return now

    def is_whole(self) -> bool:
        """True when every node takes the cluster for healthy, and each replica is in step with its primary."""
        try:
            return all(self._is_ok(node) and self._is_in_step(node) for node in range(self._nodes))
        except redis.RedisError:
            return False

    def wait_until_whole(self, timeout_s: float = PROMOTION_TIMEOUT_S) -> None:
        """Wait until `is_whole`. Raises ServerFailed."""
        deadline_s = time.monotonic() + timeout_s
        while not self.is_whole():
            if time.monotonic() > deadline_s:
                raise ServerFailed(f"cluster of {self._nodes} on ports {self.ports}: not whole within {timeout_s:g} s")
            time.sleep(POLL_S)

    def begin_move(self, slot: int, target: int) -> SlotMove:
        """Mark a slot as importing at `target` and migrating at its owner, and move nothing yet."""
        return SlotMove(self._clients, self._names, slot, self.owner_of(slot), target)

    def move_slot(self, slot: int, target: int, *, portion: int = 100, step: Callable[[SlotMove], object] | None = None) -> None:
        """Move a slot while it is in use, `portion` keys at a time. `step` is called after each stage: the marks, each portion,
        and the change of owner."""
        note = step or _ignore
        move = self.begin_move(slot, target)
        note(move)
        while keys := move.keys_left(portion):
            move.move_keys(keys)
            note(move)
        move.finish()
        note(move)

    def end_moves(self, slot: int) -> None:
        """Take the marks of a move that stopped half way away. Its keys stay where they are."""
        for client in self._clients:
            client.execute_command("CLUSTER SETSLOT", slot, "STABLE")

    def __enter__(self) -> EmbeddedCluster:
        try:
            for node in range(self._nodes):
                self._add_node(node)
            self._join()
            self._wait_for(self._is_ok, "not ok")
            self._follow()
            self._wait_for(self._is_in_step, "replicas not in step")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End every node and remove its folder. A second call does nothing."""
        self.servers, self._clients, self._names = [], [], []
        self._stack.close()

    def _add_node(self, node: int) -> None:
        """One more node, with a port for its bus that stays free while it is down, as its own does."""
        log = self._logs / f"server-{node}.log" if self._logs else None
        tries_left = PORTS_MAX
        while True:
            port = free_port()
            announced = self._announce(f"server-{node}", port)
            flags = [
                *("--cluster-enabled", "yes", "--cluster-port", str(free_port())),
                *("--cluster-node-timeout", str(self._node_timeout_ms), "--cluster-allow-replica-migration", "no"),
                *REPLICATION_FLAGS,
                *self._flags(),
            ]
            if announced != port:
                flags += ["--cluster-announce-ip", LOOPBACK, "--cluster-announce-port", str(announced)]
            server = EmbeddedServer(port=port, binary=self._binary, log=log, flags=flags)
            try:
                self._stack.enter_context(server)
                break
            except ServerFailed as error:
                tries_left -= 1
                if not tries_left or PORT_TAKEN not in str(error):
                    raise
        client: Client = redis.Redis(port=server.port, socket_timeout=MIGRATE_TIMEOUT_MS / 1000, protocol=2)
        self._stack.callback(client.close)
        self.servers.append(server)
        self.announced_ports.append(announced)
        self._clients.append(client)
        self._names.append(client.execute_command("CLUSTER MYID").decode())

    def _join(self) -> None:
        """Share the slots out and let the nodes meet, each with an epoch of its own: none has to be negotiated."""
        for node, client in enumerate(self._clients):
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", node + 1)
            if node < self._primaries:
                first, last = SLOTS * node // self._primaries, SLOTS * (node + 1) // self._primaries - 1
                client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
        for other in self._clients[1:]:
            bus_port = int(other.config_get("cluster-port")["cluster-port"])
            port = other.connection_pool.connection_kwargs["port"]
            self._clients[0].execute_command("CLUSTER MEET", LOOPBACK, port, bus_port)

    def _follow(self) -> None:
        """Give each primary its replicas."""
        for node in range(self._primaries, self._nodes):
            self._clients[node].execute_command("CLUSTER REPLICATE", self._names[node % self._primaries])

    def _wait_for(self, condition: Callable[[int], bool], complaint: str) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not all(condition(node) for node in range(self._nodes)):
            if time.monotonic() > deadline_s:
                words = f"cluster of {self._nodes} on ports {self.ports}"
                raise ServerFailed(f"{words}: {complaint} within {START_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)

    def _is_ok(self, node: int) -> bool:
        info: dict[str, str] = self._clients[node].execute_command("CLUSTER INFO")
        return info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == self._nodes

    def _is_in_step(self, node: int) -> bool:
        """True for a primary whose replicas are all there, and for a replica that has what its primary has."""
        lines: dict[str, Any] = self._clients[node].info("replication")
        if lines["role"] == "slave":
            return lines["master_link_status"] == "up" and not lines["master_sync_in_progress"]
        replicas = self._nodes // self._primaries - 1
        return not replicas or int(lines["connected_slaves"]) == len(self.replicas_of(node)) == replicas

    def _alive(self) -> list[int]:
        return [node for node in range(len(self.servers)) if self.alive(node)]

    def _owner_told_by(self, node: int, slot: int) -> int | None:
        """The owner of a slot by one node's table, asked over a connection of its own: a frozen node costs little time."""
        try:
            table = ask_server(self.servers[node].port, "CLUSTER NODES", PROBE_TIMEOUT_S)
        except OSError:
            return None
        for line in table.splitlines():
            name, _, flags, *rest = line.split()
            spans = [span.partition("-")[::2] for span in rest[5:] if not span.startswith("[")]
            if "fail" not in flags.split(",") and any(int(first) <= slot <= int(last or first) for first, last in spans):
                return self._names.index(name)
        return None

    def _owner_seen_by(self, node: int, slot: int) -> int:
        rows: list[Any] = self._clients[node].execute_command("CLUSTER SLOTS")
        return next(self._names.index(row[2][2].decode()) for row in rows if row[0] <= slot <= row[1])


class SlotMove:
    """One slot on its way from `source` to `target`: the keys that have moved are at the one, all others at the other."""

    def __init__(self, clients: list[Client], names: list[str], slot: int, source: int, target: int) -> None:
        self.slot = slot
        self.source = source
        self.target = target
        self._clients = clients
        self._names = names
        # In this order: a source that sends clients away before the target lets them in would send them in a circle.
        clients[target].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[source])
        clients[source].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[target])

    def keys_left(self, most: int = 1_000_000) -> list[bytes]:
        """Keys of the slot that are still at the source."""
        return list(self._clients[self.source].execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, most))

    def move_keys(self, keys: Iterable[bytes]) -> None:
        """Move these keys, in one piece; a key that is gone meanwhile is left out.

        Raises redis-py's ResponseError with BUSYKEY when the target has such a key too, as an operator's tool would stop there:
        somebody wrote one key at both nodes.
        """
        keys = tuple(keys)
        if not keys:
            return
        words = ("MIGRATE", LOOPBACK, self._port(self.target), "", 0, MIGRATE_TIMEOUT_MS, "KEYS")
        self._clients[self.source].execute_command(*words, *keys)

    def finish(self) -> None:
        """Move what is left and make the target the owner, at every node."""
        while keys := self.keys_left(1000):
            self.move_keys(keys)
        others = [node for node in range(len(self._clients)) if node not in (self.target, self.source)]
        # Replicas are told by their primaries.
        others = [node for node in others if self._clients[node].info("replication")["role"] == "master"]
        for node in (self.target, self.source, *others):
            self._clients[node].execute_command("CLUSTER SETSLOT", self.slot, "NODE", self._names[self.target])

    def _port(self, node: int) -> int:
        return int(self._clients[node].connection_pool.connection_kwargs["port"])


def _ignore(move: SlotMove) -> None:
    """A stage that nobody asked for."""
