"""What is known of one history file: its rows by count, its ends, and the few instants that checks ask for."""

from __future__ import annotations

from dataclasses import dataclass

#: When calls were sent and answered is told with this resolution, in nanoseconds.
CALL_SLOT_NS = 50_000_000

#: How late something was sent is told in steps of this, in nanoseconds.
LAG_STEP_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """A call that H2 looks for, such as `finish stale`: it was answered in the way that it names. Times are monotonic ns."""

    what: str
    first_send_ns: int
    done_ns: int
    #: The send that the answer belongs to; 0 = the first.
    last_send_ns: int = 0

    @property
    def took_ns(self) -> int:
        """From the send that was answered to the answer."""
        return self.done_ns - (self.last_send_ns or self.first_send_ns)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One history file as it lies on disk. Times are monotonic ns; None = the row that would say is not there."""

    name: str
    rows: int = 0
    corrupt: int = 0
    torn: bool = False
    torn_corrupt: bool = False
    seq_min: int | None = None
    seq_max: int | None = None
    seq_sum: int = 0
    #: Sum of the squares: lines that were overwritten by others keep the count and the sum, not this one too.
    seq_square_sum: int = 0
    version_max: int = 0
    first_kind: str | None = None
    last_kind: str | None = None
    opened_ns: int | None = None
    closed_ns: int | None = None
    close_rows: int | None = None
    recorder_ns: int = 0
    created: bool = False
    leased: bool = False
    finished: bool = False
    published: bool = False
    fetched: bool = False
    acknowledged: bool = False
    operations: int = 0
    #: Operation rows without f, op or a known type; open rows without a boot id; final rows without the server's time.
    nameless: int = 0
    bootless: int = 0
    timeless: int = 0
    #: Kinds of row and operations that the schema does not know; rows about leases, and effects, with an item without its token;
    #: enqueues that do not say when they were meant to be sent.
    unknown_kinds: tuple[str, ...] = ()
    unknown_operations: tuple[str, ...] = ()
    tokenless: int = 0
    unintended: int = 0
    #: First and last instant at which an enqueue or publish row was written, and the last at which any row was.
    enqueue_first_ns: int | None = None
    enqueue_last_ns: int | None = None
    last_ns: int | None = None
    #: Parts of time, each SLOT_NS long and counted from 0, in which a row was written; those in which a call was answered.
    slots: frozenset[int] = frozenset()
    answered_slots: frozenset[int] = frozenset()
    #: How many slots some row lies before a row of an earlier block of lines.
    slots_back: int = 0
    #: Operation rows whose own instants are not in their order.
    disordered: int = 0
    #: When its process connected to a server, and which answers it got that a coverage may ask for.
    connected_ns: tuple[int, ...] = ()
    observed_calls: tuple[ObservedCall, ...] = ()
    #: Calls that the server answered: (send, answer) in parts of time, each CALL_SLOT_NS long and counted from 0.
    calls: frozenset[tuple[int, int]] = frozenset()
    #: What was sent a step or more after it was meant to be: (part of time of SLOT_NS in which it was meant, whole steps).
    lags: frozenset[tuple[int, int]] = frozenset()
    #: Some claim of its process was sent and got no answer that is known.
    claims_unanswered: bool = False
