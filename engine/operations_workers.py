"""What is asked about workers and locks, as values: beats, the listing of workers, locks, and the write that a replica is
waited for with. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Beat:
    """A worker lives: until `until_ms` nobody takes its leases for orphaned. 0: it has ended. (incarnation, counter) is the
    identity. `about` is JSON for people; `others`: further incarnations whose leases it still has."""

    incarnation: str
    counter: int
    ttl_ms: int
    until_ms: int
    lease_ms: int
    about: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListWorkers:
    """One page of the workers."""

    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class AcquireLock:
    """Take a lock that nobody holds, for `ttl_ms`. The token is the identity."""

    name: str
    token: str
    ttl_ms: int
    not_after_ms: int


@dataclass(frozen=True, slots=True)
class ExtendLock:
    """Hold a lock for `ttl_ms` from now. (token, counter) is the identity."""

    name: str
    token: str
    counter: int
    ttl_ms: int
    not_after_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseLock:
    """Give a lock back. The token is the identity."""

    name: str
    token: str


@dataclass(frozen=True, slots=True)
class Witness:
    """Write one key, whatever else there is to write (rule 8)."""


@dataclass(frozen=True, slots=True)
class NoteQueue:
    """List the queue as used at a time."""

    used_ms: int


@dataclass(frozen=True, slots=True)
class ListQueues:
    """The queues under a prefix."""


@dataclass(frozen=True, slots=True)
class Beaten:
    """`leads`: this worker is the one whose sweeps come at once (the others follow); `orphaned`: workers have stopped beating and
    may have left leases."""

    srv_us: int
    result: Literal["ok", "repeated", "left"]
    leads: bool
    orphaned: bool


@dataclass(frozen=True, slots=True)
class ListedWorker:
    """As a beat told it. Alive while `until_ms` is ahead of the server's time."""

    incarnation: str
    until_ms: int
    ttl_ms: int
    lease_ms: int
    about: str
    leads: bool


@dataclass(frozen=True, slots=True)
class ListedWorkers:
    """One page, those that lived longest last."""

    srv_us: int
    workers: tuple[ListedWorker, ...]


@dataclass(frozen=True, slots=True)
class LockReply:
    """`held`: until `until_ms`, under this fence; `released`; `taken`: by somebody else until then; `lost`: it was not held any
    more; `refused`: the call came too late."""

    srv_us: int
    result: Literal["held", "released", "taken", "lost", "refused"]
    fence: int = 0
    until_ms: int = 0


WorkersOperation = Beat | ListWorkers | AcquireLock | ExtendLock | ReleaseLock | Witness
RegistryOperation = NoteQueue | ListQueues
WorkersReply = Beaten | ListedWorkers | LockReply
