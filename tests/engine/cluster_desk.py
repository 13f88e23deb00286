"""A desk on a cluster: the same short ways to run operations, by a client that follows a slot which is on the move."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import redis
from redis.exceptions import AskError, BusyLoadingError, ClusterDownError, MovedError, TryAgainError

from chaos.topology.embedded_cluster import EmbeddedCluster
from engine.models.lanes import Lanes
from engine.models.lanes_keys import LanesKeys
from engine.testing.server import LOOPBACK
from tests.engine.using import START_MS, TOMBSTONE, Call, Desk, MakeTestQueue

#: The node timeout of clusters in which no node fails: none is taken for dead because the machine stands still.
CALM_MS = 60_000

#: Redirections of one send: further ones lead in a circle.
HOPS_MAX = 5

#: What may be sent again because of rule 1 (rule 27), beside the redirections.
NOT_NOW = (TryAgainError, ClusterDownError, BusyLoadingError)
NOT_NOW_TEXT = "non local key"


class NotNow(Exception):
    """The cluster does not answer this call while the slot is where it is: send it again later."""


class Router:
    """A cluster client of the plainest kind, for one thread: one connection a node, MOVED and ASK followed."""

    def __init__(self, ports: tuple[int, ...], model: Lanes) -> None:
        #: What each send met, in order: the node's number, then `ok` or the first words of the error.
        self.met: list[str] = []
        self._connections: dict[int, Any] = {at: redis.Connection(LOOPBACK, at, protocol=2, socket_timeout=60) for at in ports}
        self._guess = ports[0]
        for connection in self._connections.values():
            for script in model.scripts.values():
                connection.send_command("SCRIPT", "LOAD", script.text)
                connection.read_response()

    def run(self, call: Call[Any]) -> Any:
        """The parsed reply. Raises NotNow; and redis-py's errors, for those that rule 27 does not know."""
        port, asking = self._guess, False
        for _ in range(HOPS_MAX):
            try:
                reply = self._exchange(port, call, asking)
            except AskError as error:
                asking = not isinstance(error, MovedError)
                self._note(port, "MOVED" if not asking else "ASK")
                port = error.port
                if not asking:
                    self._guess = port
            except redis.ResponseError as error:
                self._note(port, str(error)[:200])
                if isinstance(error, NOT_NOW) or NOT_NOW_TEXT in str(error):
                    raise NotNow(str(error)) from error
                raise
            else:
                self._note(port, "ok, ASKING" if asking else "ok")
                return call.parse(reply)
        raise NotNow(f"{HOPS_MAX} redirections")

    def close(self) -> None:
        for connection in self._connections.values():
            connection.disconnect()

    def _exchange(self, port: int, call: Call[Any], asking: bool) -> Any:
        connection = self._connections[port]
        connection.send_packed_command(connection.pack_commands([("ASKING",)] * asking + [call.words()]), check_health=False)
        if asking:
            connection.read_response()
        return connection.read_response(disconnect_on_error=False)

    def _note(self, port: int, what: str) -> None:
        self.met.append(f"{list(self._connections).index(port)}: {what}")


class _Queue(NamedTuple):
    """What a desk needs of a queue."""

    model: Lanes
    driver: Router
    use_test_clock: Callable[[int], None]


class ClusterDesk(Desk):
    """One queue under a clock that the test moves, on a cluster. Keys never expire: a tombstone stays to be counted."""

    def __init__(self, cluster: EmbeddedCluster, model: Lanes) -> None:
        self.cluster = cluster
        self.router = Router(cluster.ports, model)
        self.keys = LanesKeys("desk")
        self.slot = cluster.slot_of(self.keys.prefix)
        self.queue: Any = _Queue(model, self.router, self._set_clock)
        self.reset()

    def reset(self) -> None:
        """Empty the queue and begin again, wherever its slot is now."""
        self.cluster.end_moves(self.slot)
        self.cluster.flush()
        self.look_again()
        self.queue.model.now_ms = None
        self.now_ms = START_MS
        self._counters = {}
        self.run(MakeTestQueue())
        self._set_clock(self.now_ms)
        self.router.met.clear()

    def look_again(self) -> None:
        """Read raw keys where the slot is now."""
        self.redis = self.cluster.client(self.cluster.owner_of(self.slot))

    def close(self) -> None:
        self.router.close()

    def tick(self, ms: int) -> Self:
        self.now_ms += ms
        self._set_clock(self.now_ms)
        return self

    # -- raw keys

    def members(self, kind: str, state: dict[str, Any] | None = None) -> dict[str, set[str]]:
        """The members of each zset or hash whose name begins with this word, by key; now, or in a dump."""
        start, prefix = self.keys.prefix + kind, self.keys.prefix
        found = {key.removeprefix(prefix): kept for key, kept in (state or self.dump()).items() if key.startswith(start)}
        return {name: {(one[0] if shown == "zset" else one).decode() for one in kept} for name, (shown, kept, _) in found.items()}

    def where(self) -> dict[str, set[str]]:
        """The structures that hold each job that has an envelope or a tombstone: its lane, due, active, dead, ended. A lane that
        is neither ready nor parked holds nothing: no claim would ever look into it."""
        found: dict[str, set[str]] = {}
        state = self.dump()
        for key, (_, raw, _) in state.items():
            if key.startswith(self.keys.job("")):
                found[key.split(":job:")[1]] = {"ended"} if raw[:1] == TOMBSTONE else set()
        seen = set().union(*self.members("ready:", state).values(), self.members("parked", state).get("parked", set()))
        for name, jobs in self.members("lane:", state).items():
            for job in jobs & set(found) if name.removeprefix("lane:") in seen else ():
                found[job].add(name)
        for name in ("due", "active", "dead", "blocked"):
            for member in self.members(name, state).get(name, ()):
                found.setdefault(member[10:] if name == "due" else member, set()).add(name)
        return found

    def _set_clock(self, now_ms: int) -> None:
        self.queue.model.now_ms = now_ms
