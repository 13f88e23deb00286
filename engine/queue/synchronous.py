# Generated from engine/queue/asynchronous by "make generate"; do not edit.
"""What `asynchronous` has, in calls that are not awaited."""

from __future__ import annotations

import builtins
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast, overload

import redis

from engine import tasks, validate
from engine.errors import (
    EngineError,
    Malformed,
    ScriptFault,
    ServerUnavailable,
    UnknownJob,
    UnsupportedFeature,
)
from engine.handlers import BATCH_MAX
from engine.models import Spec
from engine.observer import Observer
from engine.ops import schedules
from engine.ops.admin import (
    AdminAction,
    Administered,
    Alter,
    Altered,
    HistoryRule,
    MakeTestQueue,
    NoteQueue,
    Pause,
    ReadShards,
    Resume,
    Resumed,
    SetGate,
    SetHistory,
    SetShards,
    Window,
)
from engine.ops.base import BLOCK_MS, Call, DeadlineBound, Operation
from engine.ops.jobs import Enqueue, Enqueued, EnqueueMany
from engine.ops.looks import (
    LISTED,
    Count,
    Counts,
    Event,
    EventPage,
    Explain,
    Explained,
    HistoryPart,
    Inspect,
    Inspected,
    LimitInfo,
    ListHistory,
    Listing,
    ListObstacles,
    Look,
    NameCounts,
    ObstaclesPart,
    Page,
    Paged,
    ReadEvents,
    ReadProgress,
    Snapshot,
)
from engine.ops.schedules import ListSchedules, Missed, Overlap, SchedulePage
from engine.ops.workers import (
    WORKERS_MAX,
    HandlerTimes,
    ListedRunTimes,
    ListedWorkers,
    ListRunTimes,
    ListWorkers,
    WorkerInfo,
)
from engine.options import JobOptions, checked
from engine.parameters import JobName, TypedJob
from engine.queue import admin, history, looks, producing, scheduling, sharding, workflows
from engine.queue.admin import Lock, QueueInfo
from engine.queue.history import HistoryOptions, PastJobs
from engine.queue.looks import (
    ErrorGroups,
    JobInfo,
    JobPage,
    JobState,
    ListOptions,
    PageRequest,
    Selection,
    job_info,
    state_of,
)
from engine.queue.metrics import DemandWatch, Scaling, exposition
from engine.queue.producing import JOBS_MAX, NewJob, Steps, TaskJob
from engine.queue.results import AWAY, EndListeners, Progress, Result, Waiting, best, progress_of, typed
from engine.queue.scheduling import PutResult, Schedule, schedule_of, template
from engine.queue.settings import TEST_CLOCK_LEAST_MS, Durable, QueueSettings, asynchronous
from engine.queue.sharding import PLAIN, ShardRecord, added_times, added_workers, moved
from engine.queue.why import Obstacles, Why, added_obstacles, obstacles_of, why
from engine.queue.workflows import Workflow, WorkflowChange
from engine.redis.driver import SyncDriver
from engine.redis.endpoint import DEFAULT_URL, ConnectOptions, Endpoint
from engine.redis.exchange import PIPELINE_MAX, Sent
from engine.redis.gathering import CallMaker, Gathering
from engine.serializers import Serializer
from engine.tasks import BatchTaskDecorator, TaskDecorator, TaskFunction, TaskOptions
from engine.validate import Milliseconds

if TYPE_CHECKING:
    # Of both kinds of queue this is the asyncio one.
    from engine.queue.asynchronous.queue import AsyncQueue as Awaitable

# -- The one way of a queue's calls: where each goes among the shards of the queue, and how it is sent. A
# whole queue is its own only shard, and asks nobody. The shards of a divided one (docs/guides/shards.md)
# are queues of their own that share its driver. What is asked of all of them leaves in one pipeline. The
# record of how many there are is read with the first call. Reading it with each look at all shards shows
# when their number has changed. An enqueue need not look, because a shard that takes no new jobs says so.

#: Looks at a record that changes all the time, or at a job that is on its way to another shard.
_TRIES = 50
T = TypeVar("T")


class QueueCalls(QueueSettings):
    """A queue's settings, the driver that runs its calls, and its shards."""

    driver: SyncDriver
    gathering: Gathering
    _noted = False
    _known: ShardRecord | None = None
    _made: dict[str, Self]

    def do(self, operation: Operation) -> Any:
        """Carry out an operation where it goes, and return its reply; for the engine's own parts. Raises
        ServerUnavailable, OutcomeUnknown, and UnsupportedFeature, before any I/O, for one that the model
        lacks."""
        if self.shards is not None:
            if operation.goes != "home":
                return self._do_in_shards(operation)
            self.record()
        if isinstance(operation, DeadlineBound):
            reply = (self.send_in_time(operation)).reply
            if isinstance(reply, Administered):
                reply.check_done()
            return reply
        return self.driver.run(self.model.call(operation))

    def carry_out(self, steps: Steps[T], intended_ns: int | None = None) -> T:
        """Run steps to their end and return their result; for the engine's own parts. From where they have
        found a job they go on in its shard."""
        answer: Any = None
        place = self
        try:
            while True:
                asked = steps.send(answer)
                if isinstance(asked, Operation):
                    if place.shards is not None and asked.goes == "find":
                        place = place._holder(asked)
                    answer = place.do(asked)
                else:
                    answer = self.driver.send_many(self._calls(asked), intended_ns)
        except StopIteration as end:
            return end.value

    def carry_out_up_to(self, steps: Callable[[int], Steps[int]], most: int) -> int:
        """Run steps that do something at most so many times, and count it, in one shard in use after the
        other; for the engine's own parts."""
        done = 0
        for shard in self.in_use():
            # The steps check what the caller has given.
            done += shard.carry_out(steps(most - done if done else most))
            if done >= most:
                break
        return done

    def send_in_time(self, operation: DeadlineBound) -> Sent:
        """Stamp an operation and send it; once more when its deadline was reckoned wrongly (rule 3). Of a
        divided queue to shard 0. For the engine's own parts. Raises as `do` does."""
        self.model.refuse(operation)
        if self.shards is not None:
            self.record()
        self._contact()
        sent = self.driver.send(self.model.call(operation.stamped(self.driver.not_after_ms())))
        if sent.came_late:
            sent = self.driver.send(self.model.call(operation.stamped(self.driver.not_after_ms())))
        return sent

    # -- enqueues

    def _send_enqueue(self, job: Enqueue, intended_ns: int | None) -> Sent:
        """Send the enqueue of one job as `send_in_time` does, perhaps together with those of other
        callers."""
        if self.shards is not None:
            return self._send_to_its_shard(job, intended_ns)
        self.model.refuse(job)
        if not (self._noted and self.driver.clock.known):
            self._contact()
        sent = self.gathering.send(job, intended_ns)
        if sent.reply.result != "created" and sent.came_late:
            sent = self.gathering.send(job, intended_ns)
        return sent

    def _send_to_its_shard(self, job: Enqueue, intended_ns: int | None) -> Sent:
        sharding.check_job(job)
        if not self._noted:
            self._note_use()
        for _ in range(_TRIES):
            options, record = job.options, self.record()
            for name in record.homes(self.name, options.key, options.unique, job.job):
                sent = self.shard(name)._send_enqueue(job, intended_ns)
                if sent.reply.result != "moved":
                    return sent
            self.look_up()
        raise ServerUnavailable(
            f"the shards of queue {self.name} change all the time: job {job.job} was not enqueued"
        )

    def _send_drafts(self, drafts: list[Enqueue], intended_ns: int | None) -> list[Enqueued]:
        """Enqueue jobs that were checked."""
        if self.shards is not None:
            for draft in drafts:
                sharding.check_job(draft)
        if drafts:
            self._contact()
        if self.shards is None:
            return self.carry_out(producing.enqueue_many(drafts), intended_ns)
        unsent = ServerUnavailable("not sent: the shards change all the time")
        results: list[Enqueued | EngineError] = [unsent] * len(drafts)
        left = list(range(len(drafts)))
        for _ in range(_TRIES):
            for layout in (self.record()).layouts if left else ():
                groups: dict[str, list[int]] = {}
                for at in left:
                    job, options = drafts[at].job, drafts[at].options
                    home = layout.name(self.name, layout.home(options.key, options.unique, job))
                    groups.setdefault(home, []).append(at)
                came = self._send_groups(
                    {name: [drafts[at] for at in group] for name, group in groups.items()}, intended_ns
                )
                for name, group in groups.items():
                    for at, result in zip(group, came[name], strict=True):
                        results[at] = unsent if getattr(result, "result", "") == "moved" else result
                left = [at for at in left if results[at] is unsent]
            if not left:
                break
            self.look_up()
        return producing.concluded(results)

    def _send_groups(
        self, groups: dict[str, list[Enqueue]], intended_ns: int | None
    ) -> dict[str, list[Enqueued | EngineError]]:
        """Enqueue the jobs of several shards, the pipelines of all of them together."""
        each = {name: producing.enqueue_each(jobs, one_nonce=True) for name, jobs in groups.items()}
        came: dict[str, list[Enqueued | EngineError]] = {}
        answers: dict[str, Any] = dict.fromkeys(each)
        while each:
            asked: dict[str, list[Call[Any]]] = {}
            for name, steps in list(each.items()):
                try:
                    asked[name] = self.shard(name)._calls(cast("Any", steps.send(answers[name])))
                except StopIteration as end:
                    came[name] = end.value
                    del each[name]
            outcomes = self._outcomes([call for calls in asked.values() for call in calls], intended_ns)
            for name, calls in asked.items():
                answers[name], outcomes = outcomes[: len(calls)], outcomes[len(calls) :]
        return came

    def _calls(self, operations: Sequence[Enqueue | EnqueueMany]) -> list[Call[Any]]:
        """The calls of operations that leave now in one pipeline."""
        not_after_ms = self.driver.not_after_ms()
        return [self.model.call(operation.stamped(not_after_ms)) for operation in operations]

    def _contact(self) -> None:
        """Learn the server's time, and list the queue there; only the first call has to."""
        self.driver.server_now_ms()
        if not self._noted:
            self._note_use()

    def _note_use(self) -> None:
        """List the queue among those of its server, the first time that this process puts something into it
        or works for it. A failure concerns nobody here."""
        if not self._noted and self.model.now_ms is None:
            self._noted = True
            with suppress(EngineError):
                self.driver.send(self.model.call(NoteQueue(self.driver.server_now_ms())))
            self.note_era()

    def note_era(self) -> None:
        """Note the server before the first write of this process, or begin of a worker; for the engine's own
        parts. A failure concerns nobody here. The server must have been met."""
        if self.era is not None and not self.era.used and self.model.now_ms is None:
            noting = self.era.begin()
            with suppress(EngineError):
                if noting is not None:
                    self.driver.send(self.model.call(noting))

    # -- shards

    def _do_in_shards(self, operation: Operation) -> Any:
        """Carry out an operation in the shards that it goes to."""
        if operation.goes == "find":
            return (self._holder(operation)).do(operation)
        if operation.goes == "all" and isinstance(operation, DeadlineBound):
            parts = self._parts(operation)
            return operation.merge([self.shard(name).do(part) for name, part in parts])
        if operation.goes == "all":
            return operation.merge([reply for _, reply in self.each(operation)])
        if isinstance(operation, Enqueue):
            return (self._send_enqueue(operation, None)).reply
        raise UnsupportedFeature(
            f"{type(operation).__name__}: the shards of queue {self.name} answer each for itself"
        )

    def _parts(self, operation: Operation) -> list[tuple[str, Operation]]:
        """What each shard in use is sent of an operation that goes to all."""
        # What cannot be divided is refused before any call.
        operation.part(0, cast("int", self.shards), lambda key: 0)
        parts: dict[str, Operation] = {}
        for layout in (self.look_up()).layouts:
            home = partial(layout.home, unique="", job="")
            for number, name in enumerate(layout.names(self.name)):
                part = operation.part(number, layout.shards, home)
                if part is not None:
                    parts[name] = part
        return list(parts.items())

    def each(self, operation: Operation) -> list[tuple[Self, Any]]:
        """Ask all shards in use at once, shard 0 first; for the engine's own parts. Raises the first
        failure."""
        if self.shards is None:
            return [(self, self.do(operation))]
        for _ in range(_TRIES):
            # The replies belong to the record that the shards were taken from; another thread may learn a
            # newer one meanwhile.
            record = self.record()
            shards = [self.shard(name) for name in record.names(self.name)]
            calls = [shard.model.call(operation) for shard in shards]
            text, *replies = self._pipeline([self.model.call(ReadShards()), *calls])
            if text == record.text():
                return list(zip(shards, replies, strict=True))
            self.look_up()
        raise ServerUnavailable(f"the record of the shards of queue {self.name} changes all the time")

    def _pipeline(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """The replies of calls that leave together. Raises the first failure."""
        outcomes = self._outcomes(calls)
        for outcome in outcomes:
            if isinstance(outcome, EngineError):
                raise outcome
        return [cast("Sent", outcome).reply for outcome in outcomes]

    def _outcomes(
        self, calls: Sequence[Call[Any]], intended_ns: int | None = None
    ) -> list[Sent | EngineError]:
        outcomes: list[Sent | EngineError] = []
        for at in range(0, len(calls), PIPELINE_MAX):
            outcomes += self.driver.send_many(calls[at : at + PIPELINE_MAX], intended_ns)
        return outcomes

    def find(self, id: str) -> Self | None:
        """The shard that has a job; of an ended one also that which still knows its id. A whole queue is not
        asked."""
        if self.shards is None:
            return self
        job = validate.known_id(id)
        for _ in range(_TRIES):
            found: dict[str, Self] = {}
            for shard, reply in self.each(Inspect((job,), whole=False)):
                found.setdefault(cast("Inspected", reply).items[0].state, shard)
            open_states = [state for state in found if state in LISTED[:-1]]
            ended = [state for state in found if state not in ("gone", "moving")]
            if open_states or ended or "moving" not in found:
                # One that still is to run before one of the same id and another key that has ended.
                return next((found[state] for state in (*open_states, *ended)), None)
        return None

    def _holder(self, operation: Any) -> Self:
        """The shard that has the job of an operation. Where none has, the last one, which says that it knows
        no such job: those that jobs are on their way from come first."""
        (job,) = getattr(operation, "jobs", None) or (operation.job,)
        return self.find(job) or self.shard((self.record()).names(self.name)[-1])

    def record(self) -> ShardRecord:
        """How many shards there are, as it was when this was last asked; for the engine's own parts. The
        first client writes it. Raises Malformed for another number than this client has."""
        return self._known or self.look_up()

    def look_up(self) -> ShardRecord:
        """Read the record anew; nothing is read for a whole queue."""
        if self.shards is None:
            return PLAIN
        text: str = self.driver.run(self.model.call(ReadShards()))
        if not text:
            first, closed = sharding.first_record(self.shards).text(), sharding.moved(self.shards)
            made = self.driver.run(self.model.call(SetShards("", first, closed, fresh=True)))
            if made.result == "used":
                raise Malformed(
                    "shards",
                    self.shards,
                    f"left out: queue {self.name} is whole; `ironclaim reshard` divides it",
                )
            text = made.record
        record = sharding.read_record(text)
        record.check(self.name, self.shards)
        self._known = record
        return record

    def in_use(self) -> list[Self]:
        """All shards that may hold jobs, shard 0 first; of a whole queue itself. For the engine's own
        parts."""
        if self.shards is None:
            return [self]
        return [self.shard(name) for name in (self.look_up()).names(self.name)]

    def shard(self, name: str) -> Self:
        """The shard of this name: a queue that uses the driver of this one."""
        if name not in self._made:
            made = object.__new__(type(self))
            made._take_over(self, None)
            made.name, made.shards, made.model = name, None, self.model.sibling(name)
            made.endpoint = self.endpoint.for_keys_like(made.model.keys.prefix)
            # The whole queue is listed on its server, not each shard.
            made.is_shard = made._noted = True
            made._set_up(self.driver)
            self._made[name] = made
        return self._made[name]

    def _set_up(self, driver: SyncDriver | None = None) -> None:
        """What connects, and the parts. `driver`: that of the queue that this is a shard of."""
        raise NotImplementedError


class Part:
    """A part of a queue, such as `queue.jobs`."""

    def __init__(self, queue: QueueCalls) -> None:
        self._queue = queue


class BlockingCalls:
    """The calls of a part that block on the server: waits for results, readers of events. They have a driver
    of their own, whose connections wait longer for a reply, so that no other call queues up behind them. It
    connects with the first one."""

    def __init__(self, queue: QueueCalls) -> None:
        self.model = queue.model
        self._driver = SyncDriver(queue.endpoint, (), clock=queue.driver.clock, block_ms_max=BLOCK_MS)

    def run(self, operation: Operation) -> Any:
        """Run an operation that blocks for at most `BLOCK_MS`, and return its reply. Raises
        ServerUnavailable, OutcomeUnknown."""
        return self._driver.run(self.model.call(operation))

    def close(self) -> None:
        """Close the idle connections."""
        self._driver.close()


# -- The jobs of a queue, to look at and to change by admin actions: `queue.jobs`, `queue.dead` (rules 7 and
# 26) and `queue.workflows`.

#: Jobs of one call that counts names: reading one takes the server up to 10 us.
_NAMES_PAGE = 250


class JobsPart(Part):
    """The base of the parts that list jobs: pages of one shard, and of all shards together."""

    def _select(self, state: str, listing: PageRequest) -> builtins.list[JobInfo]:
        """One page of the jobs in a state that are meant, in all shards; those that wait come shard by shard,
        the others by time."""
        shards = self._queue.in_use()
        if len(shards) == 1:
            return self._select_in(shards[0], state, listing)
        first, most = listing.offset, listing.offset + listing.limit
        found: list[JobInfo] = []
        for shard in shards:
            at = 0
            while at < most:
                piece = replace(listing, offset=at, limit=min(validate.PAGE_MAX, most - at))
                page = self._select_in(shard, state, piece)
                found += page
                at += validate.PAGE_MAX if page else most
            if state == "waiting" and len(found) >= most:
                break
        if state != "waiting":
            found.sort(
                key=lambda info: info.ended_ms or info.lease_end_ms or info.due_ms,
                reverse=listing.newest_first,
            )
        return found[first:most]

    def _select_in(self, shard: QueueCalls, state: str, listing: PageRequest) -> builtins.list[JobInfo]:
        """One page of the jobs of a shard that are meant; of all of them without looking at others."""
        wanted, first, most = listing.wanted, listing.offset, listing.offset + listing.limit
        if wanted.everything:
            page: Paged = shard.do(Page(state, first, listing.limit, listing.newest_first))
            return self._look(shard, page.jobs, state)
        found: list[JobInfo] = []
        looked = 0
        while looked < looks.LOOKED_MAX and len(found) < most:
            page = shard.do(Page(state, looked, looks.PIECE, listing.newest_first))
            infos = self._look(shard, page.jobs, state)
            found += [info for info in infos if wanted.matches(info, page.srv_us // 1000)]
            looked += page.seen
            if page.seen < looks.PIECE:
                break
        return found[first:most]

    def _page(self, state: str, listing: PageRequest) -> JobPage:
        """The jobs at these places that are meant; of one shard in two calls."""
        shards = self._queue.in_use()
        if len(shards) > 1:
            infos = self._select(state, replace(listing, wanted=Selection()))
            now_ms, looked = self._queue.driver.server_now_ms(), len(infos)
            meant = tuple(info for info in infos if listing.wanted.matches(info, now_ms))
            return JobPage(
                now_ms * 1000, meant, looked, listing.offset + looked if looked == listing.limit else None
            )
        (shard,) = shards
        page: Paged = shard.do(Page(state, listing.offset, listing.limit, listing.newest_first))
        if not page.jobs:
            return JobPage(page.srv_us, (), 0, None)
        reply: Inspected = shard.do(Inspect(page.jobs))
        found = tuple(
            info
            for info in self._still(state, page.jobs, reply)
            if listing.wanted.matches(info, reply.srv_us // 1000)
        )
        # A reply ends after 1 MiB of payloads: the next page goes on behind what was read.
        looked = len(reply.items)
        more = looked < len(page.jobs) or page.seen == listing.limit
        return JobPage(reply.srv_us, found, looked, listing.offset + looked if more else None)

    def _look(self, shard: QueueCalls, jobs: tuple[str, ...], state: str) -> builtins.list[JobInfo]:
        """Read these jobs of a shard; those that have left the state meanwhile are left out."""
        found: list[JobInfo] = []
        while jobs:
            reply: Inspected = shard.do(Inspect(jobs[: admin.PIECE]))
            found += self._still(state, jobs, reply)
            jobs = jobs[len(reply.items) :]
        return found

    def _still(self, state: str, jobs: tuple[str, ...], reply: Inspected) -> Iterator[JobInfo]:
        """The jobs of a reply that are in the state; it may have fewer than were asked for."""
        for job, looked in zip(jobs, reply.items, strict=False):
            now = state_of(looked, reply.srv_us)
            if now == state or (now, state) in (("stuck", "active"), ("skipped", "finished")):
                yield job_info(self._queue.model, self._queue.serializers, job, looked, reply.srv_us)


class Jobs(JobsPart):
    """The jobs of one queue."""

    def get(self, id: str) -> JobInfo | None:
        """Return what is known of a job; None when the server does not know it, or no longer. Raises as
        `enqueue` does."""
        job = self._queue.model.names.known_id(id)
        reply: Inspected = self._queue.do(Inspect((job,)))
        looked = reply.items[0]
        return (
            None
            if looked.state == "gone"
            else job_info(self._queue.model, self._queue.serializers, job, looked, reply.srv_us)
        )

    def state(self, id: str) -> JobState:
        """The state of a job: waiting, delayed, active, stuck (its lease has ended, and no sweep has taken it
        yet), dead, finished, cancelled, discarded, or gone. Of an ended job it is known for 20 s, and of the
        last 1,000 finished ones (`set_retention`)."""
        reply: Inspected = self._queue.do(Inspect((self._queue.model.names.known_id(id),), whole=False))
        return state_of(reply.items[0], reply.srv_us)

    def why(self, id: str) -> Why:
        """Why a job does not run, or what else it does, as a sentence: `print(queue.jobs.why(id))` says
        `waits for the limit of key acme: 2 of 2 in hand, by w1 and w3`. It knows of pauses, limits, delays,
        parents, the last error of a dead job, and of workers what their heartbeats have told, at most 200 of
        them. Raises as `enqueue` does."""
        job = self._queue.model.names.known_id(id)
        found: Explained = self._queue.do(Explain(job))
        return why(job, found)

    def list(self, state: str, **options: Unpack[ListOptions]) -> list[JobInfo]:
        """One page of the jobs that are waiting, delayed, active, stuck, dead or finished, at most 1,000.
        `options`: see ListOptions. What changes its state between the page and the look at it is left out.

        With a name, a key, an error or an age `offset` counts jobs that are meant, and of the first 10,000 of
        the state those are found."""
        listing = looks.listing(validate.PAGE_MAX, names=self._queue.model.names, **options)
        return self._select(admin.check_state(state, LISTED), listing)

    def page(self, state: str, **options: Unpack[ListOptions]) -> JobPage:
        """What `list` finds among `limit` places of a state (1 to 250) from `offset` on, in two calls however
        many jobs there are. So a page may be short, or empty, and `next` is the `offset` of the one after it,
        None where there is none."""
        listing = looks.listing(looks.PLACES_MAX, names=self._queue.model.names, **options)
        return self._page(admin.check_state(state, LISTED), listing)

    def counts_by_name(self) -> dict[str, NameCounts]:
        """Jobs of each name that wait, are delayed, active and dead; '' stands for those that nobody can
        read. It reads 250 jobs a call, the waiting ones by lane. So with many delayed or dead jobs it takes
        its time, and is no instant."""
        counts: dict[str, dict[str, int]] = {}
        for shard, state in itertools.product(self._queue.in_use(), NameCounts._fields):
            offset, cursor = 0, ""
            while True:
                page: Paged = shard.do(Page(state, offset, _NAMES_PAGE, names=True, cursor=cursor))
                for name, count in page.names.items():
                    of_name = counts.setdefault(name, {})
                    of_name[state] = of_name.get(state, 0) + count
                offset, cursor = offset + page.seen, page.cursor
                if page.seen < _NAMES_PAGE and not cursor:
                    break
        return {name: NameCounts(**of_name) for name, of_name in sorted(counts.items())}

    def cancel(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End a job that waits, is delayed or runs. A running one loses its token at once: what its worker
        still says about it is refused. Its handler learns of it within a second (`Job.cancelled`,
        `Job.cancelled_by_hand`): a coroutine is cancelled, a child process killed. Where the worker's control
        connection is away, that is at the next renewal.

        With `expected_state` only if it is in that state; without it is looked at first, and again when it
        changes meanwhile. Returns Altered: `done`, or `changed` with the state that keeps it from being done.
        Its id is known for 20 s."""
        return self._queue.carry_out(admin.altering(self._queue.model.names, "cancel", id, expected_state))

    def run_now(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End the delay of a job: it is claimable at once, at its place among its equals. As `cancel`, for
        delayed jobs and those that wait for another attempt."""
        return self._queue.carry_out(admin.altering(self._queue.model.names, "run_now", id, expected_state))

    def remove(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End a job that is waiting, delayed or dead, or take a finished one from the list with its result.
        As `cancel`; it never touches one that runs."""
        return self._queue.carry_out(admin.altering(self._queue.model.names, "remove", id, expected_state))


class Dead(JobsPart):
    """The dead jobs of one queue. They stay until they are requeued or discarded, or are too many or too old
    (`set_retention`; 100,000 and 90 days unless told)."""

    def list(self, **options: Unpack[ListOptions]) -> list[JobInfo]:
        """One page of the dead jobs, at most 1,000, the longest dead first: `last_error` is why, `errors` its
        runs with their stack traces. A corrupt one is among them, with `unreadable` and its bytes. `options`:
        see ListOptions; ages are from their deaths. Raises as `enqueue` does."""
        return self._select(
            "dead", looks.listing(validate.PAGE_MAX, names=self._queue.model.names, **options)
        )

    def requeue(self, id: str, *, with_children: bool = False) -> Altered:
        """Let a dead job run again, with all its attempts, at the place that it had. Its error history stays.

        `with_children`: the jobs that died with it wait for it again, and theirs for them, in pieces
        of at most 100, each at once or not at all. One with other parents waits for those, too. A child stays
        dead whose other parent is still lost, whose unique key another job has by now, or that has run since.
        `children` and `left` count both. Cut off half way, some have gone back and some are dead; the same
        call goes on, whatever has become of the job meanwhile.

        Returns Altered: `done`; `changed` when it is not dead; `held` when the job `holder` has its unique
        key by now (rule 23); `corrupt` when nobody can read it. Raises UnsupportedFeature for children of
        another format than Lanes."""
        model = self._queue.model
        return self._queue.carry_out(
            workflows.requeueing(model, id)
            if validate.truth("with_children", with_children)
            else admin.altering(model.names, "requeue", id, None)
        )

    def requeue_all(
        self,
        name: str | None = None,
        *,
        limit: int = 10_000,
        key: str | None = None,
        error: str | None = None,
        older_than_ms: int = 0,
        newer_than_ms: int | None = None,
        error_like: str | None = None,
    ) -> int:
        """Requeue the dead jobs of a name, with a key, an error (`ValueError`) or an age, or all, the longest
        dead first, in pieces of 100; how many there were. What is said of them is as in `queue.jobs.list`.
        Those that are held or corrupt stay dead."""
        names = self._queue.model.names
        wanted = looks.selection(name, key, error, older_than_ms, newer_than_ms, names, error_like)
        return self._alter_all("requeue", wanted, limit)

    def discard_all(
        self,
        name: str | None = None,
        *,
        limit: int = 10_000,
        key: str | None = None,
        error: str | None = None,
        older_than_ms: int = 0,
        newer_than_ms: int | None = None,
        error_like: str | None = None,
    ) -> int:
        """End dead jobs for good, also corrupt ones; as `requeue_all`."""
        names = self._queue.model.names
        wanted = looks.selection(name, key, error, older_than_ms, newer_than_ms, names, error_like)
        return self._alter_all("discard", wanted, limit)

    def by_error(self, *, limit: int = looks.LOOKED_MAX) -> ErrorGroups:
        """The dead jobs by name and kind of error: those are of one kind that differ in ids, numbers,
        addresses, lengths of time and quoted values alone. The `limit` jobs that died last are looked at, at
        most 10,000, 250 in two calls. `requeue_all` and `discard_all` take a group with its `name` (None for
        '') and its `kind` as `error_like`, also those of it that were not looked at."""
        left = validate.integer("limit", limit, 1, looks.LOOKED_MAX)
        found: dict[str, JobInfo] = {}
        offset: int | None = 0
        srv_us = 0
        while offset is not None and left > 0:
            listing = PageRequest(Selection(), offset, min(left, looks.PLACES_MAX), newest_first=True)
            page = self._page("dead", listing)
            # What dies meanwhile moves the others on, so that they come again.
            found |= {job.id: job for job in page.jobs}
            offset, left, srv_us = page.next, left - page.looked, page.srv_us
        return ErrorGroups(looks.error_groups(found.values()), len(found), offset is not None, srv_us)

    def _alter_all(self, action: AdminAction, wanted: Selection, limit: object) -> int:
        most = validate.integer("limit", limit, 1, validate.DEAD_MAX)
        done = 0
        for shard in self._queue.in_use():
            done += self._alter_in(shard, action, wanted, most - done) if done < most else 0
        return done

    def _alter_in(self, shard: QueueCalls, action: AdminAction, wanted: Selection, most: int) -> int:
        # A job that dies again meanwhile is not changed twice.
        left: int = (shard.do(Count())).dead
        offset = done = 0
        while left > 0 and done < most:
            page: Paged = shard.do(Page("dead", offset, min(admin.PIECE, left, most - done)))
            if not page.jobs:
                break
            jobs = page.jobs
            if not wanted.everything:
                now_ms = page.srv_us // 1000
                jobs = tuple(
                    info.id for info in self._look(shard, jobs, "dead") if wanted.matches(info, now_ms)
                )
            items = (shard.do(Alter(action, jobs, "dead"))).items if jobs else ()
            changed = sum(item.done for item in items)
            done += changed
            left -= len(page.jobs)
            offset += len(page.jobs) - changed
        return done

    def discard(self, id: str) -> Altered:
        """End a dead job for good, also a corrupt one."""
        return self._queue.carry_out(admin.altering(self._queue.model.names, "discard", id, None))

    def clear(self, *, older_than_ms: Milliseconds = 0, limit: int = 1_000_000) -> int:
        """Discard the jobs that have been dead for so long, in pieces; how many there were."""
        return self._queue.carry_out_up_to(lambda most: admin.cleaning("dead", older_than_ms, most), limit)


class Workflows(Part):
    """Jobs that need each other, as one (Lanes alone): each call names any of them."""

    def get(self, id: str, *, limit: int = workflows.SHOWN) -> Workflow | None:
        """The jobs above and below one that are still known, at most `limit` of them (100,000), parents
        first; `more` says that there are others. None where nothing is known of the job.

        A job that has ended is among them while one that is there needs it, or was buried with it. Raises
        UnsupportedFeature for another format than Lanes."""
        return self._queue.carry_out(workflows.looking(self._queue.model, id, limit))

    def cancel(self, id: str, *, limit: int = JOBS_MAX) -> WorkflowChange:
        """Cancel all jobs of it that have not ended, children before their parents, in pieces of 100; see
        `jobs.cancel` for one that runs. `left` are those that have not ended all the same.

        Cut off half way, children are cancelled and their parents go on; the same call, with a job that is
        still known, goes on. Raises as `get` does."""
        return self._queue.carry_out(workflows.cancelling(self._queue.model, id, limit))

    def retry(self, id: str, *, limit: int = JOBS_MAX) -> WorkflowChange:
        """Requeue all jobs of it that are dead, parents before their children, in pieces of 100. One that was
        buried with a parent waits for it again, as with `dead.requeue`. `left` are those that stay dead, as
        there.

        Cut off half way, parents run and some of their children are dead; the same call goes on. Raises as
        `get` does."""
        return self._queue.carry_out(workflows.retrying(self._queue.model, id, limit))


# -- What else a queue has: its schedules, events, history, results, workers and locks.

# -- The schedules of a queue, `queue.schedules`: jobs that come again and again, by a cron expression or
# an interval (rule 24).
#
# Any worker or `Scheduler` of the queue ticks them; however many there are, a tick makes one job, whose id is
# `cron:<schedule>:<tick in ms>`. The server's clock decides. When it steps back, a schedule waits until it
# has caught up: no tick comes twice.

_PAGE = 100


class Schedules(Part):
    """The schedules of a queue."""

    def put(
        self,
        name: str,
        job_name: JobName,
        payload: object = None,
        *,
        cron: str | None = None,
        zone: str = "UTC",
        every_ms: Milliseconds = 0,
        months: int = 0,
        start_ms: int = 0,
        enabled: bool | None = None,
        missed: Missed = "once",
        late_ms: Milliseconds = 60_000,
        overlap: Overlap = "allow",
        **options: Unpack[JobOptions],
    ) -> PutResult:
        """Define a schedule, or change it. Putting the same again changes nothing, so a service may put its
        schedules at each start. `job_name` may also be a task, with its options; a task without a payload is
        called without arguments, else with `task.payload(...)`.

        One of three says when it ticks. `cron` has five fields in the dialect of crontab(5) (minute, hour,
        day, month, weekday), or six of which the *first* is the second. `every_ms` is at least 100. `months`
        ticks on the day and at the time of day of the start (31 January, 28 February, 31 March). `zone` is an
        IANA name, for cron and months. Nothing ticks before `start_ms` (server time), from which intervals
        count without drift; 0: from now. A time of day that the clocks skip ticks once right after the gap,
        one that comes twice ticks the first time. A cron expression for every hour follows the clock on the
        wall instead.

        Where nobody saw the first due tick for more than `late_ms`, `missed="once"` runs the last one for
        all, `"all"` runs each, `"skip"` those that are not late. At most the last 100 run. Each of the
        others counts as missed. `overlap="skip"` makes no job while the one before is waiting or running.
        `enabled=None` leaves it as it is; a new one is. `options` are those of `enqueue` that travel with the
        job: no delay and no dedup.

        Returns `new`, `changed` or `same`; with the same timing the next tick stays. Raises as `enqueue`
        does.
        """
        scheduling.check_words(options)
        timing, policy = (
            scheduling.timing(cron, zone, every_ms, months, start_ms),
            scheduling.policy(missed, late_ms, overlap),
        )
        job = template(self._queue, job_name, payload, options)
        return self._queue.carry_out(
            scheduling.putting(self._queue.model.names, name, timing, policy, job, enabled)
        )

    def remove(self, name: str) -> bool:
        """Remove a schedule; its jobs stay. Returns False when there is none of this name."""
        return self._queue.carry_out(scheduling.removing(self._queue.model.names, name))

    def enable(self, name: str) -> bool:
        """Let a schedule tick again, from its next tick on. Returns False when there is none of this name."""
        return self._queue.carry_out(scheduling.enabling(self._queue.model.names, name, True))

    def disable(self, name: str) -> bool:
        """Stop the ticks of a schedule until it is enabled; its jobs stay. Returns False when there is none
        of this name."""
        return self._queue.carry_out(scheduling.enabling(self._queue.model.names, name, False))

    def run_now(self, name: str) -> Enqueued | None:
        """Enqueue one more of its jobs now, beside its ticks, whose state it leaves as it is. None when there
        is none of this name."""
        model = self._queue.model
        schedule = model.names.schedule(name)
        page: SchedulePage = self._queue.do(ListSchedules(schedule))
        if not page.items:
            return None
        job, id = (
            model.read_template(page.items[0].job),
            model.schedule_id(schedule, f"now-{os.urandom(8).hex()}"),
        )
        run = Enqueue(id, job.name, job.payload, os.urandom(8), job.options)
        return producing.enqueued(self._queue.send_in_time(run), run.name)

    def get(self, name: str) -> Schedule | None:
        """Return a schedule with its state; None when there is none of this name."""
        page: SchedulePage = self._queue.do(ListSchedules(self._queue.model.names.schedule(name)))
        return schedule_of(page.items[0], self._queue.model, self._queue.serializers) if page.items else None

    def list(self, *, offset: int = 0, limit: int = schedules.SCHEDULES_MAX) -> tuple[Schedule, ...]:
        """The schedules, by next tick, those that do not tick last: at most `limit` (all) from rank `offset`
        on. Pages of 100: one is one instant, several are not."""
        first = validate.integer("offset", offset, 0, 2**31)
        end = first + validate.integer("limit", limit, 1, schedules.SCHEDULES_MAX)
        found: dict[str, Schedule] = {}
        for rank in range(first, end, _PAGE):
            page: SchedulePage = self._queue.do(ListSchedules("", rank, min(_PAGE, end - rank)))
            # A schedule that has ticked between two pages may come twice.
            for stored in page.items:
                found[stored.schedule] = schedule_of(stored, self._queue.model, self._queue.serializers)
            if not page.more:
                break
        return tuple(found.values())


# -- The events of a queue, for monitoring.

_ENTRY = re.compile(r"\d{1,20}(-\d{1,20})?\Z", re.ASCII)
_STREAMS = (
    "each shard has its own stream of events: queue.shard(name).events, with the names of queue.record()"
)


class Events(Part):
    """The events of a queue, for monitoring: `queue.events`. Off unless switched on, then an entry of a
    stream for each.

    The script that does a thing writes its entry, last and only where it changes something: a call that is
    sent twice tells once. One that the server cut off just before the end may have told nothing. Kinds,
    and what their `detail` says:

    - `created` (waiting, delayed or blocked), `promoted` (its delay is over, or somebody said so),
      `unblocked` (its parents ended);
    - `claimed` (the worker), `progress` (percent), `released` (given back), `finished`;
    - `failed` (the error; the job is tried again unless `buried` follows), `reaped` (the worker that stalled
      or died with it);
    - `buried` (the reason), `requeued`, `cancelled`, `discarded`, `skipped`, `rerouted` (why), `expired`;
    - `paused` (length in ms, if any) and `resumed` of a name, or of the queue, `*`; a pause that ends by
      itself is not told.
    """

    def __init__(self, queue: QueueCalls) -> None:
        super().__init__(queue)
        self._blocking = BlockingCalls(queue)

    def on(self, keep: int = 10_000) -> None:
        """Record events from now on. The last `keep` events stay (at most 1,000,000), and up to 100 more: the
        server drops them by pages. Each costs a write of the script that tells it, and some 100 bytes. Raises
        as `queue.pause` does."""
        self._queue.do(admin.set_events(keep))

    def off(self) -> None:
        """Stop recording events and delete those that were recorded. Raises as `queue.pause` does."""
        self._queue.do(admin.set_events(None))

    def last(self) -> str:
        """The id of the last event, to read after it; `0-0` where there is none. Raises ServerUnavailable,
        and UnsupportedFeature for a queue with shards: each has a stream of its own,
        `queue.shard(name).events`."""
        self._check_whole()
        page: EventPage = self._queue.do(ReadEvents("$", 1, 0))
        return page.after

    def read(self, after: str = "$", *, wait_ms: Milliseconds | None = None) -> Iterator[Event]:
        """The events after this one, and each further one when it comes, until for `wait_ms` none has; None:
        for ever.

        `after`: the id of an event, `0` for all that are kept, or `$` for what comes from the first step of
        the iterator on. Who falls behind by more than are kept misses some. Raises Malformed at the first
        step, and so UnsupportedFeature as `last` does, and ServerUnavailable or OutcomeUnknown when the
        server is away. Then read on after the last event that came.
        """
        self._check_whole()
        if not isinstance(after, str) or not (after == "$" or _ENTRY.match(after)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Malformed("after", after, "the id of an event, 0 or $")
        EndListeners.check_may_wait("events.read", after, "queue.aio.events.read(...)")
        waiting = None if wait_ms is None else Waiting("-", wait_ms)
        page: EventPage = self._blocking.run(ReadEvents("$", 1, 0)) if after == "$" else EventPage((), after)
        came = True
        while True:
            if waiting is not None and came:
                waiting.begin()
            left_ms = BLOCK_MS if waiting is None else waiting.left_ms
            page = self._blocking.run(ReadEvents(page.after, _PAGE, min(BLOCK_MS, left_ms)))
            yield from page.events
            came = bool(page.events)
            if not came and left_ms == 0:
                return

    def _check_whole(self) -> None:
        if self._queue.shards is not None:
            raise UnsupportedFeature(_STREAMS)

    def close(self) -> None:
        """Close the idle connections of readers."""
        self._blocking.close()


# -- The history of a queue: see `engine.queue.history`.


class History(Part):
    """How the jobs of a queue have ended, for whoever asks later what became of order 7: `queue.history`. Off
    unless switched on, and then kept by the script that ends a job, whoever ends it: a worker, a sweep, an
    admin action. An end is kept once, however often its call was sent."""

    def on(
        self,
        keep: int = 10_000,
        *,
        age_ms: Milliseconds | None = None,
        names: Iterable[str] | None = None,
        payload_bytes: int = 0,
    ) -> None:
        """Keep how jobs end from now on: the last `keep` ends (at most 1,000,000), each for `age_ms` (None:
        for any time), of the jobs of these `names` (None: of all). The sweeps of the workers remove the
        others. With `payload_bytes` (up to 16,384) also payloads of at most so many bytes. It replaces the
        setting that was there; entries stay. Raises as `queue.pause` does."""
        self._queue.do(history.set_history(self._queue.model.names, keep, age_ms, names, payload_bytes))

    def off(self) -> None:
        """Keep no more ends, and delete those that were kept. Raises as `queue.pause` does."""
        self._queue.do(SetHistory(HistoryRule(0)))

    def rule(self) -> HistoryRule | None:
        """What is kept, as `on` was given it; None where nothing is. Raises as `enqueue` does."""
        first, _, _ = history.wanted(self._queue.model.names)
        return history.rule_of(part for _, part in self._queue.each(replace(first, limit=1)))

    def list(self, **options: Unpack[HistoryOptions]) -> PastJobs:
        """How jobs have ended, the latest first, and with them the `rule` as one answer; `options`: see
        HistoryOptions. It reads 500 entries a call until it has found enough, and looks at the latest 100,000
        of the time that is meant. Raises as `enqueue` does."""
        first, before, most = history.wanted(self._queue.model.names, **options)
        # An entry that goes to another shard just now is in both.
        found: set[tuple[int, bytes]] = set()
        settings: builtins.list[HistoryPart] = []
        for shard in self._queue.in_use():
            of_shard: builtins.list[tuple[int, bytes]] = []
            asked: ListHistory | None = first
            looked = 0
            while asked is not None and len(of_shard) < most and looked < history.LOOKED_MAX:
                part: HistoryPart = shard.do(asked)
                settings += [part] if asked is first else []
                of_shard += history.meant(part, before)
                asked, looked = history.following(asked, part), looked + part.read
            found.update(of_shard)
        serializers = self._queue.serializers
        jobs = [history.past_job(*entry, serializers) for entry in sorted(found, reverse=True)[:most]]
        return PastJobs(jobs, history.rule_of(settings))


# -- The results of a queue's jobs, and waiting for them: see `engine.queue.results`.

R = TypeVar("R")


class Results(Part):
    """The results of a queue's jobs: `queue.results`."""

    def __init__(self, queue: QueueCalls) -> None:
        super().__init__(queue)
        self._listeners: dict[str, EndListeners] = {}

    @overload
    def get(self, id: TaskJob[R]) -> Result[R] | None: ...
    @overload
    def get(self, id: str) -> Result[Any] | None: ...
    @overload
    def get(self, id: str, task: TypedJob[R]) -> Result[R] | None: ...
    def get(self, id: str | TaskJob[Any], task: TypedJob[Any] | None = None) -> Result[Any] | None:
        """How the job ended. None: it has not ended, is unknown, or nothing of it is kept any more. A result
        is kept for `result_ttl_ms`; the fact that it finished, a while longer.

        The value is as JSON has it. With the `task` that the job is of, and for what `task.new(...)` made, it
        has the type that its function returns.

        Raises Malformed, also for a value that is not of the task's type, ServerUnavailable, OutcomeUnknown.
        """
        id, task = producing.meant(id, task)
        job = self._queue.model.names.known_id(id)
        found = best(job, [seen for _, seen in self._queue.each(Look(job))])
        return None if found is None else typed(found, task)

    def progress(self, id: str) -> Progress | None:
        """The progress that the handler of this job reported last with `job.progress`, in this run or an
        earlier one; None without any, and when the job has finished. Raises as `get` does."""
        return progress_of(self._queue.do(ReadProgress(self._queue.model.names.known_id(id))))

    @overload
    def wait(self, id: TaskJob[R], *, wait_ms: Milliseconds = 30_000) -> Result[R]: ...
    @overload
    def wait(self, id: str, *, wait_ms: Milliseconds = 30_000) -> Result[Any]: ...
    @overload
    def wait(self, id: str, task: TypedJob[R], *, wait_ms: Milliseconds = 30_000) -> Result[R]: ...
    def wait(
        self,
        id: str | TaskJob[Any],
        task: TypedJob[Any] | None = None,
        *,
        wait_ms: Milliseconds = 30_000,
    ) -> Result[Any]:
        """Wait until this job has ended and return its result. No wake-up is lost, whenever the job ends and
        whatever happens to the connection meanwhile. `task`: as for `get`.

        Raises TimedOut when that takes longer than `wait_ms`, UnknownJob for an id that the server does not
        know, and ServerUnavailable or OutcomeUnknown when the server is away at the end of that time, then up
        to 10 s later.
        """
        id, task = producing.meant(id, task)
        EndListeners.check_may_wait("results.wait", id, "queue.aio.results.wait(...)")
        return typed(self.wait_out(Waiting(self._queue.model.names.known_id(id), wait_ms)), task)

    def wait_out(self, waiting: Waiting) -> Result[Any]:
        """The result of the job of a wait that has begun, as `wait` returns it: for `call` of a queue. In a
        queue with shards it listens in that of the job, which may change meanwhile."""
        if self._queue.shards is None:
            return self._wait_in(self._queue, waiting)
        seen_in: QueueCalls | None = None
        while True:
            try:
                replies = self._queue.each(Look(waiting.job))
                shard = next((shard for shard, seen in replies if seen.state == "pending"), None)
                if shard is not None:
                    seen_in = shard
                    return self._wait_in(shard, waiting)
                found = best(waiting.job, [seen for _, seen in replies])
                if found is not None:
                    return found
                if seen_in is None:
                    raise UnknownJob(f"job {waiting.job}: no shard knows such a job")
            except UnknownJob:
                # It has been moved to another shard, or its end is forgotten.
                if seen_in is None:
                    raise
                seen_in = None
            except AWAY as error:
                waiting.failed(error)

    def _wait_in(self, shard: QueueCalls, waiting: Waiting) -> Result[Any]:
        listeners = self._listeners.get(shard.name)
        if listeners is None:
            listeners = self._listeners.setdefault(shard.name, EndListeners(BlockingCalls(shard)))
        with listeners.listening_for(waiting.job) as listener:
            while True:
                try:
                    found = waiting.take(shard.do(Look(waiting.job, listener.waiter)))
                    if found is not None:
                        return found
                    listener.rest(waiting.block_ms)
                except AWAY as error:
                    waiting.failed(error)

    def close(self) -> None:
        """Close the idle connections of waits."""
        for listeners in self._listeners.values():
            listeners.close()


# -- The workers of a queue: which are alive, since when, and what each has leased, from their heartbeats
# (BQ02 to BQ04, MQ30).
#
# A worker beats every 10 s unless told otherwise, and is taken for dead when three beats in a row have not
# come. Then a sweep looks for leases that it has left behind. The next beat may find it gone from the
# list. A worker that stops takes its leave at once.


class Workers(Part):
    """The workers of a queue, as `queue.workers`."""

    def list(self, *, offset: int = 0, limit: int = WORKERS_MAX) -> list[WorkerInfo]:
        """List the workers, those whose heartbeats expire first: at most `limit` (1 to 1,000) from rank
        `offset` on."""
        first = validate.integer("offset", offset, 0, 2**31)
        return (self._page(first, validate.integer("limit", limit, 1, WORKERS_MAX)))[0]

    def get(self, name: str) -> WorkerInfo | None:
        """Return the worker of this name or incarnation, the latest where several have it; None when there is
        none."""
        wanted = validate.worker_name(name)
        offset, more = 0, True
        while more:
            found, more = self._page(offset, WORKERS_MAX)
            match = [info for info in found if wanted in (info.name, info.incarnation)]
            if match:
                return max(match, key=lambda info: -info.beat_age_ms)
            offset += WORKERS_MAX
        return None

    def set_concurrency(self, name: str | None, concurrency: int | None) -> None:
        """Let the worker of this name, or every worker without a number of its own (None), run so many
        handlers at once: 1 to 1,000, of which it uses no more than it was started with; None: as it was
        started. Workers are told by their next sweep at the latest, and what runs goes on. Raises as
        `Queue.enqueue` does."""
        self._queue.do(admin.set_concurrency(name, concurrency))

    def pause(self, name: str, *, length_ms: Milliseconds = 0) -> None:
        """Let the worker of this name claim and start nothing until `resume`, or for `length_ms`; what runs
        goes on. The queue and its other workers are not touched. Raises as `Queue.enqueue` does."""
        self._queue.do(admin.pause_worker(name, length_ms))

    def resume(self, name: str) -> None:
        """End the pause of a worker."""
        self._queue.do(admin.pause_worker(name, None))

    def _page(self, offset: int, limit: int) -> tuple[builtins.list[WorkerInfo], bool]:
        """Some workers, and whether there may be more: those of one reply; of several shards each process
        once, with what it has in hand in all of them."""
        shards = self._queue.in_use()
        if len(shards) == 1:
            reply: ListedWorkers = shards[0].do(ListWorkers(offset, limit))
            return [*reply.workers], reply.seen >= limit
        found: list[WorkerInfo] = []
        for shard in shards:
            at, more = 0, True
            while more:
                reply = shard.do(ListWorkers(at, WORKERS_MAX))
                found += reply.workers
                at, more = at + WORKERS_MAX, reply.seen >= WORKERS_MAX
        merged = added_workers(found)
        return merged[offset : offset + limit], len(merged) > offset + limit


# -- Locks that processes share: see `engine.queue.admin`.


class Locks(Part):
    """Locks of a queue, as `queue.locks`."""

    def acquire(self, name: str, *, ttl_ms: Milliseconds = 30_000) -> Lock | None:
        """Take a lock for `ttl_ms` (10 to a day); None when somebody holds it. Does not wait. Raises as
        `enqueue` does."""
        return self._queue.carry_out(admin.acquiring(name, ttl_ms))

    def extend(self, lock: Lock, *, ttl_ms: Milliseconds = 30_000) -> Lock:
        """Hold a lock for `ttl_ms` from now on. Raises LeaseLost when it has expired."""
        return self._queue.carry_out(admin.extending(lock, ttl_ms))

    def release(self, lock: Lock) -> bool:
        """Release a lock. Returns False when it was not held any more."""
        return self._queue.carry_out(admin.releasing(lock))


# -- A queue: enqueue, count and administer jobs; its parts are attributes.

_SNAPSHOT_PAGE = 1_000
_SNAPSHOT_PAGES_MAX = 10_000
#: Names of one answer of `stats`.
_STATS_PAGE = 100
_STATS_PAGES_MAX = 1_000
#: Parts of some 100 lanes that `obstacles` looks at.
_LANE_PARTS_MAX = 50


class Queue(QueueCalls):
    """A named queue on one Redis or Valkey server. Safe to share between threads and greenlets;
    connects on first use.

    `model` is the data model, one of `engine.models`: None is Lanes, the engine's own. `url` or `client` says
    where the server is: a url (redis://, rediss:// or unix://, with user and password),
    sentinel://host:port,host:port/service or redis+cluster://host:port,host:port; or a redis.Redis or
    RedisCluster whose addresses, credentials and TLS settings the engine then uses for connections of its
    own. `connect`: times and bounds of those. `prefix` is what all keys begin with, None: as the model has
    it. `durability="replica"`: a call counts as answered when one replica has what it wrote; each send waits
    `replica_wait_ms` for that (rule 8). `payload_bytes_max` is this producer's limit, 512 KiB unless told.
    `lua` replaces the folder of scripts; services do not need it. `observer` is told of every call and run;
    None: the one that the environment names by `IRONCLAIM_OBSERVER`, if it does (docs/guides/observing.md).
    `shards`: the queue is divided into so many, each in a slot of its own, 2 to 256 (Lanes alone;
    docs/guides/shards.md). Raises Malformed for what does not fit, and UnsupportedFeature for shards of
    another model, and for a model whose keys a cluster would scatter.
    """

    def __init__(
        self,
        name: str,
        model: Spec | None = None,
        *,
        url: str = DEFAULT_URL,
        client: redis.Redis | redis.RedisCluster | None = None,
        prefix: str | None = None,
        connect: ConnectOptions | None = None,
        durability: Durable = "server",
        replica_wait_ms: Milliseconds = 1000,
        payload_bytes_max: int = validate.PAYLOAD_BYTES_MAX,
        lua: Path | None = None,
        observer: Observer | None = None,
        serializer: Serializer | None = None,
        serializers: Iterable[Serializer] = (),
        shards: int | None = None,
    ) -> None:
        super().__init__(
            name,
            Endpoint(url, client, connect, asynchronous=False),
            model,
            prefix=prefix,
            durability=durability,
            replica_wait_ms=replica_wait_ms,
            payload_bytes_max=payload_bytes_max,
            lua=lua,
            observer=observer,
            serializer=serializer,
            serializers=serializers,
            shards=shards,
        )
        self._set_up()

    @classmethod
    def like(
        cls, queue: QueueSettings, *, observer: Observer | None = None, connect: ConnectOptions | None = None
    ) -> Queue:
        """A queue with the settings, handlers and hooks of another one, of either kind, and connections of
        its own, with `connect` in place of its options: for the engine's own parts. Raises Malformed where
        the client of the other one cannot be made anew."""
        made = cls.__new__(cls)
        made._take_over(queue, observer)
        made.endpoint = queue.endpoint.of_kind(asynchronous=False).with_options(connect)
        made._set_up()
        return made

    def _set_up(self, driver: SyncDriver | None = None) -> None:
        """What connects, and the parts. `driver`: that of the queue that this is a shard of."""
        scripts, durability = self.model.scripts.values(), self.durability
        self.driver = driver or SyncDriver(
            self.endpoint, scripts, observer=self.observer, clock=self.clock, durability=durability
        )
        self.gathering = Gathering(self.driver, CallMaker(self.model.call, self.model.merges_enqueues))
        #: Jobs that come again and again, by cron or interval.
        self.schedules = Schedules(self)
        #: Who works for it, and locks that processes share.
        self.workers = Workers(self)
        self.locks = Locks(self)
        #: How jobs have ended, and waiting for it.
        self.results = Results(self)
        #: Jobs, to look at and to change by admin actions.
        self.jobs = Jobs(self)
        #: Dead jobs.
        self.dead = Dead(self)
        #: Jobs that need each other, as one.
        self.workflows = Workflows(self)
        #: What happens in it, once that is switched on.
        self.events = Events(self)
        #: How its jobs have ended, for whoever asks later, once that is switched on.
        self.history = History(self)
        self._demand = DemandWatch()
        self._made = {}

    @property
    def aio(self) -> Awaitable:
        """This queue for coroutines: `await queue.aio.results.wait(id)`. It has each call that blocks, to be
        awaited, with the same settings, handlers and hooks. Raises Malformed where a client of redis-py
        cannot be made anew for it."""
        return asynchronous(self)

    def enqueue(
        self,
        name: JobName,
        payload: object,
        *,
        id: str | None = None,
        intended_ns: int | None = None,
        **options: Unpack[JobOptions],
    ) -> Enqueued:
        """Put one job into the queue; it is there once, however often the network makes the engine send it
        (rule 3).

        `payload` is any JSON value of at most `payload_bytes_max` bytes (as JSON has it, a tuple arrives as a
        list and a key as text; two keys that are the same text are refused), or bytes, which arrive
        untouched. A queue with a `serializer` of its own takes what that one can write. `options`: see
        JobOptions. `name` may be a task, with its options; the payload of a name that `job` has registered
        here must fit its function's parameters. `intended_ns` (monotonic) is only told to the observer.

        Returns Enqueued: `created`, or `duplicate` when the id was already there or another job keeps it out.
        `job` is the id of the job that is there. Raises Malformed before any I/O, ServerUnavailable when
        nothing was applied, OutcomeUnknown when that cannot be said. With an `id` of your own the same call
        may be sent again, for it is there once. Without one it could be there twice. An id is known for 20 s
        after its job has finished.
        """
        operation, job = self._drafted(name, payload, id, options)
        sent = self._send_enqueue(operation, validate.intended_ns(intended_ns))
        enqueued = producing.enqueued(sent, operation.name)
        if job is not None:
            self.hooks.announce([job], [enqueued])
        return enqueued

    @overload
    def job(self, name: str | None = None, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    @overload
    def job(
        self, name: str | None = None, *, batch: int, **options: Unpack[TaskOptions]
    ) -> BatchTaskDecorator: ...
    def job(
        self, name: str | None = None, *, batch: int | None = None, **options: Unpack[TaskOptions]
    ) -> Any:
        """Make a typed function a job: `@queue.job("send", attempts=5)` registers it in `handlers` for
        workers, and makes it a Task, with `enqueue`, `call`, `aenqueue` and `acall` of its own parameters,
        `new` and `with_options`. Without a name it has those of its module and function: `shop.mail.send`.
        Jobs that wait under an earlier name run as well where that is one of its `aliases`.

        See `engine.tasks` for such functions, also those with `batch`, and Handlers for `inline`, `batch`,
        `retry_on` and `bury_on`. A task of another queue may be decorated again: it is then a job of both,
        each with the options of its own decorator.

        Raises Malformed for a bad name or option, and for a function whose parameters or whose result cannot
        travel.
        """
        given, names = tasks.handling(options), self.model.names
        if name is not None:
            validate.not_bare(name, '@queue.job() or @queue.job("name")')
            names.job_name(name)
        most = 0 if batch is None else validate.integer("batch", batch, 1, BATCH_MAX)
        checked(cast("Mapping[str, object]", options), own=names.options)
        task: type[TaskFunction[..., Any, Any]] = TaskFunction

        def make(function: Callable[..., Any]) -> Any:
            own = names.job_name(tasks.name_of(function) if name is None else name)
            made = task(self, own, function, cast("JobOptions", options), most)
            return self._register(made, batch, given)

        return TaskDecorator(make) if batch is None else BatchTaskDecorator(make)

    @overload
    def call(
        self,
        name: TypedJob[R],
        payload: object,
        *,
        id: str | None = None,
        wait_ms: Milliseconds = 30_000,
        **options: Unpack[JobOptions],
    ) -> R: ...
    @overload
    def call(
        self,
        name: str,
        payload: object,
        *,
        id: str | None = None,
        wait_ms: Milliseconds = 30_000,
        **options: Unpack[JobOptions],
    ) -> Any: ...
    def call(
        self,
        name: JobName,
        payload: object,
        *,
        id: str | None = None,
        wait_ms: Milliseconds = 30_000,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Enqueue one job, wait until it has ended, and return what its handler returned: as JSON has it, or
        with the type of the function where `name` is a task.

        `options`: see JobOptions; where `unique`, `dedup` or the `id` say that the job is there already, that
        one is waited for. Raises as `enqueue` does; JobFailed when the job is dead, cancelled or discarded;
        NoResult when a task returns something and that is not kept; TimedOut after `wait_ms`: the job goes
        on, and `results.wait` with the error's `job` still finds it.
        """
        instead = "queue.aio.call(...), or of a task acall(...)"
        EndListeners.check_may_wait("call", name if isinstance(name, str) else name.name, instead)
        waiting = Waiting("-", wait_ms)
        enqueued = self.enqueue(name, payload, id=id, **options)
        waiting.job = enqueued.job
        return typed(self.results.wait_out(waiting), name).get()

    def enqueue_many(
        self, jobs: Iterable[NewJob | Mapping[str, Any]], *, intended_ns: int | None = None
    ) -> list[Enqueued]:
        """Put many jobs into the queue, each there once, in this order; what came of each, in the same order.

        `jobs` are NewJob, or mappings with its fields: `{"name": ..., "payload": ...}` and the options of
        `enqueue`; at most 100,000, all with different ids. Give ids to be able to send all of them again. Up
        to 1,000 jobs or 1 MiB go in one piece, all of them or none. More go as several pieces in pipelines,
        and then another producer's jobs may come between the pieces.

        Raises Malformed that names the bad job by its index, before any I/O: then nothing was sent. Raises
        ServerUnavailable and OutcomeUnknown as `enqueue` does; when only some pieces failed, PartlyEnqueued,
        whose `results` tells them apart.
        """
        given = producing.listed(jobs)
        prepared = producing.new_jobs(given, self.hooks.prepare) if self.hooks.some else []
        drafts = self._drafted_many(prepared or given)
        came = self._send_drafts(drafts, validate.intended_ns(intended_ns))
        producing.note_ids(given, came)
        self.hooks.announce(prepared, came if prepared else ())
        return came

    def pause(self, name: JobName | None = None, *, length_ms: Milliseconds = 0) -> None:
        """Claim no jobs of this name or task, or of the whole queue, until `resume`, or for `length_ms`; jobs
        in hand go on. Raises as `enqueue` does."""
        most_ms = validate.DURATION_MS_MAX
        self.do(
            Pause(self.model.names.class_name(name), validate.duration_ms("length_ms", length_ms, 0, most_ms))
        )

    def resume(self, name: JobName | None = None) -> bool:
        """End the pause of a name, or that of the whole queue; they are two pauses. False where there was no
        such pause."""
        reply: Resumed = self.do(Resume(self.model.names.class_name(name)))
        return reply.was_paused

    def set_limit(
        self,
        name: JobName | None = None,
        *,
        key: str | None = None,
        concurrency: int = 0,
        rate: int = 0,
        per_ms: Milliseconds = 0,
        window: Window = "sliding",
    ) -> None:
        """Let at most `concurrency` jobs be in hand at once, and at most `rate` be claimed in `per_ms`; 0 =
        not limited. Either of all jobs of a name, or of all jobs with a `key`, whatever their names.
        `key="*"` is for each key that has no limit of its own (rule 20).

        It counts the claims from now on, and replaces the limit that was there. Shards of a queue divide the
        limit of a name among them, so it must be as large as their number. Raises as `enqueue` does.
        """
        limit = admin.set_limit(
            self.model.names, name, key, concurrency=concurrency, rate=rate, per_ms=per_ms, window=window
        )
        self.do(limit)

    def remove_limit(self, name: JobName | None = None, *, key: str | None = None) -> None:
        """Remove the limit of a name or of a key."""
        self.do(admin.remove_limit(self.model.names, name, key))

    def limits(self) -> list[LimitInfo]:
        """The limits, each with how far it is used up and who fills it: at most 200, first those that jobs
        wait for, and of keys that have the limit of `*` no others. Raises as `enqueue` does."""
        return list((self.obstacles()).limits)

    def obstacles(self, *, one_call: bool = False) -> Obstacles:
        """What holds jobs back: the pauses that are on (200 at most), the limits with who fills them, and
        what each lane waits for and how long already. It reads some 100 lanes a call, and at most 50 times,
        or once with `one_call`: `cut` says that there are more. Raises as `enqueue` does."""
        found: list[Obstacles] = []
        for shard, first in self.each(ListObstacles()):
            parts: list[ObstaclesPart] = [first]
            while parts[-1].cursor and len(parts) < (1 if one_call else _LANE_PARTS_MAX):
                parts.append(shard.do(ListObstacles(parts[-1].cursor)))
            found.append(obstacles_of(parts))
        return added_obstacles(found)

    def set_retention(
        self,
        *,
        done_max: int | None = None,
        done_age_ms: Milliseconds | None = None,
        dead_max: int | None = None,
        dead_age_ms: Milliseconds | None = None,
    ) -> None:
        """Bound what the queue keeps of jobs that have ended: how many finished and dead ones, and for how
        long; None leaves a bound as it is. Unless told these are the last 1,000 finished jobs, and 100,000
        dead ones for 90 days. The sweeps of the workers see to it, the longest dead first. Raises as
        `enqueue` does."""
        self.do(admin.set_retention(done_max, done_age_ms, dead_max, dead_age_ms))

    def clean(self, state: str, *, older_than_ms: Milliseconds = 0, limit: int = 1_000_000) -> int:
        """Remove jobs that are waiting or delayed and were enqueued so long ago, or that have been dead or
        finished for so long; how many there were. In pieces of 500; what comes after its begin stays. Raises
        as `enqueue` does; what was removed until then is gone, and it may simply be called again."""
        return self.carry_out_up_to(lambda most: admin.cleaning(state, older_than_ms, most), limit)

    def drain(self, *, delayed: bool = False) -> int:
        """Remove the jobs that wait, with `delayed` also those that are not due yet; how many there were.
        Jobs in hand go on, dead ones and what is enqueued meanwhile stay. As `clean` otherwise."""
        return sum([shard.carry_out(admin.draining(delayed)) for shard in self.in_use()])

    def obliterate(self, *, force: bool = False) -> bool:
        """Remove the queue: jobs in every state, limits, pauses, counters. False, and nothing is removed,
        while jobs are in hand; with `force` their leases end, and what their workers say of them is refused.

        It removes what was there when it began, in pieces, and a late copy of a call touches no newer job
        (rule 7). Interrupted, it is called again. What expires by itself does so: ids that were known (20 s),
        dedup windows, windows of rates. Raises UnsupportedFeature while the queue is resharded.
        """
        record = self.look_up()
        if record.former is not None:
            raise UnsupportedFeature(f"queue {self.name} is being resharded: obliterate it afterwards")
        gone = [shard.carry_out(admin.obliterating(force)) for shard in self.in_use()]
        if self.shards is not None:
            # Shard 0 has forgotten that it takes no new jobs.
            self.do(SetGate(moved(record.layout.shards)))
        return all(gone)

    def counts(self, *, one_call: bool = False) -> Counts:
        """Jobs in each state. `waiting` also counts those that no worker has a handler for. With more than
        some 500 lanes (names and keys) it takes several calls, and the waiting jobs are not all counted at
        one instant. With `one_call` those of the first 500 are counted, and a `cursor` says that there are
        more."""
        parts: list[Counts] = []
        for shard, part in self.each(Count()):
            waiting = part.waiting
            while part.cursor and not one_call:
                part = shard.do(Count(cursor=part.cursor))
                waiting += part.waiting
            parts.append(replace(part, waiting=waiting))
        return parts[0] if self.shards is None else Count().merge(parts)

    def stats(self) -> list[HandlerTimes]:
        """How long the handlers of each name took, in the order of the names: how many runs succeeded and
        failed, their sum, the longest, and a histogram for percentiles. Workers tell it with their beats,
        every 10 s unless told otherwise, and when they stop. What a killed one has not told is not counted,
        and nothing twice. Kept until the queue is obliterated."""
        found: list[HandlerTimes] = []
        for shard in self.in_use():
            of_shard: dict[str, HandlerTimes] = {}
            for page in range(_STATS_PAGES_MAX):
                reply: ListedRunTimes = shard.do(ListRunTimes(page * _STATS_PAGE, _STATS_PAGE))
                of_shard.update({times.name: times for times in reply.names})
                if len(reply.names) < _STATS_PAGE:
                    break
            found += of_shard.values()
        return added_times(found)

    def metrics(self, *, scaling: Scaling | None = None) -> str:
        """The numbers of `counts`, `stats`, `obstacles` and `workers.list` in Prometheus' text format 0.0.4,
        for a service to serve beside its own: `ironclaim_jobs` by state, `ironclaim_jobs_waiting` by name,
        `ironclaim_oldest_waiting_seconds`, `ironclaim_paused`, `ironclaim_workers` and
        `ironclaim_worker_places`, the counters `ironclaim_jobs_finished_total` and
        `ironclaim_jobs_dead_total`, and the histogram `ironclaim_run_seconds` by name and outcome. An
        autoscaler follows `ironclaim_wanted_workers`, which aims at `scaling` (None: its defaults), or
        `ironclaim_worker_utilisation_ratio`. The rates in it are taken from one call of this queue object to
        the next. `join_metrics` makes one page of several queues. An old keyspace has no waiting jobs by
        name, no oldest one and no pauses."""
        counts, times, workers = self.counts(), self.stats(), self.workers.list()
        try:
            held = self.obstacles()
        except UnsupportedFeature:
            held = None
        aim = scaling or Scaling()
        demand = self._demand.note(counts, times, workers, held, aim)
        return exposition(self.name, counts, times, workers, held, demand=demand, scaling=aim)

    def snapshot(self) -> Snapshot:
        """The ids of the jobs in every state, in pages of 1,000, shard by shard. One page is consistent,
        several are not."""
        states: dict[str, list[tuple[str, int]]] = {}
        srv_us = 0
        for shard in self.in_use():
            for page in range(_SNAPSHOT_PAGES_MAX):
                part: Snapshot = shard.do(Listing(page * _SNAPSHOT_PAGE, _SNAPSHOT_PAGE))
                srv_us = srv_us or part.srv_us
                for state, entries in part.states.items():
                    states.setdefault(state, []).extend(entries)
                if all(len(entries) < _SNAPSHOT_PAGE for entries in part.states.values()):
                    break
            else:
                most = _SNAPSHOT_PAGES_MAX * _SNAPSHOT_PAGE
                raise ScriptFault(f"snapshot: more than {most} jobs in one state")
        return Snapshot(srv_us, states)

    def use_test_clock(self, now_ms: int) -> None:
        """Give the scripts this time instead of the server's. Only on a queue that has never held a job, or
        one that this was called on before; anything else is Malformed. The time lies in 2100 or later: keys
        expire by the server's own clock. So an expiry in its past would delete what the script has just
        written. Raises UnsupportedFeature for a queue with shards."""
        if self.shards is not None:
            raise UnsupportedFeature("the test clock is for queues without shards")
        now = validate.integer("now_ms", now_ms, TEST_CLOCK_LEAST_MS, 2**52)
        if self.model.now_ms is None and not self.do(MakeTestQueue()):
            raise Malformed(
                "queue", self.name, "a queue that has never held a job, to take its time from a test"
            )
        self.model.now_ms = now
        self.driver.clock.learn(now * 1000, time.monotonic_ns())

    def close(self) -> None:
        """Close the idle connections."""
        for queue in (*self._made.values(), self):
            queue.results.close()
            queue.events.close()
        self.driver.close()

    def __enter__(self) -> Queue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def queues(
    url: str = DEFAULT_URL,
    *,
    client: Any = None,
    model: Spec | None = None,
    prefix: str | None = None,
    limit: int = admin.LIMIT_MAX,
) -> list[QueueInfo]:
    """The queues of a model (None: Lanes) that live under a prefix (None: that of the model), last used
    first. Raises ServerUnavailable, and Malformed for bad values."""
    call, endpoint = admin.listing(model, prefix, limit), Endpoint(url, client, asynchronous=False)
    driver = SyncDriver(endpoint, ())
    try:
        return driver.run(call)
    finally:
        driver.close()
