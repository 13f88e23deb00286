"""Resharding: another number of shards for a queue that works on meanwhile (docs/guides/shards.md).

The shards of a number have names of their own, so none is both old and new. In this order, each step leaving
all that the next one, or the same one begun again, needs:

1. The record says `preparing`. The new shards get limits, pauses and retention, and sequences after those of
   the old ones.
2. The record says `moving`. Who reads it asks the old shard of a job first and then the new one.
3. The old shards are closed. An enqueue that they know is a duplicate there as before. Any other one is
   answered with `moved`, so its producer reads the record again and asks the new shard. So a producer learns
   of it that has read nothing since step 1, and a late copy of its call finds the shard closed.
4. Jobs are moved in numbered batches: `take` removes them from their indexes, keeps them in `transit`, and
   leaves a tombstone that says so. `put` makes them in the new shard, once for each number. `drop` forgets
   them. Only jobs that wait, are delayed or dead are taken, so no worker has them. A job that runs ends at
   its old shard; if it is to run again, it is moved then. Parents, children and jobs with callbacks stay
   until they have ended.
5. When nothing is left, the old shards are sealed, and what is known of ended jobs is copied. Tombstones and
   open dedup windows go to each shard that may get keys of the old one. Results, the list of finished jobs
   and the history go to the shard of the id. Shard 0, which stays, then keeps as many of these as the others.
6. The record says that the new shards are all there are; what the old ones have left is deleted, but that
   they are sealed.

Why nothing is lost or runs twice, wherever this process or a producer is killed. A job is in the indexes of
one shard at most. The call that writes it into `transit` takes it out of those of the old shard. Only the
first `put` of its batch enters it into those of the new one. Between the two it is in `transit`, where
whoever runs this next finds it, before it takes anything else. An id is known at its old shard until `drop`,
which comes after `put`. Until step 6 each enqueue asks the old shard first, so it meets the id at one of the
two. An enqueue that the old shard has answered, or whose reply was lost, has its job in the indexes there, or
on its way. Sent again it meets itself, because the job keeps its nonce.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from engine import validate
from engine.errors import Malformed, ServerUnavailable, UnsupportedFeature, counted
from engine.ops.admin import (
    AdminOperation,
    DropTaken,
    HistoryRule,
    Limit,
    Pause,
    PutJobs,
    ReadShards,
    SetGate,
    SetHistory,
    SetShards,
    TakeJobs,
    TakenJobs,
)
from engine.ops.base import Call, Operation, text
from engine.ops.looks import Count, Counts, Inspect, Inspected, Page, Paged
from engine.queue import admin, sharding
from engine.queue.looks import job_info
from engine.queue.sharding import PLAIN, Layout, ShardRecord
from engine.queue.synchronous import Queue
from engine.redis.exchange import PIPELINE_MAX
from engine.serializers import BUILT_IN

#: Jobs that one look finds; a batch is those of them that go to one shard.
PAGE = 200
#: Sequences that producers may use up while the old shards are closed one after the other.
_SEQUENCES = 1 << 20
#: Between two looks at jobs that run or wait for others.
_PAUSE_S = 0.2
_MOVABLE = ("waiting", "delayed", "dead")
_STATES = (*_MOVABLE, "active", "blocked")
#: Outcomes of tombstones that say nothing of a job: rejected, orphaned, moving.
_NO_JOB = (3, 4, 9)
_SCAN = 1_000


@dataclass(slots=True)
class Moved:
    """The state of a resharding: jobs moved; jobs still at their old shards, because they run or are parents
    or children of others; and whether it has ended."""

    jobs: int = 0
    left: int = 0
    done: bool = False


class Resharding:
    """Changes the number of shards of a queue; interrupted anywhere, it is begun again with the same number.
    `queue` is one without shards, whose driver is used; `tell` is told each step. Raises Malformed and
    UnsupportedFeature before it changes anything."""

    def __init__(self, queue: Queue, to: object, *, tell: Callable[[str], None] = lambda text: None) -> None:
        self._to = validate.integer("to", to, 2, sharding.SHARDS_MAX)
        if queue.shards or queue.model.name != "lanes":
            raise UnsupportedFeature(
                "resharding is for queues in the engine's own format, and begins with one without shards"
            )
        self._queue = queue
        self._tell = tell
        self._moved = Moved()
        self._told: set[str] = set()

    def run(self, wait_ms: int | None = None) -> Moved:
        """Reshard the queue. `wait_ms`: how long it waits for jobs that cannot be moved before it returns, to
        be begun again; None: until they have ended."""
        until_s = None if wait_ms is None else time.monotonic() + wait_ms / 1000
        text, record = self._record()
        if record.phase == "cleaning":
            text, record = self._end(text, record)
        if record.former is None and record.layout.shards == self._to:
            return Moved(done=True)
        if record.former is not None and record.layout.shards != self._to:
            raise Malformed(
                "to",
                self._to,
                f"{record.layout.shards}: a resharding to that number has begun, finish it first",
            )
        if record.former is None:
            self._divided(record.layout)
            record = record.preparing(self._to)
            text = self._write(text, record)
        former = cast("Layout", record.former)
        if record.phase == "preparing":
            self._tell(f"prepares {self._to} shards")
            self._prepare(former, record.layout)
            record = record.moving()
            text = self._write(text, record)
        sources = list(self._sources(former))
        for source, _ in sources:
            self._run(source, SetGate(sharding.moved(self._to, families=True)))
        self._tell(f"moves the jobs of {counted(former.shards, 'shard')}")
        while not self._empty(sources, record.layout):
            if until_s is not None and time.monotonic() > until_s:
                return self._moved
        for source, number in sources:
            self._copy_ended(source, former, number, record.layout)
        for operation in self._bounds(record.layout, self._to):
            self._queue.shard(self._queue.name).do(operation)
        record = record.cleaning()
        self._end(self._write(text, record, moved=sharding.moved(self._to)), record)
        self._moved.left, self._moved.done = 0, True
        return self._moved

    # -- the record

    def _record(self) -> tuple[str, ShardRecord]:
        text: str = self._run(self._queue, ReadShards())
        return text, sharding.read_record(text) if text else PLAIN

    def _write(self, known: str, record: ShardRecord, moved: str = "") -> str:
        """Go to the next phase. Raises ServerUnavailable where somebody else did."""
        made = self._run(self._queue, SetShards(known, record.text(), moved))
        if made.result != "done":
            raise ServerUnavailable("another resharding of this queue runs: let one of the two end it")
        return record.text()

    # -- preparing

    def _prepare(self, former: Layout, layout: Layout) -> None:
        """Give the new shards the settings of the old ones, and sequences that come after theirs."""
        limits = self._divided(former)
        settings = self._settings(former)
        sequences = [
            self._run(self._queue.shard(name), SetGate()).sequence for name in former.names(self._queue.name)
        ]
        for number, name in enumerate(layout.names(self._queue.name)):
            shard = self._queue.shard(name)
            if number:
                self._run(shard, SetGate("", max(sequences) + _SEQUENCES))
                for operation in settings:
                    shard.do(operation)
            for target, parts in limits.items():
                kind, _, of = target.partition(":")
                if kind == "k" and of != "*" and layout.home(of, "", "") != number:
                    continue
                part = parts[number if kind == "n" else 0]
                shard.set_limit(
                    *((of,) if kind == "n" else ()),
                    key=None if kind == "n" else of,
                    concurrency=part.concurrency,
                    rate=part.rate,
                    per_ms=part.per_ms,
                    window=part.window,
                )

    def _divided(self, former: Layout) -> dict[str, list[Limit]]:
        """The limits of a layout: those of names as they are divided among the new shards. Raises
        Malformed."""
        found: dict[str, list[Limit]] = {}
        for name in former.names(self._queue.name):
            for target, words in self._hash(self._queue.shard(name).model.keys.limits).items():
                concurrency, rate, per_ms, window = words.split()
                found.setdefault(target, []).append(
                    Limit(int(concurrency), int(rate), int(per_ms), cast("Any", window))
                )
        return {
            target: Limit.whole(limits).divided(self._to) if target.startswith("n:") else limits
            for target, limits in found.items()
        }

    def _settings(self, former: Layout) -> list[AdminOperation]:
        """The other settings of a layout, which its shards have in common."""
        keys, now_ms = (
            self._queue.shard(former.names(self._queue.name)[-1]).model.keys,
            self._queue.driver.server_now_ms(),
        )

        def left_ms(words: str) -> int | None:
            """How long a pause goes on, 0: until it is resumed; None when it is over."""
            until_ms = int(words.split()[0])
            return (max(0, until_ms - now_ms) or None) if until_ms else 0

        paused = {name: left_ms(words) for name, words in self._hash(keys.paused).items()}
        found: list[AdminOperation] = [Pause(name, ms) for name, ms in paused.items() if ms is not None]
        found += self._bounds(former, self._to)
        for field, words in self._hash(keys.settings).items():
            if field.startswith("p:") and (length_ms := left_ms(words)) is not None:
                found.append(admin.pause_worker(field[2:], length_ms))
        known = self._hash(keys.stats)
        if "events" in known:
            found.append(admin.set_events(int(known["events"])))
        return found

    def _bounds(self, layout: Layout, shards: int) -> list[AdminOperation]:
        """What each of so many shards keeps of ended jobs, so that all together keep what a layout does."""
        keys = self._queue.shard(layout.names(self._queue.name)[-1]).model.keys
        found: list[AdminOperation] = []
        kept = {name: int(value) for name, value in self._hash(keys.retention).items()}
        if kept:
            for most in ("done_max", "dead_max"):
                if most in kept:
                    kept[most] = -(-kept[most] * layout.shards // shards)
            found.append(
                admin.set_retention(*map(kept.get, ("done_max", "done_age_ms", "dead_max", "dead_age_ms")))
            )
        rule = HistoryRule.read(self._hash(keys.stats).get("history", ""))
        if rule is not None:
            found.append(SetHistory(replace(rule, keep=-(-rule.keep * layout.shards // shards))))
        return found

    # -- moving

    def _sources(self, former: Layout) -> Iterator[tuple[Queue, int]]:
        """The shards whose jobs move, each with its number: shard 0 alone keeps its own, the jobs of ticks,
        unless it was all."""
        for number, name in enumerate(former.names(self._queue.name)):
            if number or former.shards == 1:
                yield self._queue.shard(name), number

    def _empty(self, sources: list[tuple[Queue, int]], layout: Layout) -> bool:
        """Move what can be moved. Whether the old shards are sealed and have nothing left."""
        moved = sum([self._move(source, layout) for source, _ in sources])
        self._moved.jobs += moved
        self._moved.left = sum([self._left(source) for source, _ in sources])
        if moved:
            return False
        if self._moved.left:
            time.sleep(_PAUSE_S)
            return False
        for source, _ in sources:
            self._run(source, SetGate(sharding.moved(self._to)))
        # A child may have come between the look and the seal.
        return not sum([self._left(source) for source, _ in sources])

    def _move(self, source: Queue, layout: Layout) -> int:
        """Move what waits, is delayed or dead, after what is on its way. Returns how many jobs."""
        taken: TakenJobs = self._run(source, TakeJobs(0, ""))
        number, moved = taken.number, self._arrive(source, taken)
        for state in _MOVABLE:
            offset = 0
            while True:
                page: Paged = self._run(source, Page(state, offset, PAGE))
                jobs = self._homes(source, page.jobs, layout)
                offset += page.seen - sum(map(len, jobs.values()))
                for name, ids in jobs.items():
                    taken = self._run(source, TakeJobs(number + 1, name, tuple(ids)))
                    number = taken.number
                    for job in sorted(set(ids) - {job for job, _ in taken.items}):
                        why = "it runs, belongs to others, or cannot be read"
                        self._tell_once(job, f"job {job} stays in {source.name} for now: {why}")
                    some = self._arrive(source, taken)
                    moved += some
                    offset += max(0, len(ids) - some)
                if page.seen < PAGE:
                    break
        return moved

    def _tell_once(self, job: str, text: str) -> None:
        if job not in self._told:
            self._told.add(job)
            self._tell(text)

    def _homes(self, source: Queue, jobs: tuple[str, ...], layout: Layout) -> dict[str, list[str]]:
        """Jobs by the name of the shard that they go to; not those that stay."""
        found: dict[str, list[str]] = {}
        while jobs:
            reply: Inspected = self._run(source, Inspect(jobs))
            for job, looked in zip(jobs, reply.items, strict=False):
                if self._stays(source, job):
                    continue
                info = job_info(source.model, BUILT_IN, job, looked, reply.srv_us)
                options = info.options
                if info.state == "dead" and options.needs and not options.key:
                    self._tell_once(
                        job,
                        f"dead job {job} goes without the jobs that it needs, because it has no key: "
                        "with_children does not revive it",
                    )
                home = layout.home(options.key, options.unique, job)
                found.setdefault(layout.name(self._queue.name, home), []).append(job)
            jobs = jobs[len(reply.items) :]
        return found

    def _stays(self, source: Queue, job: str) -> bool:
        """Whether a job neither moves nor is waited for."""
        return source.name == self._queue.name and sharding.stays_in_shard_0(job)

    def _arrive(self, source: Queue, taken: TakenJobs) -> int:
        """Put a batch that was taken where it goes, and forget it here."""
        if not taken.to:
            return 0
        counters: dict[str, int] = {}
        if not taken.items:
            known = self._hash(source.model.keys.stats)
            names = ("finished", "buried", "expired", "skipped")
            counters = {name: int(known.get(name, 0)) for name in names}
        target = self._queue.shard(taken.to)
        self._run(target, PutJobs(source.name, taken.number, taken.items, **counters))
        if counters:
            self._run_plain("HDEL", source.model.keys.stats, *counters)
        self._run(source, DropTaken(taken.number))
        return len(taken.items)

    def _left(self, source: Queue) -> int:
        """How many jobs are still to end or to be moved."""
        if source.name != self._queue.name:
            counts: Counts = source.counts()
            return (
                counts.waiting
                + counts.delayed
                + counts.active
                + counts.dead
                + counts.blocked
                + counts.handing
            )
        left = self._run(source, Count()).handing
        for state in _STATES:
            offset, seen = 0, PAGE
            while seen == PAGE:
                page: Paged = self._run(source, Page(state, offset, PAGE))
                left += sum(not self._stays(source, job) for job in page.jobs)
                offset, seen = offset + page.seen, page.seen
        return left

    # -- what has ended

    def _copy_ended(self, source: Queue, former: Layout, number: int, layout: Layout) -> None:
        """Copy what keeps duplicates of ended jobs out, and their results; the list of them and the history
        move. Of a queue that had no shards the results stay where they are, in shard 0."""
        prefix = source.model.keys.prefix
        wherever = [
            self._queue.shard(layout.name(self._queue.name, home)) for home in layout.homes_of(former, number)
        ]
        # Keys of another type belong to somebody else.
        for page in self._scan(prefix, "TYPE", "string"):
            copied = [
                key
                for key in page
                if key.removeprefix(prefix).partition(":")[0] in ("job", "result", "dedup")
            ]
            values = self._plain([("GET", key) for key in copied])
            # In this order: a job that ends in between is no tombstone yet.
            times = self._plain([("PTTL", key) for key in copied])
            words: list[tuple[object, ...]] = []
            for key, value, ttl_ms in zip(copied, values, times, strict=True):
                kind, _, of = key.removeprefix(prefix).partition(":")
                if not isinstance(value, bytes) or (
                    kind == "job" and (value[0] != 160 or value[1] % 16 in _NO_JOB)
                ):
                    continue
                targets = [self._home(layout, of)] if kind == "result" else wherever
                expires = ("PX", max(ttl_ms, 1)) if ttl_ms != -1 else ()
                # -2: it has expired meanwhile.
                if ttl_ms != -2 and (kind != "result" or number):
                    words += [
                        ("SET", f"{target.model.keys.prefix}{kind}:{of}", value, *expires, "NX")
                        for target in targets
                    ]
            self._plain(words)
        self._move_entries("done", source, layout)
        self._move_entries("history", source, layout)
        if number:
            taken: TakenJobs = self._run(source, TakeJobs(0, ""))
            self._arrive(source, self._run(source, TakeJobs(taken.number + 1, wherever[0].name)))

    def _move_entries(self, zset: str, source: Queue, layout: Layout) -> None:
        """Move the entries of ended jobs, which begin with their ids, each to the shard of its id. Who reads
        in between finds one of them in both."""
        key, at = getattr(source.model.keys, zset), 0
        while page := self._run_plain("ZRANGE", key, at, at + _SCAN - 1, "WITHSCORES"):
            moved: list[bytes] = []
            words: list[tuple[object, ...]] = []
            for entry, score in zip(page[::2], page[1::2], strict=True):
                home = self._home(layout, text(entry.partition(b"\0")[0]))
                if home.name != source.name:
                    moved.append(entry)
                    words.append(("ZADD", getattr(home.model.keys, zset), "NX", score, entry))
            self._plain(words)
            if moved:
                self._run_plain("ZREM", key, *moved)
            at += len(page) // 2 - len(moved)

    def _home(self, layout: Layout, job: str) -> Queue:
        """The new shard of an ended job, of which only the id is known."""
        return self._queue.shard(layout.name(self._queue.name, layout.home("", "", job)))

    def _end(self, text: str, record: ShardRecord) -> tuple[str, ShardRecord]:
        """Delete what the former shards have left, but that they take no new jobs; then the new ones are all
        there are."""
        for source, number in self._sources(cast("Layout", record.former)):
            for page in self._scan(source.model.keys.prefix) if number else ():
                self._plain([("UNLINK", key) for key in page if key != source.model.keys.stats])
        record = record.stable()
        return self._write(text, record), record

    # -- calls

    def _run(self, queue: Queue, operation: Operation) -> Any:
        return self._queue.driver.run(queue.model.call(operation))

    def _run_plain(self, *words: object) -> Any:
        return self._plain([words])[0]

    def _plain(self, commands: Iterable[tuple[object, ...]]) -> list[Any]:
        """The replies of plain commands, in pipelines."""
        calls = [Call(None, (str(words[1]),), words, _as_it_is, ReadShards()) for words in commands]
        return self._outcomes(calls)

    def _outcomes(self, calls: list[Call[Any]]) -> list[Any]:
        replies: list[Any] = []
        for at in range(0, len(calls), PIPELINE_MAX):
            for outcome in self._queue.driver.send_many(calls[at : at + PIPELINE_MAX]):
                if isinstance(outcome, Exception):
                    raise outcome
                replies.append(outcome.reply)
        return replies

    def _hash(self, key: str) -> dict[str, str]:
        flat = self._run_plain("HGETALL", key)
        return {flat[at].decode(): flat[at + 1].decode() for at in range(0, len(flat), 2)}

    def _scan(self, prefix: str, *more: str) -> Iterator[list[str]]:
        """The keys that begin like this, page by page; none that is no UTF-8, which the engine has not
        written."""
        cursor, pattern = b"0", re.sub(r"([\\*?\[\]])", r"\\\1", prefix) + "*"
        while True:
            # Of the node that has these keys: they are of one slot.
            words = ("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN, *more)
            cursor, page = self._outcomes([Call(None, (prefix,), words, _as_it_is, ReadShards())])[0]
            yield [key.decode() for key in page if key.isascii()]
            if cursor == b"0":
                return


def _as_it_is(raw: Any) -> Any:
    return raw
