"""Where the servers of a run come from. Every topology is a context: real processes inside, nothing left behind after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chaos import topologies
from chaos.topology.base import Replicated, Setting, Topology
from chaos.topology.several import InCluster, WithReplicas, WithSentinels
from chaos.topology.single import Durable, Embedded
from engine.testing import server_binary

__all__ = ["Durable", "InCluster", "Replicated", "Setting", "Topology", "WithReplicas", "WithSentinels", "binary", "make"]

#: Name of a topology -> how to make it.
MADE: dict[str, Callable[[Setting], Topology]] = {
    topologies.EMBEDDED: Embedded,
    topologies.AOF: Durable,
    topologies.REPLICA: WithReplicas,
    topologies.SENTINEL: WithSentinels,
    topologies.CLUSTER: InCluster,
}


def make(name: str, setting: Setting) -> Topology:
    """The topology of that name. Raises HarnessError naming those that exist."""
    topologies.check(name, setting.durability)
    return MADE[name](setting)


def binary() -> Path:
    """The server binary that topologies start."""
    return Path(server_binary())
