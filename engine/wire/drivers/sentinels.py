"""Finds the primary of a service behind sentinels: the server that a majority of them names, by address and run id.

A server that comes back at its old address, perhaps empty, has another run id: it is not connected to before the sentinels have
seen that for themselves. Each sentinel publishes `+switch-master` when it has decided, and the answers of a majority follow.
For some seconds after that no sentinel knows the run id of the new primary (5.6 s were seen): its address and role count.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import redis

from engine.wire.drivers.client_errors import FAILURES, message_of
from engine.wire.drivers.resolver import Answer, Ask, Resolver
from engine.wire.drivers.routes import Address, Node, SentinelRoute

SWITCHED = "+switch-master"
#: An answer is so old at most when a connection is opened by it.
FRESH_NS = 1_000_000_000
#: After a switch the sentinels are asked so often, until a majority agrees, for so long at most: they know the run id of the new
#: primary as soon as they have connected to it.
SWITCH_PAUSE_S, SWITCH_MOST_S = 0.1, 30.0

#: Calls `heard` with what a sentinel publishes, for as long as `wanted`.
Listen = Callable[[Address, Callable[[bytes], None], Callable[[], bool]], None]


class Sentinels(Resolver):
    """The sentinels of one service: those that the url names, and those that they know of."""

    def __init__(self, route: SentinelRoute, ask: Ask, timeout_s: float, listen: Listen) -> None:
        self._route = route
        self._listen = listen
        named = ("SENTINEL", "MASTER", route.service), ("SENTINEL", "SENTINELS", route.service)
        super().__init__(ask, (("SENTINEL", "MYID"), *named), timeout_s)

    def _begin(self) -> None:
        super()._begin()
        self._primary: Node | None = None
        self._answered_ns = 0
        self._listened: set[Address] = set()
        self._following = False

    def named(self, slot: int) -> Node | None:
        """The primary: it has all slots."""
        return self._primary

    def serves(self, node: Node) -> bool:
        """Whether this is the primary. One whose run id was not known is the same as soon as it is."""
        primary = self._primary
        return primary is not None and node.address == primary.address and _agree(node.identity, primary.identity)

    def fresh(self, slot: int) -> Node | None:
        """The primary, by an answer of the last second."""
        return self.known(slot) if time.monotonic_ns() - self._answered_ns < FRESH_NS else None

    def replaced(self, node: Node) -> bool:
        """Whether this is not the primary any more."""
        return not self.serves(node)

    def addresses(self) -> Iterable[Address]:
        """Those of the url, and those that have answered before."""
        return {*self._route.sentinels, *self._listened}

    def takes(self, answers: Mapping[Address, Answer], *, last: bool) -> Iterable[Address] | None:
        """Count one vote for each sentinel, whatever it was called; those that others know of are asked too."""
        votes: dict[str, Node] = {}
        further: set[Address] = set()
        count = len(self._route.sentinels)
        for address, answer in answers.items():
            if isinstance(answer, Exception) or isinstance(answer[1], Exception):
                continue
            self._hear(address)
            identity, primary, others = _text(answer[0]) or str(address), _fields(answer[1]), answer[2]
            count = max(count, 1 + int(primary.get("num-other-sentinels", 0)))
            if isinstance(others, list):
                further |= {_address(_fields(other)) for other in cast("list[Any]", others)}
            votes[identity] = Node(*_address(primary), primary.get("runid", ""))
        agreed = _agreed(votes.values(), count)
        if agreed is not None:
            self._primary, self._answered_ns = agreed, time.monotonic_ns()  # anchor: majority-is-followed
            return None
        if last and not further - answers.keys():
            raise redis.ConnectionError(self._complaint(answers, votes.values(), count))
        return further

    def _complaint(self, answers: Mapping[Address, Answer], votes: Iterable[Node], count: int) -> str:
        counted = Counter(votes).most_common()
        named = ", ".join(f"{node.host}:{node.port} ({node.identity or 'no run id'}) by {number}" for node, number in counted)
        errors = [answer if isinstance(answer, Exception) else answer[1] for answer in answers.values()]
        refusals = {message_of(error) for error in errors if isinstance(error, Exception)}
        why = f" ({'; '.join(sorted(refusals))})" if refusals else ""
        return f"no majority of {count} sentinels names the primary of {self._route.service}: {named or 'no server'}{why}"

    def _hear(self, address: Address) -> None:
        """Listen to a sentinel that has answered."""
        with self._lock:
            if address in self._listened:
                return
            self._listened.add(address)
        self._listen(address, self._heard, lambda: self._wants(address))

    def _wants(self, address: Address) -> bool:
        with self._lock:
            if not self.wanted:
                self._listened.discard(address)
            return self.wanted

    def _heard(self, message: bytes) -> None:
        if message.split(b" ", 1)[0].decode() != self._route.service:
            return
        self.doubt()
        with self._lock:
            if self._following:
                return
            self._following = True
        threading.Thread(target=self._follow, name="ironclaim-resolver-switch", daemon=True).start()

    def _follow(self) -> None:
        """Ask until a majority names another primary than before, so that connections to the old one are closed soon."""
        before, until_s = self._primary, time.monotonic() + SWITCH_MOST_S
        while self._primary == before and self.wanted and time.monotonic() < until_s:
            try:
                self.find().result(2 * self._timeout_s)
            except (*FAILURES, TimeoutError):
                self.doubt()
            time.sleep(SWITCH_PAUSE_S)
        with self._lock:
            self._following = False


def _agreed(votes: Iterable[Node], count: int) -> Node | None:
    """The server that more than half of so many name: at one address, and by one run id as far as they know it."""
    at: dict[Address, list[str]] = {}
    for node in votes:
        at.setdefault(node.address, []).append(node.identity)
    for address, identities in at.items():
        known = Counter(identity for identity in identities if identity).most_common(1)
        identity = known[0][0] if known else ""
        if sum(_agree(one, identity) for one in identities) > count // 2:
            return Node(*address, identity)
    return None


def _agree(one: str, other: str) -> bool:
    return one == other or not one or not other


def _fields(reply: Sequence[Any]) -> dict[str, str]:
    """Names and values by turns."""
    return {_text(name): _text(value) for name, value in zip(reply[::2], reply[1::2], strict=False)}


def _address(fields: Mapping[str, str]) -> Address:
    return Address(fields["ip"], int(fields["port"]))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else ""
