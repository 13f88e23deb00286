"""Finds the server to write to where no address is fixed, for all drivers of a process that name the same sentinels or cluster.

It is asked before a connection is opened, and again after whatever may mean that another server has taken over. One thread asks,
for all who wait; nobody holds a lock meanwhile. When the answer changes, connections to servers that are no longer named are
closed, also those that wait for a reply.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import redis
from redis.exceptions import MovedError

from engine.wire.drivers.client_errors import FAILURES, is_reply, message_of
from engine.wire.drivers.routes import Address, Node, Route

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

    def named(self, slot: int) -> Node | None:
        """The node of a slot by the latest answers."""
        raise NotImplementedError

    def serves(self, node: Node) -> bool:
        """Whether the latest answers name this node for anything."""
        raise NotImplementedError

    def replaced(self, node: Node) -> bool:
        """Whether another server has been named in place of this one. Nodes of a cluster find that out by themselves."""
        del node
        return False

    def addresses(self) -> Iterable[Address]:
        """Whom to ask."""
        raise NotImplementedError

    def takes(self, answers: Mapping[Address, Answer], *, last: bool) -> Iterable[Address] | None:
        """Decide by the answers so far: None when they suffice, else further addresses to ask. `last`: nobody else will answer,
        so it raises redis-py's ConnectionError where they do not suffice and nobody else is to be asked."""
        raise NotImplementedError

    def moved(self, slot: int, address: Address) -> None:
        """A node has said that another one serves this slot."""

    def at(self, address: Address) -> Node:
        """The node at an address that a server has named; only its role is checked where nothing else is known of it."""
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
        """The node of a slot to open a connection to; waits for an answer if need be. Raises redis-py's ConnectionError."""
        if (found := self.fresh(slot)) is not None:
            return found
        try:
            self.find().result(2 * self._timeout_s)
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

    def hears(self, error: BaseException) -> None:
        """Take an error that a server or a connection has ended a call with."""
        if isinstance(error, MovedError):
            self.moved(error.slot_id, Address.of(error))
        elif not is_reply(error) or message_of(error).startswith(_DOUBTFUL):
            self.doubt()

    def find(self) -> Future[None]:
        """Ask, or wait with others for an answer that is on its way. The future raises redis-py's ConnectionError."""
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
        """Ask all, each in a thread of its own, until the answers suffice: one that does not answer holds up nothing."""
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
                    threading.Thread(target=self._ask_one, args=args, name="ironclaim-resolver-ask", daemon=True).start()
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
