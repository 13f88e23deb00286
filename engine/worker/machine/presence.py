"""Presence: whether the workers of a queue are connected, so that the leases of one that was killed are taken at once, and not
when they run out (rule 39). Pure code, a part of the step machine.

Once a second one sweep of the queue is answered with the control connections of all workers, and its worker looks whether they
are there. What is missing is looked for once more: a live worker connects again at once, and says so. A worker that was missing
twice is lost, and its leases are taken on condition that it has named no other connection. A look that says nothing about a
single worker (a slow answer, another server, or most connections missing) has no consequences (rule 11).
"""

from __future__ import annotations

from collections.abc import Callable

from engine.ops.base import Operation
from engine.ops.sweeps import ReapLost, Swept
from engine.ops.workers import ClientConnection, Connected, ListConnections, ListedConnections
from engine.server_clock import ServerClock
from engine.worker.machine.events import MS

#: So long a worker has to connect again and to say so, between the two looks.
AGAIN_MS = 600
#: An answer that took longer says that the server, or this machine, stood still, and so may the workers that are missing.
PROMPT_MS = 250
#: A reap that arrives later than this after what it follows from is void.
VOID_MS = 500
#: So many looks in a row that were not answered, or refused, are the last ones until the next connection.
FAILED_LOOKS_MAX = 3
#: A worker whose lease was taken names no connection for so long: the server may have lost the one that this worker still holds,
#: and its socket finds that out in half of this time (KEEP_ALIVE_S of engine/wire/drivers/own_connection.py).
DOUBT_MS = 10_000
#: Leases that one call looks at.
REAP_PAGE = 250


class Presence:
    """This worker's own control connection, and the looks that it has been asked for."""

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock
        self._own: ClientConnection | None = None
        # A server that refuses a look is not asked again before the next connection.
        self._may_look = True
        self._failed_looks = 0
        self._doubtful_until_ns = 0
        self._watched: tuple[Connected, ...] = ()
        # Those that the first look has missed.
        self._missed: frozenset[Connected] = frozenset()
        self._look_at_ns: int | None = None
        self._lost: tuple[Connected, ...] = ()
        self._goes_on = ("", "")
        self._void_ms = 0

    def connection(self, now_ns: int) -> str:
        """What heartbeats say of the control connection."""
        if self._own is None or now_ns < self._doubtful_until_ns:
            return ""
        return f"{self._own.client_id} {self._own.run_id}"

    @property
    def run_id(self) -> str:
        """The server that this worker can look at; '' where it cannot."""
        return "" if self._own is None or not self._may_look else self._own.run_id

    def connected(self, own: ClientConnection | None) -> bool:
        """There is a new control connection, or none by which others could see this worker. Returns whether others must hear."""
        before, self._own = self._own, own
        self._may_look = True
        self._failed_looks = self._doubtful_until_ns = 0
        self._drop()
        return own != before

    def doubted(self, now_ns: int) -> None:
        """A lease of this worker was taken while it lives: a connection that the server has lost must not be named again, or
        the next lease would be taken, too."""
        self._doubtful_until_ns = now_ns + DOUBT_MS * MS

    def next_ns(self) -> int | None:
        """When there is something to do."""
        return 0 if self._lost else self._look_at_ns

    def assigned(self, watched: tuple[Connected, ...], now_ns: int) -> None:
        """A sweep has asked this worker to look at these connections."""
        if len(watched) > 1 and self._look_at_ns is None and not self._lost:
            self._watched, self._look_at_ns = watched, now_ns  # anchor: looks-follow-at-once

    def next_operation(self, incarnation: str, next_counter: Callable[[], int], now_ns: int) -> Operation | None:
        """The look, or the reap, that is due."""
        if self._own is None:
            return None
        if self._lost:
            return ReapLost(incarnation, next_counter(), REAP_PAGE, self._void_ms, self._lost, self._own.run_id, *self._goes_on)
        if self._look_at_ns is None or now_ns < self._look_at_ns:
            return None
        # Its own is always among them, and shows that the right server has answered.
        return ListConnections(tuple({self._own.client_id: None, **{worker.client_id: None for worker in self._watched}}))

    def looked(self, reply: ListedConnections, first_send_ns: int, done_ns: int) -> None:
        """Take what a look has found."""
        self._failed_looks = 0
        missing = frozenset(worker for worker in self._watched if worker.client_id not in reply.addresses)
        most = 2 * len(missing) > len(self._watched)  # anchor: most-connections-do-not-die-at-once
        if not missing or most or not self._says_something(reply, first_send_ns, done_ns):
            self._drop()
        elif not self._missed:  # anchor: missing-twice-is-lost
            self._missed, self._look_at_ns = missing, done_ns + AGAIN_MS * MS
        else:
            lost = missing & (self._missed or missing)
            self._drop()
            self._lost = tuple(sorted(lost))
            self._void_ms = self._clock.now_ms(done_ns) + VOID_MS

    def _says_something(self, reply: ListedConnections, first_send_ns: int, done_ns: int) -> bool:
        own = self._own
        answered = own is not None and reply.addresses.get(own.client_id) == own.address
        return answered and done_ns - first_send_ns <= PROMPT_MS * MS  # anchor: slow-looks-say-nothing

    def reaped(self, reply: Swept, done_ns: int) -> None:
        """A page of the reap is over."""
        self._goes_on = reply.goes_on or ("", "")
        if reply.goes_on is None:
            self._lost = ()
        self._void_ms = self._clock.now_ms(done_ns) + VOID_MS

    def failed(self, *, fault: bool = False) -> None:
        """A look or a reap was not answered, or with `fault` refused."""
        self._failed_looks += 1
        self._may_look = self._may_look and not fault and self._failed_looks < FAILED_LOOKS_MAX
        self._drop()

    def _drop(self) -> None:
        self._watched, self._missed, self._look_at_ns = (), frozenset(), None
        self._lost, self._goes_on = (), ("", "")
