"""The facts of one history file: row counts, first and last rows, and the few instants that checks need."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

#: Resolution, in ns, of the recorded send and answer times of calls.
CALL_SLOT_NS = 50_000_000

#: Resolution, in ns, of the recorded send lag.
LAG_STEP_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """A call that H2 looks for. `what` names the operation and its answer, such as `finish stale`. Times are monotonic ns."""

    what: str
    first_send_ns: int
    done_ns: int
    #: When the send that was answered went out; 0 = it was the first send.
    last_send_ns: int = 0

    @property
    def took_ns(self) -> int:
        """Time in ns from the send that was answered to the answer."""
        return self.done_ns - (self.last_send_ns or self.first_send_ns)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One history file as it is on disk. Times are monotonic ns; None = the row that holds the value is missing."""

    name: str
    rows: int = 0
    corrupt: int = 0
    torn: bool = False
    torn_corrupt: bool = False
    seq_min: int | None = None
    seq_max: int | None = None
    seq_sum: int = 0
    #: Sum of the squared sequence numbers: a line overwritten by another can leave count and sum the same, but not this as
    #: well.
    seq_square_sum: int = 0
    version_max: int = 0
    #: Whether its first row opens and its last row closes it.
    opens_first: bool = False
    closes_last: bool = False
    opened_ns: int | None = None
    closed_ns: int | None = None
    close_rows: int | None = None
    recorder_ns: int = 0
    created: bool = False
    leased: bool = False
    finished: bool = False
    published: bool = False
    #: True when its process recorded a handler run.
    handled: bool = False
    fetched: bool = False
    acknowledged: bool = False
    operations: int = 0
    #: Operation rows without f, op or a known type; open rows without a boot id; final rows without the server's time.
    nameless: int = 0
    bootless: int = 0
    timeless: int = 0
    #: Kinds of row and operations that the schema does not know; number of lease or effect rows with an item that lacks its
    #: token (tokenless), and of enqueue or publish rows without an intended send time (unintended).
    unknown_kinds: tuple[str, ...] = ()
    unknown_operations: tuple[str, ...] = ()
    tokenless: int = 0
    unintended: int = 0
    #: When the first and the last enqueue or publish row was written, and when the last row of any kind was.
    enqueue_first_ns: int | None = None
    enqueue_last_ns: int | None = None
    last_ns: int | None = None
    #: Numbers of the time slots, each SLOT_NS long, in which a row was written; and of those in which a call was answered.
    slots: frozenset[int] = frozenset()
    answered_slots: frozenset[int] = frozenset()
    #: Largest number of slots by which a row is older than a row of an earlier block of lines.
    slots_back: int = 0
    #: Number of operation rows whose instants (first send, last send, completion, write) are out of order.
    disordered: int = 0
    #: When its process connected to a server, and the answered calls that H2 looks for.
    connected_ns: tuple[int, ...] = ()
    observed_calls: tuple[ObservedCall, ...] = ()
    #: Answered calls as (send, answer), each in units of CALL_SLOT_NS.
    calls: frozenset[tuple[int, int]] = frozenset()
    #: Sends that were at least one LAG_STEP_NS late: (slot of SLOT_NS in which the send was due, lag in whole steps).
    lags: frozenset[tuple[int, int]] = frozenset()
    #: True when a claim of its process has no recorded answer.
    claims_unanswered: bool = False


# What was collected of one history file, and how it is kept beside its tables: as JSON.


@dataclass(frozen=True)
class Collected:
    """The facts of one file, its rare rows, and what is merged over all files of a run. `made_of` identifies its content."""

    made_of: str
    facts: FileFacts
    rare: list[dict[str, Any]] = field(default_factory=list)
    replids: list[str] = field(default_factory=list)
    #: incarnation -> process that claimed under it.
    incarnations: dict[str, str] = field(default_factory=dict)
    leases_ms: list[int] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write it as JSON, in one step."""
        content = asdict(self) | {"facts": {name: plain(value) for name, value in asdict(self.facts).items()}}
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(content, separators=(",", ":")))
        fresh.replace(path)

    @classmethod
    def read(cls, path: Path) -> Collected | None:
        """What was written there; None when that is nothing, or not of this form."""
        try:
            content = json.loads(path.read_text())
            facts = {one.name: restored(one.name, content["facts"][one.name]) for one in fields(FileFacts)}
            return cls(**{**content, "facts": FileFacts(**facts)})
        except (OSError, ValueError, KeyError, TypeError):
            return None


def plain(value: Any) -> Any:
    """A fact as JSON has it."""
    return sorted(value) if isinstance(value, frozenset) else value


def restored(name: str, value: Any) -> Any:
    """A fact from JSON."""
    if name == "observed_calls":
        return tuple(ObservedCall(**call) for call in value)
    if name in ("calls", "lags"):
        return frozenset(map(tuple, value))
    if name in ("slots", "answered_slots"):
        return frozenset(value)
    return tuple(value) if isinstance(value, list) else value
