"""Finds the server to write to where no address is fixed, for all drivers of a process that name the same
sentinels or cluster.

It is asked before a connection is opened, and again after whatever may mean that another server has taken
over. One thread asks, for all who wait; nobody holds a lock meanwhile. When the answer changes, connections
to servers that are no longer named are closed, also those that wait for a reply."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import weakref
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, cast

import redis
from redis.exceptions import AskError, MovedError

from engine.redis.endpoint import Address, ClusterRoute, Node, Route, SentinelRoute
from engine.redis.exchange import FAILURES, is_reply, message_of

#: What is sent to one sentinel or node, and what came back: its replies, or the error of the connection.
Words = tuple[object, ...]
Answer = list[Any] | Exception
#: Sends commands to an address on a connection of their own and returns the replies. Raises FAILURES.
Ask = Callable[[Address, Sequence[Words]], list[Any]]

#: Questions are asked so often at most.
_PAUSE_LEAST_S = 0.05
#: While answers are waited for, what came so far is looked at so often.
_LOOK_S = 0.05
#: Replies after which another server may have to be asked.
_DOUBTFUL = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED")


class Holder(Protocol):
    """Has connections that the resolver has opened the way for."""

    def leave(self) -> None:
        """Close the connections to servers that are no longer named; called from any thread."""
        ...


class Resolver:
    """Who is to be written to. Safe from threads and greenlets, and across a fork."""

    def __init__(self, ask: Ask, questions: Sequence[Words], timeout_s: float) -> None:
        self._ask = ask
        self._questions = questions
        self._timeout_s = timeout_s
        #: Who asks waits so long: an answer, or that there is none, is there in half of it.
        self.patience_s = 2 * timeout_s
        self._begin()
        _ALL.add(self)

    def _begin(self) -> None:
        """Begin knowing nothing: at first, and in a forked child, which has none of its parent's threads."""
        self._lock = threading.Lock()
        self._pending: Future[None] | None = None
        self._doubted = True
        self._begun_s = 0.0
        self._pid = os.getpid()
        self._holders: weakref.WeakSet[Holder] = weakref.WeakSet()

    # What the kinds of resolvers have to say.

    @abstractmethod
    def named(self, slot: int) -> Node | None:
        """The node of a slot by the latest answers."""

    @abstractmethod
    def serves(self, node: Node) -> bool:
        """Whether the latest answers name this node for anything."""

    def replaced(self, node: Node) -> bool:
        """Whether another server has been named in place of this one. Nodes of a cluster find that out by
        themselves."""
        del node
        return False

    @abstractmethod
    def addresses(self) -> Iterable[Address]:
        """Whom to ask."""

    @abstractmethod
    def takes(self, answers: Mapping[Address, Answer], *, last: bool) -> Iterable[Address] | None:
        """Decide by the answers so far: None when they suffice, else further addresses to ask. `last`: nobody
        else will answer, so it raises redis-py's ConnectionError where they do not suffice and nobody else is
        to be asked."""

    def moved(self, slot: int, address: Address) -> None:
        """A node has said that another one serves this slot."""

    def at(self, address: Address) -> Node:
        """The node at an address that a server has named; only its role is checked where nothing else is
        known of it."""
        return Node(*address, "")

    # What drivers use.

    def join(self, holder: Holder) -> None:
        """Tell a holder of connections of changes from now on, for as long as it lives or until it parts."""
        if self._pid != os.getpid():
            self._begin()
        self._holders.add(holder)

    def part(self, holder: Holder) -> None:
        """Tell it nothing any more."""
        self._holders.discard(holder)

    @property
    def wanted(self) -> bool:
        """Whether anybody has connections."""
        return bool(self._holders)

    def known(self, slot: int) -> Node | None:
        """The node of a slot, if nothing has cast doubt on it since the last answer."""
        return None if self._doubted or self._pid != os.getpid() else self.named(slot)

    def fresh(self, slot: int) -> Node | None:
        """As `known`, but good enough to open a connection by."""
        return self.known(slot)

    def node(self, slot: int) -> Node:
        """The node of a slot to open a connection to; waits for an answer if need be. Raises redis-py's
        ConnectionError."""
        if (found := self.fresh(slot)) is not None:
            return found
        try:
            self.find().result(self.patience_s)
        except TimeoutError:
            raise redis.ConnectionError("the servers that know the primary did not answer in time") from None
        return self.found(slot)

    def found(self, slot: int) -> Node:
        """The node of a slot by the answers that have just come. Raises redis-py's ConnectionError."""
        node = self.named(slot)
        if node is None:
            raise redis.ConnectionError(f"CLUSTERDOWN no node serves slot {slot}")
        return node

    def doubt(self) -> None:
        """Ask again before the next call."""
        self._doubted = True

    def note_error(self, error: BaseException) -> None:
        """Take an error that a server or a connection has ended a call with."""
        if isinstance(error, MovedError):
            self.moved(error.slot_id, Address.of(error))
        elif not is_reply(error) or message_of(error).startswith(_DOUBTFUL):
            self.doubt()

    def find(self) -> Future[None]:
        """Ask, or wait with others for an answer that is on its way. The future raises redis-py's
        ConnectionError."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            if self._pending is not None:
                return self._pending
            pending = self._pending = Future[None]()
            # A task that waits for it may be cancelled, which must not cancel it for the others.
            pending.set_running_or_notify_cancel()
        threading.Thread(target=self._run, args=(pending,), name="ironclaim-resolver", daemon=True).start()
        return pending

    def _run(self, pending: Future[None]) -> None:
        failure: Exception | None = None
        # Many calls fail at once, and again soon.
        time.sleep(max(0.0, self._begun_s + _PAUSE_LEAST_S - time.monotonic()))
        self._begun_s = time.monotonic()
        self._doubted = False
        try:
            self._gather()
        except Exception as error:
            failure = error
            self._doubted = True
        with self._lock:
            self._pending = None
            holders = tuple(self._holders)
        if failure is None:
            pending.set_result(None)
            for holder in holders:
                holder.leave()
        else:
            pending.set_exception(failure)

    def _gather(self) -> None:
        """Ask all, each in a thread of its own, until the answers suffice: one that does not answer holds up
        nothing."""
        arrived: queue.SimpleQueue[tuple[Address, Answer]] = queue.SimpleQueue()
        answers: dict[Address, Answer] = {}
        asked: set[Address] = set()
        further: Iterable[Address] = self.addresses()
        until_s = time.monotonic() + self._timeout_s
        while True:
            for address in further:
                if address not in asked:
                    asked.add(address)
                    args = (address, arrived)
                    threading.Thread(
                        target=self._ask_one, args=args, name="ironclaim-resolver-ask", daemon=True
                    ).start()
            try:
                address, answer = arrived.get(timeout=max(0.0, min(_LOOK_S, until_s - time.monotonic())))
                answers[address] = answer
            except queue.Empty:
                pass
            last = len(answers) == len(asked) or time.monotonic() >= until_s
            decided = self.takes(answers, last=last)
            if decided is None:
                return
            further = tuple(decided)

    def _ask_one(self, address: Address, arrived: queue.SimpleQueue[tuple[Address, Answer]]) -> None:
        try:
            arrived.put((address, self._ask(address, self._questions)))
        except FAILURES as error:
            arrived.put((address, error))


#: All that are alive, for forked children, and by what they are made of, so that drivers share them.
_ALL: weakref.WeakSet[Resolver] = weakref.WeakSet()
_SHARED: weakref.WeakValueDictionary[tuple[Route, str], Resolver] = weakref.WeakValueDictionary()
_shared_lock = threading.Lock()


def shared(route: Route, settings: str, make: Callable[[], Resolver]) -> Resolver:
    """The resolver of this process for a route, with these settings of connections in words."""
    with _shared_lock:
        found = _SHARED.get((route, settings))
        if found is None:
            found = _SHARED[route, settings] = make()
        return found


def _in_a_forked_child() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for resolver in list(_ALL):
        resolver._begin()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_forked_child)


# -- Finds the node of each slot of a cluster. Nodes that see the cluster as `ok` are asked; where they
# differ, most of them count.
#
# A node that answers MOVED knows better at once: the next call goes where it points. The new node must
# say the right node id.

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
            owners = Counter(
                node for view in self._views for first, last, node in view if first <= slot <= last
            )
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
        (row[0], row[1], Node((row[2][0] or asked.host.encode()).decode(), row[2][1], row[2][2].decode()))
        for row in answer[1]
    ]


def _complaint(answers: Mapping[Address, Answer]) -> str:
    words: list[str] = []
    for (host, port), answer in answers.items():
        errors = (
            [answer]
            if isinstance(answer, Exception)
            else [reply for reply in answer if isinstance(reply, Exception)]
        )
        words.append(
            f"{host}:{port}: "
            f"{message_of(errors[0]) if errors else 'CLUSTERDOWN, it does not see a whole cluster'}"
        )
    return f"no node of the cluster can say where slots are: {'; '.join(words)}"


# -- Finds the primary of a service behind sentinels: the server that a majority of them names, by address
# and run id.
#
# A server that comes back at its old address, perhaps empty, has another run id. It is not connected to
# before the sentinels have seen that for themselves. Each sentinel publishes `+switch-master` when it has
# decided, and the answers of a majority follow. For some seconds after that no sentinel knows the run id of
# the new primary (5.6 s were seen): its address and role count.

SWITCHED = "+switch-master"
#: An answer is so old at most when a connection is opened by it.
FRESH_NS = 1_000_000_000
#: After a switch the sentinels are asked so often, until a majority agrees, for so long at most. They know
#: the run id of the new primary as soon as they have connected to it.
SWITCH_PAUSE_S, SWITCH_MOST_S = 0.1, 30.0

#: Calls `on_message` with what a sentinel publishes, for as long as `wanted`.
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
        return (
            primary is not None
            and node.address == primary.address
            and _agree(node.identity, primary.identity)
        )

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
        """Count one vote for each sentinel, whatever it was called; those that others know of are asked
        too."""
        votes: dict[str, Node] = {}
        further: set[Address] = set()
        count = len(self._route.sentinels)
        for address, answer in answers.items():
            if isinstance(answer, Exception) or isinstance(answer[1], Exception):
                continue
            self._subscribe(address)
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
        named = ", ".join(
            f"{node.host}:{node.port} ({node.identity or 'no run id'}) by {number}"
            for node, number in counted
        )
        errors = [answer if isinstance(answer, Exception) else answer[1] for answer in answers.values()]
        refusals = {message_of(error) for error in errors if isinstance(error, Exception)}
        why = f" ({'; '.join(sorted(refusals))})" if refusals else ""
        return (
            f"no majority of {count} sentinels names the primary of {self._route.service}: "
            f"{named or 'no server'}{why}"
        )

    def _subscribe(self, address: Address) -> None:
        """Listen to a sentinel that has answered."""
        with self._lock:
            if address in self._listened:
                return
            self._listened.add(address)
        self._listen(address, self._on_message, lambda: self._wants(address))

    def _wants(self, address: Address) -> bool:
        with self._lock:
            if not self.wanted:
                self._listened.discard(address)
            return self.wanted

    def _on_message(self, message: bytes) -> None:
        if message.split(b" ", 1)[0].decode() != self._route.service:
            return
        self.doubt()
        with self._lock:
            if self._following:
                return
            self._following = True
        threading.Thread(target=self._follow, name="ironclaim-resolver-switch", daemon=True).start()

    def _follow(self) -> None:
        """Ask until a majority names another primary than before, so that connections to the old one are
        closed soon."""
        before, until_s = self._primary, time.monotonic() + SWITCH_MOST_S
        while self._primary == before and self.wanted and time.monotonic() < until_s:
            # Who asked in vain has cast doubt already.
            with contextlib.suppress(*FAILURES, TimeoutError):
                self.find().result(self.patience_s)
            time.sleep(SWITCH_PAUSE_S)
        with self._lock:
            self._following = False


def note_errors(resolver: Resolver | None, replies: Iterable[Any]) -> None:
    """Take the errors among replies, or what ended a call or a connection: another server may have to be
    found. Where the address is fixed nothing is looked at."""
    if resolver is not None:
        for reply in replies:
            if isinstance(reply, (redis.RedisError, OSError)):
                resolver.note_error(reply)


def asked_node(resolver: Resolver | None, error: AskError) -> Node | None:
    """The node that an ASK has named; None where the address is fixed."""
    return None if resolver is None else resolver.at(Address.of(error))


def _agreed(votes: Iterable[Node], count: int) -> Node | None:
    """The server that more than half of so many name: at one address, and by one run id as far as they know
    it."""
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
