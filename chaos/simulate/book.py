"""What has happened in an episode as far as the invariants need it. What a failover may take back is kept for the era only."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.wire.operations import Enqueue, LockReply, PutSchedule, Value

#: (id, enqueue nonce): one job, where an id may be used again.
Birth = tuple[str, bytes]


@dataclass(slots=True)
class Book:
    """The memory of the judge. Times are monotonic ns of the episode."""

    #: Jobs that were created in this era, and those that ended in it.
    created: set[Birth] = field(default_factory=set)
    ended: set[Birth] = field(default_factory=set)
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
    #: Who holds each lock: the token, with the reply that said so; the tokens that have held one; the highest fence of each.
    locks: dict[str, tuple[str, LockReply]] = field(default_factory=dict)
    lock_tokens: set[str] = field(default_factory=set)
    lock_fences: dict[str, int] = field(default_factory=dict)
    renewals: dict[str, int] = field(default_factory=dict)

    def new_era(self) -> None:
        """A failover has taken the last writes back."""
        self.eras += 1
        for kept in (
            self.created,
            self.ended,
            self.finishes,
            self.outcomes,
            self.fences,
            self.claims,
            self.operations,
            self.ticked,
            self.beats,
            self.values,
            self.heirs,
            self.schedules,
            self.last_ticked,
            self.not_before_ms,
            self.not_after_ms,
            self.locks,
            self.lock_tokens,
            self.lock_fences,
            self.renewals,
        ):
            kept.clear()
        # An obliteration that goes on has begun before, and what has come since is not condemned.
        for alive in self.condemned.values():
            alive.clear()
        self.rates.clear()
        self.windows.clear()
        self.claimable_ns.clear()
        self.overdue_ns.clear()
        self.freed_ns.clear()
