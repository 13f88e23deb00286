"""A private cluster of primaries on loopback ports, and slots that move between them in stages that a test can stop at.

with EmbeddedCluster() as cluster:
    move = cluster.begin_move(slot, target=1)     # MIGRATING and IMPORTING are set, no key has moved
    move.move_keys(move.keys_left()[:3])               # half way: ASK, TRYAGAIN and "non local key" are real now
    move.finish()
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import redis

from engine.testing.ports import LOOPBACK, free_port
from engine.testing.server import NOT_RUNNING, POLL_S, PORT_TAKEN, PORTS_MAX, START_TIMEOUT_S, EmbeddedServer, ServerFailed

SLOTS = 16_384

#: Votes and failures are decided within this. Longer than a busy machine leaves a process waiting: a node taken for dead would
#: make the whole cluster refuse.
NODE_TIMEOUT_MS = 3_000

#: Upper bound of one MIGRATE.
MIGRATE_TIMEOUT_MS = 5_000

#: redis-py's own types leave its replies unknown.
Client = Any


class EmbeddedCluster:
    """Three primaries, alive inside the `with` block and gone after it, each an `EmbeddedServer` with a folder of its own.

    `binary`: the program; without it see `server_binary`. Nodes are named by their number. Enter it from a thread that lives as
    long as the cluster should. Raises ServerMissing and ServerFailed as `EmbeddedServer` does.
    """

    def __init__(self, *, primaries: int = 3, binary: str | os.PathLike[str] | None = None) -> None:
        self._primaries = primaries
        self._binary = binary
        self._stack = ExitStack()
        self._servers: list[EmbeddedServer] = []
        self._clients: list[Client] = []
        self._names: list[str] = []

    @property
    def ports(self) -> tuple[int, ...]:
        """TCP port of each node. Raises ServerFailed outside the `with` block."""
        if not self._servers:
            raise ServerFailed(NOT_RUNNING)
        return tuple(server.port for server in self._servers)

    @property
    def urls(self) -> tuple[str, ...]:
        """What a client connects to, for each node."""
        return tuple(f"redis://{LOOPBACK}:{port}/0" for port in self.ports)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process id of each node."""
        return tuple(server.pid for server in self._servers)

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
        while len(owners := {self._owner_seen_by(node, slot) for node in range(self._primaries)}) != 1:
            if time.monotonic() > deadline_s:
                raise ServerFailed(f"slot {slot}: the nodes name different owners {sorted(owners)}")
            time.sleep(POLL_S)
        return owners.pop()

    def flush(self) -> None:
        """Empty every node, and wait until it is done."""
        for server in self._servers:
            server.flush()

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
            for _ in range(self._primaries):
                self._add_node()
            self._join()
            self._wait_until_ok()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End every node and remove its folder. A second call does nothing."""
        self._servers, self._clients, self._names = [], [], []
        self._stack.close()

    def _add_node(self) -> None:
        """One more node, with a free port for its bus: the usual one, 10,000 above, may be beyond the last port."""
        tries_left = PORTS_MAX
        while True:
            flags = [
                *("--cluster-enabled", "yes", "--cluster-port", str(free_port())),
                *("--cluster-node-timeout", str(NODE_TIMEOUT_MS)),
            ]
            server = EmbeddedServer(binary=self._binary, flags=flags)
            try:
                self._stack.enter_context(server)
                break
            except ServerFailed as error:
                tries_left -= 1
                if not tries_left or PORT_TAKEN not in str(error):
                    raise
        client: Client = redis.Redis(port=server.port, socket_timeout=MIGRATE_TIMEOUT_MS / 1000, protocol=2)
        self._stack.callback(client.close)
        self._servers.append(server)
        self._clients.append(client)
        self._names.append(client.execute_command("CLUSTER MYID").decode())

    def _join(self) -> None:
        """Share the slots out and let the nodes meet, each with an epoch of its own: none has to be negotiated."""
        for node, client in enumerate(self._clients):
            first, last = SLOTS * node // self._primaries, SLOTS * (node + 1) // self._primaries - 1
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", node + 1)
            client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
        for other in self._clients[1:]:
            bus_port = int(other.config_get("cluster-port")["cluster-port"])
            port = other.connection_pool.connection_kwargs["port"]
            self._clients[0].execute_command("CLUSTER MEET", LOOPBACK, port, bus_port)

    def _wait_until_ok(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not all(self._is_ok(client) for client in self._clients):
            if time.monotonic() > deadline_s:
                raise ServerFailed(f"cluster of {self._primaries} on ports {self.ports}: not ok within {START_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)

    def _is_ok(self, client: Client) -> bool:
        info: dict[str, str] = client.execute_command("CLUSTER INFO")
        return info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == self._primaries

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
        for node in (self.target, self.source, *others):
            self._clients[node].execute_command("CLUSTER SETSLOT", self.slot, "NODE", self._names[self.target])

    def _port(self, node: int) -> int:
        return int(self._clients[node].connection_pool.connection_kwargs["port"])


def _ignore(move: SlotMove) -> None:
    """A stage that nobody asked for."""
