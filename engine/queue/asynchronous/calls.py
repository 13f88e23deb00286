"""The one way of a queue's calls: where each goes among the shards of the queue, and how it is sent.

A whole queue is its own only shard, and asks nobody. The shards of a divided one (docs/guides/shards.md) are
queues of their own that share its driver. What is asked of all of them leaves in one pipeline. The record
of how many there are is read with the first call. Reading it with each look at all shards shows when their
number has changed. An enqueue need not look, because a shard that takes no new jobs says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar, cast

from engine import validate
from engine.errors import EngineError, Malformed, ServerUnavailable, UnsupportedFeature
from engine.ops.admin import Administered, NoteQueue, ReadShards, SetShards
from engine.ops.base import BLOCK_MS, Call, DeadlineBound, Operation
from engine.ops.jobs import Enqueue, Enqueued, EnqueueMany
from engine.ops.looks import LISTED, Inspect, Inspected
from engine.queue import producing, sharding
from engine.queue.producing import Steps
from engine.queue.settings import QueueSettings
from engine.queue.sharding import PLAIN, ShardRecord
from engine.redis.async_driver import AsyncDriver
from engine.redis.exchange import PIPELINE_MAX, Sent
from engine.redis.gathering import AsyncGathering

#: Looks at a record that changes all the time, or at a job that is on its way to another shard.
_TRIES = 50
T = TypeVar("T")


class AsyncQueueCalls(QueueSettings):
    """A queue's settings, the driver that runs its calls, and its shards."""

    driver: AsyncDriver
    gathering: AsyncGathering
    _noted = False
    _known: ShardRecord | None = None
    _made: dict[str, Self]

    async def do(self, operation: Operation) -> Any:
        """Carry out an operation where it goes, and return its reply; for the engine's own parts. Raises
        ServerUnavailable, OutcomeUnknown, and UnsupportedFeature, before any I/O, for one that the model
        lacks."""
        if self.shards is not None:
            if operation.goes != "home":
                return await self._do_in_shards(operation)
            await self.record()
        if isinstance(operation, DeadlineBound):
            reply = (await self.send_in_time(operation)).reply
            if isinstance(reply, Administered):
                reply.check_done()
            return reply
        async with self.driver.permits:
            return await self.driver.run(self.model.call(operation))

    async def carry_out(self, steps: Steps[T], intended_ns: int | None = None) -> T:
        """Run steps to their end and return their result; for the engine's own parts. From where they have
        found a job they go on in its shard."""
        answer: Any = None
        place = self
        try:
            while True:
                asked = steps.send(answer)
                if isinstance(asked, Operation):
                    if place.shards is not None and asked.goes == "find":
                        place = await place._holder(asked)
                    answer = await place.do(asked)
                else:
                    async with self.driver.permits:
                        answer = await self.driver.send_many(self._calls(asked), intended_ns)
        except StopIteration as end:
            return end.value

    async def carry_out_up_to(self, steps: Callable[[int], Steps[int]], most: int) -> int:
        """Run steps that do something at most so many times, and count it, in one shard in use after the
        other; for the engine's own parts."""
        done = 0
        for shard in await self.in_use():
            # The steps check what the caller has given.
            done += await shard.carry_out(steps(most - done if done else most))
            if done >= most:
                break
        return done

    async def send_in_time(self, operation: DeadlineBound) -> Sent:
        """Stamp an operation and send it; once more when its deadline was reckoned wrongly (rule 3). Of a
        divided queue to shard 0. For the engine's own parts. Raises as `do` does."""
        self.model.refuse(operation)
        if self.shards is not None:
            await self.record()
        async with self.driver.permits:
            await self._contact()
            sent = await self.driver.send(self.model.call(operation.stamped(self.driver.not_after_ms())))
            if sent.came_late:
                sent = await self.driver.send(self.model.call(operation.stamped(self.driver.not_after_ms())))
        return sent

    # -- enqueues

    async def _send_enqueue(self, job: Enqueue, intended_ns: int | None) -> Sent:
        """Send the enqueue of one job as `send_in_time` does, perhaps together with those of other
        callers."""
        if self.shards is not None:
            return await self._send_to_its_shard(job, intended_ns)
        self.model.refuse(job)
        if not (self._noted and self.driver.clock.known):
            async with self.driver.permits:
                await self._contact()
        sent = await self.gathering.send(job, intended_ns)
        if sent.reply.result != "created" and sent.came_late:
            sent = await self.gathering.send(job, intended_ns)
        return sent

    async def _send_to_its_shard(self, job: Enqueue, intended_ns: int | None) -> Sent:
        sharding.check_job(job)
        if not self._noted:
            async with self.driver.permits:
                await self._note_use()
        for _ in range(_TRIES):
            options, record = job.options, await self.record()
            for name in record.homes(self.name, options.key, options.unique, job.job):
                sent = await self.shard(name)._send_enqueue(job, intended_ns)
                if sent.reply.result != "moved":
                    return sent
            await self.look_up()
        raise ServerUnavailable(
            f"the shards of queue {self.name} change all the time: job {job.job} was not enqueued"
        )

    async def _send_drafts(self, drafts: list[Enqueue], intended_ns: int | None) -> list[Enqueued]:
        """Enqueue jobs that were checked."""
        if self.shards is not None:
            for draft in drafts:
                sharding.check_job(draft)
        if drafts:
            async with self.driver.permits:
                await self._contact()
        if self.shards is None:
            return await self.carry_out(producing.enqueue_many(drafts), intended_ns)
        unsent = ServerUnavailable("not sent: the shards change all the time")
        results: list[Enqueued | EngineError] = [unsent] * len(drafts)
        left = list(range(len(drafts)))
        for _ in range(_TRIES):
            for layout in (await self.record()).layouts if left else ():
                groups: dict[str, list[int]] = {}
                for at in left:
                    job, options = drafts[at].job, drafts[at].options
                    home = layout.name(self.name, layout.home(options.key, options.unique, job))
                    groups.setdefault(home, []).append(at)
                came = await self._send_groups(
                    {name: [drafts[at] for at in group] for name, group in groups.items()}, intended_ns
                )
                for name, group in groups.items():
                    for at, result in zip(group, came[name], strict=True):
                        results[at] = unsent if getattr(result, "result", "") == "moved" else result
                left = [at for at in left if results[at] is unsent]
            if not left:
                break
            await self.look_up()
        return producing.concluded(results)

    async def _send_groups(
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
            outcomes = await self._outcomes([call for calls in asked.values() for call in calls], intended_ns)
            for name, calls in asked.items():
                answers[name], outcomes = outcomes[: len(calls)], outcomes[len(calls) :]
        return came

    def _calls(self, operations: Sequence[Enqueue | EnqueueMany]) -> list[Call[Any]]:
        """The calls of operations that leave now in one pipeline."""
        not_after_ms = self.driver.not_after_ms()
        return [self.model.call(operation.stamped(not_after_ms)) for operation in operations]

    async def _contact(self) -> None:
        """Learn the server's time, and list the queue there; only the first call has to."""
        await self.driver.server_now_ms()
        if not self._noted:
            await self._note_use()

    async def _note_use(self) -> None:
        """List the queue among those of its server, the first time that this process puts something into it
        or works for it. A failure concerns nobody here."""
        if not self._noted and self.model.now_ms is None:
            self._noted = True
            with suppress(EngineError):
                await self.driver.send(self.model.call(NoteQueue(await self.driver.server_now_ms())))
            await self.note_era()

    async def note_era(self) -> None:
        """Note the server before the first write of this process, or begin of a worker; for the engine's own
        parts. A failure concerns nobody here. The server must have been met."""
        if self.era is not None and not self.era.used and self.model.now_ms is None:
            noting = self.era.begin()
            with suppress(EngineError):
                if noting is not None:
                    await self.driver.send(self.model.call(noting))

    # -- shards

    async def _do_in_shards(self, operation: Operation) -> Any:
        """Carry out an operation in the shards that it goes to."""
        if operation.goes == "find":
            return await (await self._holder(operation)).do(operation)
        if operation.goes == "all" and isinstance(operation, DeadlineBound):
            parts = await self._parts(operation)
            return operation.merge([await self.shard(name).do(part) for name, part in parts])
        if operation.goes == "all":
            return operation.merge([reply for _, reply in await self.each(operation)])
        if isinstance(operation, Enqueue):
            return (await self._send_enqueue(operation, None)).reply
        raise UnsupportedFeature(
            f"{type(operation).__name__}: the shards of queue {self.name} answer each for itself"
        )

    async def _parts(self, operation: Operation) -> list[tuple[str, Operation]]:
        """What each shard in use is sent of an operation that goes to all."""
        # What cannot be divided is refused before any call.
        operation.part(0, cast("int", self.shards), lambda key: 0)
        parts: dict[str, Operation] = {}
        for layout in (await self.look_up()).layouts:
            home = partial(layout.home, unique="", job="")
            for number, name in enumerate(layout.names(self.name)):
                part = operation.part(number, layout.shards, home)
                if part is not None:
                    parts[name] = part
        return list(parts.items())

    async def each(self, operation: Operation) -> list[tuple[Self, Any]]:
        """Ask all shards in use at once, shard 0 first; for the engine's own parts. Raises the first
        failure."""
        if self.shards is None:
            return [(self, await self.do(operation))]
        for _ in range(_TRIES):
            # The replies belong to the record that the shards were taken from; another thread may learn a
            # newer one meanwhile.
            record = await self.record()
            shards = [self.shard(name) for name in record.names(self.name)]
            calls = [shard.model.call(operation) for shard in shards]
            text, *replies = await self._pipeline([self.model.call(ReadShards()), *calls])
            if text == record.text():
                return list(zip(shards, replies, strict=True))
            await self.look_up()
        raise ServerUnavailable(f"the record of the shards of queue {self.name} changes all the time")

    async def _pipeline(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """The replies of calls that leave together. Raises the first failure."""
        outcomes = await self._outcomes(calls)
        for outcome in outcomes:
            if isinstance(outcome, EngineError):
                raise outcome
        return [cast("Sent", outcome).reply for outcome in outcomes]

    async def _outcomes(
        self, calls: Sequence[Call[Any]], intended_ns: int | None = None
    ) -> list[Sent | EngineError]:
        outcomes: list[Sent | EngineError] = []
        async with self.driver.permits:
            for at in range(0, len(calls), PIPELINE_MAX):
                outcomes += await self.driver.send_many(calls[at : at + PIPELINE_MAX], intended_ns)
        return outcomes

    async def find(self, id: str) -> Self | None:
        """The shard that has a job; of an ended one also that which still knows its id. A whole queue is not
        asked."""
        if self.shards is None:
            return self
        job = validate.known_id(id)
        for _ in range(_TRIES):
            found: dict[str, Self] = {}
            for shard, reply in await self.each(Inspect((job,), whole=False)):
                found.setdefault(cast("Inspected", reply).items[0].state, shard)
            open_states = [state for state in found if state in LISTED[:-1]]
            ended = [state for state in found if state not in ("gone", "moving")]
            if open_states or ended or "moving" not in found:
                # One that still is to run before one of the same id and another key that has ended.
                return next((found[state] for state in (*open_states, *ended)), None)
        return None

    async def _holder(self, operation: Any) -> Self:
        """The shard that has the job of an operation. Where none has, the last one, which says that it knows
        no such job: those that jobs are on their way from come first."""
        (job,) = getattr(operation, "jobs", None) or (operation.job,)
        return await self.find(job) or self.shard((await self.record()).names(self.name)[-1])

    async def record(self) -> ShardRecord:
        """How many shards there are, as it was when this was last asked; for the engine's own parts. The
        first client writes it. Raises Malformed for another number than this client has."""
        return self._known or await self.look_up()

    async def look_up(self) -> ShardRecord:
        """Read the record anew; nothing is read for a whole queue."""
        if self.shards is None:
            return PLAIN
        async with self.driver.permits:
            text: str = await self.driver.run(self.model.call(ReadShards()))
            if not text:
                first, closed = sharding.first_record(self.shards).text(), sharding.moved(self.shards)
                made = await self.driver.run(self.model.call(SetShards("", first, closed, fresh=True)))
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

    async def in_use(self) -> list[Self]:
        """All shards that may hold jobs, shard 0 first; of a whole queue itself. For the engine's own
        parts."""
        if self.shards is None:
            return [self]
        return [self.shard(name) for name in (await self.look_up()).names(self.name)]

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

    def _set_up(self, driver: AsyncDriver | None = None) -> None:
        """What connects, and the parts. `driver`: that of the queue that this is a shard of."""
        raise NotImplementedError


class AsyncPart:
    """A part of a queue, such as `queue.jobs`."""

    def __init__(self, queue: AsyncQueueCalls) -> None:
        self._queue = queue


class AsyncBlockingCalls:
    """The calls of a part that block on the server: waits for results, readers of events. They have a driver
    of their own, whose connections wait longer for a reply, so that no other call queues up behind them. It
    connects with the first one."""

    def __init__(self, queue: AsyncQueueCalls) -> None:
        self.model = queue.model
        self._driver = AsyncDriver(queue.endpoint, (), clock=queue.driver.clock, block_ms_max=BLOCK_MS)

    async def run(self, operation: Operation) -> Any:
        """Run an operation that blocks for at most `BLOCK_MS`, and return its reply. Raises
        ServerUnavailable, OutcomeUnknown."""
        return await self._driver.run(self.model.call(operation))

    async def close(self) -> None:
        """Close the idle connections."""
        await self._driver.close()
