"""What has happened in an episode as far as the invariants need it. A failover takes back what the server knew, here as there;
what processes were told stays told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.ops.claims import Value
from engine.ops.jobs import Enqueue
from engine.ops.schedules import PutSchedule
from engine.ops.workers import LockReply

#: (id, enqueue nonce): one job, where an id may be used again.
Birth = tuple[str, bytes]


@dataclass(slots=True)
class Book:
    """The memory of the judge. Times are monotonic ns of the episode."""

    #: Jobs that were created, and those that ended.
    created: set[Birth] = field(default_factory=set)
    ended: set[Birth] = field(default_factory=set)
    #: Those of which a failover has taken the creation back, until they are created again; all of them; and those of which it has
    #: taken the end back.
    taken_back: set[Birth] = field(default_factory=set)
    ever_taken_back: set[Birth] = field(default_factory=set)
    ends_taken_back: set[Birth] = field(default_factory=set)
    #: Jobs whose producer was told that they are there, in all eras.
    acknowledged: set[Birth] = field(default_factory=set)
    #: Accepted finishes.
    finishes: dict[Birth, int] = field(default_factory=dict)
    #: How each lease ended, by token.
    outcomes: dict[tuple[str, str], str] = field(default_factory=dict)
    #: The highest fence of each job, in this era and in all.
    fences: dict[Birth, int] = field(default_factory=dict)
    fences_ever: dict[str, int] = field(default_factory=dict)
    #: Claims that have leased something.
    claims: set[str] = field(default_factory=set)
    #: Tokens whose handler has started, in all eras.
    started: set[tuple[str, str]] = field(default_factory=set)
    #: Jobs whose producer was told that nothing was applied.
    nothing: set[Birth] = field(default_factory=set)
    #: Since when an id has been claimable, and since when a lease or a due time is over.
    claimable_ns: dict[str, int] = field(default_factory=dict)
    overdue_ns: dict[str, int] = field(default_factory=dict)
    #: When a lease was claimed.
    leased_ns: dict[tuple[str, str], int] = field(default_factory=dict)

    #: Claims that count against a rate: limit, then token, time (ms) and places.
    rates: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    #: Tokens that hold a slot of a limit.
    slotted: dict[str, set[str]] = field(default_factory=dict)
    #: Open windows of dedup keys: until when (ms), and the job that opened it.
    windows: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: Administration calls that were done.
    operations: set[str] = field(default_factory=set)
    #: Tokens that a cancel has ended, in all eras.
    cancelled: set[tuple[str, str]] = field(default_factory=set)
    #: Jobs that ticks of schedules have made.
    ticked: set[str] = field(default_factory=set)
    #: Failovers.
    eras: int = 0
    #: The last beat of each incarnation that arrived.
    beats: dict[str, int] = field(default_factory=dict)
    #: Tokens that a look for orphans has ended, in all eras.
    orphaned: set[tuple[str, str]] = field(default_factory=set)
    #: Obliterations that have begun: by their callers, the jobs that lived then and have stayed where they were.
    condemned: dict[str, dict[Birth, str]] = field(default_factory=dict)
    #: Since when a blocked job has had no open parent.
    freed_ns: dict[str, int] = field(default_factory=dict)
    #: What was sent for each job, in all eras: its own call, or the definition of its schedule at the tick; and which job each
    #: token is a lease of.
    asked: dict[Birth, Enqueue] = field(default_factory=dict)
    leases: dict[tuple[str, str], Birth] = field(default_factory=dict)
    #: When a job may be claimed at the earliest (ms): by its delay, and after a failed run by its back-off.
    not_before_ms: dict[str, int] = field(default_factory=dict)
    #: When a job that no claim has leased expires (ms).
    not_after_ms: dict[str, int] = field(default_factory=dict)
    #: What an accepted finish returned last, with its fence.
    values: dict[str, tuple[int, Value]] = field(default_factory=dict)
    #: The parents whose results a job may read while it lives.
    heirs: dict[Birth, set[str]] = field(default_factory=dict)
    #: Schedules as they were put, the last job of each, and those of their jobs that were made where overlapping is allowed.
    schedules: dict[str, PutSchedule] = field(default_factory=dict)
    last_ticked: dict[str, str] = field(default_factory=dict)
    overlapping: set[str] = field(default_factory=set)
    #: Who holds each lock: the token, with the reply that said so; the tokens that have held one; the highest fence of each, in
    #: this era and in all.
    locks: dict[str, tuple[str, LockReply]] = field(default_factory=dict)
    lock_tokens: set[str] = field(default_factory=set)
    lock_fences: dict[str, int] = field(default_factory=dict)
    lock_fences_ever: dict[str, int] = field(default_factory=dict)
    renewals: dict[str, int] = field(default_factory=dict)
    #: The parents, by id and nonce, that a revived job waits for again, until it runs, is dead or is requeued by hand.
    revived: dict[Birth, dict[str, bytes]] = field(default_factory=dict)
    #: Deaths that came true: of which job, when it was enqueued (ms), and the fence that it had then.
    deaths: set[tuple[str, int, int]] = field(default_factory=set)

    def kept(self) -> dict[str, Any]:
        """What the server knows now: where what comes is lost, it is what the book goes back to."""
        return {name: _copied(getattr(self, name)) for name in _OF_THE_SERVER}

    def goes_back(self, kept: dict[str, Any]) -> None:
        """A failover has taken back all that has come since `kept`."""
        self.eras += 1
        self.taken_back |= self.created - kept["created"]
        self.ever_taken_back |= self.taken_back
        self.ends_taken_back |= self.ended - kept["ended"]
        for name, value in kept.items():
            setattr(self, name, value)
        # An obliteration that goes on does not look again at the states that it has emptied, and jobs are back in them.
        for alive in self.condemned.values():
            alive.clear()
        self.claimable_ns.clear()
        self.overdue_ns.clear()
        self.freed_ns.clear()


#: What a failover takes back. `nothing` is of these: an enqueue may be told `duplicate` by a job that is lost, and a late copy of
#: it may then be the first.
_OF_THE_SERVER = (
    *("created", "ended", "finishes", "outcomes", "fences", "claims", "nothing"),
    *("rates", "slotted", "windows", "operations", "ticked", "beats", "not_before_ms", "not_after_ms", "values", "heirs"),
    *("schedules", "last_ticked", "overlapping", "locks", "lock_tokens", "lock_fences", "renewals", "revived", "deaths"),
)


def _copied(value: Any) -> Any:
    """A container of its own, and so are those in it."""
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return set(value) if isinstance(value, set) else value
