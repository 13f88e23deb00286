"""The slot of the run's keys moves to another primary while everybody works on it."""

from __future__ import annotations

import time

import redis

from chaos.errors import HarnessError
from chaos.faults.asking import refusals, tell
from chaos.faults.base import Scene, Seen
from chaos.faults.failover import FOLLOW_TIMEOUT_S
from chaos.plan import PlannedFault
from chaos.topology.embedded_cluster import SlotMove
from chaos.topology.several import InCluster

#: Keys that are moved at a time, and how long it stays half way: with keys at both ends.
PORTION = 50
HALF_WAY_S = 1.0


class SlotMoving:
    """inject: the slot is marked as on its way, and half of its keys are moved. witness: the new node has keys of it
    (those at the old one may expire), and the old one has sent clients to the new one (ASK), or told those to try again whose
    keys are at both (TRYAGAIN). heal: the rest is moved, and the new
    owner told to all. healed: all nodes agree, the old one has sent clients away for good (MOVED), and everybody is answered."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self._scene = scene
        self._servers: InCluster = scene.servers
        self._move: SlotMove | None = None
        self._healed_ns = 0
        self._before: dict[str, int] = {}
        del planned

    def inject(self) -> Seen:
        servers = self._servers
        source = servers.primary()
        if source is None:
            raise HarnessError("nobody owns the slot before it moves")
        target = next(node for node in range(len(servers.ports)) if node != source and servers.servers.role(node) == "master")
        self._before = sent_away(servers.ports[source])
        servers.moving = True
        t_ns = time.monotonic_ns()
        try:
            self._move = move = servers.servers.begin_move(servers.slot, target)
            keys = move.keys_left()
            for start in range(0, len(keys) // 2, PORTION):
                move.move_keys(keys[start : start + PORTION])
        except redis.RedisError as error:
            raise HarnessError(f"slot {servers.slot} cannot be moved: {error}") from error
        return Seen(t_ns, True, f"slot {servers.slot}: {len(keys) // 2} of {len(keys)} keys moved, {source} to {target}")

    def witness(self) -> Seen:
        assert self._move is not None
        move, ports = self._move, self._servers.ports
        self._scene.wait(lambda: False, timeout_s=HALF_WAY_S)
        both = [tell(ports[node], "CLUSTER", "COUNTKEYSINSLOT", move.slot) for node in (move.source, move.target)]
        now = sent_away(ports[move.source])
        asked, again = (now[answer] - self._before[answer] for answer in ("ASK", "TRYAGAIN"))
        return Seen(
            time.monotonic_ns(),
            both[1] > 0 and asked + again > 0,
            f"{both[0]} and {both[1]} keys; {asked} calls sent on by ASK, {again} told to try again",
        )

    def heal(self) -> Seen:
        if self._move is not None:
            try:
                self._move.finish()
            except redis.RedisError as error:
                raise HarnessError(f"slot {self._move.slot} cannot be moved on: {error}") from error
        self._healed_ns = time.monotonic_ns()
        return Seen(self._healed_ns, self._move is not None, "all keys moved, and the new owner told to all")

    def witness_healed(self) -> Seen:
        assert self._move is not None
        move, servers = self._move, self._servers
        agreed = self._scene.wait(lambda: servers.primary() == move.target, timeout_s=FOLLOW_TIMEOUT_S, poll_s=0.05)
        servers.known, servers.moving = servers.primary(), False
        missing = self._scene.unanswered_since(self._healed_ns, FOLLOW_TIMEOUT_S)

        def moved() -> int:
            return sent_away(servers.ports[move.source])["MOVED"] - self._before["MOVED"]

        # A client learns of the new owner with its next call to the old one.
        self._scene.wait(lambda: moved() > 0, timeout_s=FOLLOW_TIMEOUT_S, poll_s=0.05)
        t_ns, count = time.monotonic_ns(), moved()
        detail = f"{'all agree' if agreed else 'not all agree'}; {count} calls sent away by MOVED"
        detail += f"; answered {(t_ns - self._healed_ns) / 1e6:.0f} ms after the heal: "
        detail += f"all but {', '.join(missing)}" if missing else "everybody"
        return Seen(t_ns, agreed and not missing and count > 0, detail)


def sent_away(port: int) -> dict[str, int]:
    """How many calls a node has not carried out because their slot is on its way, or gone, by its answer."""
    return {name: refusals(port, name) for name in ("ASK", "TRYAGAIN", "MOVED")}
