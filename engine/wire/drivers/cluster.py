"""Finds the node of each slot of a cluster. Nodes that see the cluster as `ok` are asked; where they differ, most of them count.

A node that answers MOVED knows better at once: the next call goes where it points, and the new node must say the right node id.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import redis

from engine.wire.drivers.client_errors import message_of
from engine.wire.drivers.resolver import Answer, Ask, Resolver
from engine.wire.drivers.routes import Address, ClusterRoute, Node

#: So many nodes are asked at once, at most.
ASKED_MAX = 5
#: What others say is waited for so long after a node has answered.
PATIENCE_S = 0.2

#: First slot, last slot, node.
Range = tuple[int, int, Node]


class ClusterNodes(Resolver):
    """The primaries of a cluster and their slots."""

    def __init__(self, route: ClusterRoute, ask: Ask, timeout_s: float) -> None:
        self._route = route
        super().__init__(ask, (("CLUSTER", "INFO"), ("CLUSTER", "SLOTS")), timeout_s)

    def _begin(self) -> None:
        super()._begin()
        self._views: list[list[Range]] = []
        self._nodes: dict[Address, Node] = {}
        # What is found in the views, and what MOVED has said since.
        self._slots: dict[int, Node] = {}
        self._first_s = 0.0

    def named(self, slot: int) -> Node | None:
        """The node that most of the asked ones say serves the slot, or that a MOVED has named since."""
        found = self._slots.get(slot)
        if found is None:
            owners = Counter(node for view in self._views for first, last, node in view if first <= slot <= last)
            if not owners:
                return None
            found = self._slots[slot] = owners.most_common(1)[0][0]
        return found

    def serves(self, node: Node) -> bool:
        """Whether it is a primary with slots."""
        return node in self._nodes.values()

    def addresses(self) -> Iterable[Address]:
        """Some primaries that were named before, and the seeds."""
        self._first_s = 0.0
        # Nodes that answered before come first; seeds may be gone by now.
        return tuple(dict.fromkeys((*list(self._nodes)[:ASKED_MAX], *self._route.seeds)))

    def takes(self, answers: Mapping[Address, Answer], *, last: bool) -> Iterable[Address] | None:
        """Take what nodes say that see a whole cluster."""
        views = [view for address, answer in answers.items() if (view := _view(address, answer)) is not None]
        if views and not self._first_s:
            self._first_s = time.monotonic()
        enough = len(views) >= ASKED_MAX or (views and time.monotonic() - self._first_s > PATIENCE_S)
        if views and (last or enough):
            self._views, self._slots = views, {}
            self._nodes = {node.address: node for view in views for _, _, node in view}
            return None
        if last:
            raise redis.ConnectionError(_complaint(answers))
        return ()

    def moved(self, slot: int, address: Address) -> None:
        """Follow a MOVED to a node that is known; else ask."""
        node = self._nodes.get(address)
        if node is None:
            self.doubt()
        else:
            self._slots[slot] = node

    def at(self, address: Address) -> Node:
        """The node at an address that ASK has named."""
        return self._nodes.get(address) or super().at(address)


def _view(asked: Address, answer: Answer) -> list[Range] | None:
    """The slots as a node sees them, or None where it sees no whole cluster."""
    if isinstance(answer, Exception) or any(isinstance(reply, Exception) for reply in answer):
        return None
    info: Any = answer[0]
    if b"cluster_state:ok" not in info:
        return None
    # A node that does not know its own address leaves it out.
    return [
        (row[0], row[1], Node((row[2][0] or asked.host.encode()).decode(), row[2][1], row[2][2].decode())) for row in answer[1]
    ]


def _complaint(answers: Mapping[Address, Answer]) -> str:
    words: list[str] = []
    for (host, port), answer in answers.items():
        errors = [answer] if isinstance(answer, Exception) else [reply for reply in answer if isinstance(reply, Exception)]
        words.append(f"{host}:{port}: {message_of(errors[0]) if errors else 'CLUSTERDOWN, it does not see a whole cluster'}")
    return f"no node of the cluster can say where slots are: {'; '.join(words)}"
