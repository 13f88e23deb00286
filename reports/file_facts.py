"""What is known of one history file: its rows by count, its ends, and the few instants that checks ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deed:
    """A call that H2 looks for, such as `finish stale`: it was answered in the way that it names. Times are monotonic ns."""

    what: str
    first_send_ns: int
    done_ns: int


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
    operations: int = 0
    #: Operation rows without f, op or a known type; open rows without a boot id; final rows without the server's time.
    nameless: int = 0
    bootless: int = 0
    timeless: int = 0
    #: First and last instant at which an enqueue row was written, and the last at which any row was.
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
    deeds: tuple[Deed, ...] = ()
    #: Some claim of its process was sent and got no answer that is known.
    claims_unanswered: bool = False
