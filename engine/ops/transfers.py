"""Queues in several shards: the record of how many there are, and moving jobs from one shard to another
(`engine.queue.sharding`)."""

from __future__ import annotations

from typing import Any, Literal, get_args

from engine.ops.base import Operation, immutable, one_of, server_us


@immutable
class ReadShards(Operation, label="read the record of shards"):
    """The record of a queue's shards; '' where there is none."""

    def parse(self, raw: Any, decode: object) -> str:
        """The raw reply as a value."""
        return "" if raw is None else raw.decode()


@immutable
class SetShards(Operation, script="shard_record", label="write the record of shards"):
    """Replace the record if it still is `known`. `moved`: what enqueues into shard 0 are told from now on;
    `fresh`: only of a queue that has never held a job."""

    known: str
    record: str
    moved: str = ""
    fresh: bool = False

    def parse(self, raw: Any, decode: object) -> ShardsSet:
        """The raw reply as a value."""
        result: Any = one_of(raw[1], ("done", "changed", "used"))
        return ShardsSet(server_us(raw), result, raw[2].decode())


@immutable
class ShardsSet:
    """`done`; `changed` where somebody else was first; `used` where the queue has held jobs without shards.
    `record` is the one that is there now."""

    srv_us: int
    result: Literal["done", "changed", "used"]
    record: str


@immutable
class SetGate(Operation, script="shard_gate", label="close a shard"):
    """Whether a shard takes new jobs, and the sequence that the next ones come after."""

    moved: str = ""
    sequence: int = 0

    def parse(self, raw: Any, decode: object) -> GateSet:
        """The raw reply as a value."""
        return GateSet(server_us(raw), int(raw[1]))


@immutable
class GateSet:
    """The last sequence of the shard."""

    srv_us: int
    sequence: int


@immutable
class TakeJobs(Operation, script="shard_take", label="take jobs out of a shard"):
    """Take these jobs out of their shard, as batch `number` for the shard `to`; 0 only looks whether a batch
    is on its way."""

    number: int
    to: str
    jobs: tuple[str, ...] = ()

    def parse(self, raw: Any, decode: object) -> TakenJobs:
        """The raw reply as a value."""
        result: Any = one_of(raw[1], ("taken", "busy", "stale"))
        items = tuple((job.decode(), packed) for job, packed in zip(raw[4][::2], raw[4][1::2], strict=True))
        return TakenJobs(server_us(raw), result, int(raw[2]), raw[3].decode(), items)


@immutable
class TakenJobs:
    """The batch that is on its way: its number, the shard that it goes to ('' = none is on its way), and its
    jobs, packed. `busy`: it is another one than was asked for; `stale`: it has arrived already."""

    srv_us: int
    result: Literal["taken", "busy", "stale"]
    number: int
    to: str
    items: tuple[tuple[str, bytes], ...]


@immutable
class PutJobs(Operation, script="shard_put", label="put jobs into a shard"):
    """Put a batch into the shard that it goes to, and add to its counters."""

    source: str
    number: int
    items: tuple[tuple[str, bytes], ...]
    finished: int = 0
    buried: int = 0
    expired: int = 0
    skipped: int = 0

    def parse(self, raw: Any, decode: object) -> JobsPut:
        """The raw reply as a value."""
        return JobsPut(server_us(raw), int(raw[2]))


@immutable
class JobsPut:
    """How many jobs were left out, because another one has their id there."""

    srv_us: int
    left_out: int


@immutable
class DropTaken(Operation, script="shard_drop", label="forget jobs that have moved"):
    """Forget the jobs of a batch that has arrived."""

    number: int

    def parse(self, raw: Any, decode: object) -> TakenDropped:
        """The raw reply as a value."""
        return TakenDropped(server_us(raw), int(raw[1]))


@immutable
class TakenDropped:
    """How many jobs were forgotten."""

    srv_us: int
    count: int


# -- The restore of a backup of a queue: the calls that write its keys into an empty one, and that open
# it.

LoadResult = Literal["ok", "opening", "other", "busy", "unreadable"]
_LOADED = get_args(LoadResult)


@immutable
class LoadRestore(Operation, script="restore_load"):
    """Begin to restore a backup, or write some of its keys. `items`: the name of a key without the queue's
    prefix, the time (ms) when it expires (0 = never), and its value as DUMP gives it (b"" = there is no such
    key). (backup, owner) is the identity."""

    phase: Literal["begin", "load"]
    backup: str
    owner: str
    probe: bytes = b""
    items: tuple[tuple[bytes, int, bytes], ...] = ()

    def parse(self, raw: Any, decode: object) -> RestoreLoaded:
        """The raw reply as a value."""
        return RestoreLoaded(server_us(raw), one_of(raw[1], _LOADED), raw[2].decode())


@immutable
class RestoreLoaded:
    """`opening`: all is there but for the last call; `other`: another process has begun since; `busy`: the
    queue is not empty, `why` names a key; `unreadable`: this server does not read the values, by its
    words."""

    srv_us: int
    result: LoadResult
    why: str


@immutable
class EndRestore(Operation, script="restore_end"):
    """Give back up to `limit` of the jobs that were leased when the backup was made, and open the queue when
    none is left."""

    backup: str
    owner: str
    replid: str
    limit: int
    sequence: int
    sweep_value: bytes
    seq_value: bytes

    def parse(self, raw: Any, decode: object) -> RestoreEnded:
        """The raw reply as a value."""
        return RestoreEnded(server_us(raw), one_of(raw[1], ("ok", "more", "other")), int(raw[2]))


@immutable
class RestoreEnded:
    """`more`: call again; `given_back`: jobs of all calls so far."""

    srv_us: int
    result: Literal["ok", "more", "other"]
    given_back: int
