"""The schedules of a queue, `queue.schedules`: jobs that come again and again, by a cron expression or an interval (rule 24).

Any worker or `Scheduler` of the queue ticks them; however many there are, a tick makes one job, whose id is
`cron:<schedule>:<tick in ms>`. The server's clock decides. When it steps back, a schedule waits until it has caught up: no
tick comes twice.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Unpack

from engine import validate
from engine.ops import schedules
from engine.ops.jobs import Enqueued
from engine.ops.schedules import ListSchedules, Missed, Overlap, SchedulePage
from engine.options import JobOptions
from engine.parameters import JobName
from engine.queue import administering, producing, scheduling
from engine.queue.asynchronous.calls import AsyncPart
from engine.queue.scheduling import PutResult, Schedule, schedule_of, template
from engine.validate import Milliseconds

_PAGE = 100


class AsyncSchedules(AsyncPart):
    """The schedules of a queue."""

    async def put(
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
        """Define a schedule, or change it. Putting the same again changes nothing, so a service may put its schedules at each
        start. `job_name` may also be a task, with its options; a task without a payload is called without arguments,
        else with `task.payload(...)`.

        One of three says when it ticks: `cron`, in the dialect of crontab(5), five fields (minute, hour, day, month, weekday), or
        six of which the *first* is the second; `every_ms`, at least 100; or `months`, on the day and at the time of day of the
        start (31 January, 28 February, 31 March). `zone` is an IANA name, for cron and months. Nothing ticks before `start_ms`
        (server time), from which intervals count without drift; 0: from now. A time of day that the clocks skip ticks once right
        after the gap, one that comes twice ticks the first time; a cron expression for every hour follows the clock on the wall
        instead.

        Where nobody saw the first due tick for more than `late_ms`, `missed="once"` runs the last one for all, `"all"` runs each,
        `"skip"` those that are not late; at most the last 100 run, and each of the others counts as missed. `overlap="skip"`
        makes no job while the one before is waiting or running. `enabled=None` leaves it as it is; a new one is. `options` are
        those of `enqueue` that travel with the job: no delay and no dedup.

        Returns `new`, `changed` or `same`; with the same timing the next tick stays. Raises as `enqueue` does.
        """
        timing, policy = scheduling.timing(cron, zone, every_ms, months, start_ms), scheduling.policy(missed, late_ms, overlap)
        job = template(self._queue, job_name, payload, options)
        return await self._queue.carry_out(scheduling.putting(self._queue.model, name, timing, policy, job, enabled))

    async def remove(self, name: str) -> bool:
        """Remove a schedule; its jobs stay. Returns False when there is none of this name."""
        return await self._queue.carry_out(scheduling.removing(self._queue.model, name))

    async def enable(self, name: str) -> bool:
        """Let a schedule tick again, from its next tick on. Returns False when there is none of this name."""
        return await self._queue.carry_out(scheduling.enabling(self._queue.model, name, True))

    async def disable(self, name: str) -> bool:
        """Stop the ticks of a schedule until it is enabled; its jobs stay. Returns False when there is none of this name."""
        return await self._queue.carry_out(scheduling.enabling(self._queue.model, name, False))

    async def run_now(self, name: str) -> Enqueued | None:
        """Enqueue one more of its jobs now, beside its ticks, whose state it leaves as it is. None when there is none of this
        name."""
        model = self._queue.model
        schedule = model.names.schedule(name)
        page: SchedulePage = await self._run(ListSchedules(schedule))
        if not page.items:
            return None
        job, nonce = model.read_template(page.items[0].job), os.urandom(8)
        id = model.schedule_id(schedule, f"now-{administering.new_op_id()}")
        run = producing.Draft(id, job.name, job.payload, job.options)
        return await self._queue.carry_out(producing.enqueuing(partial(run.operation, nonce)))

    async def get(self, name: str) -> Schedule | None:
        """Return a schedule with its state; None when there is none of this name."""
        page: SchedulePage = await self._run(ListSchedules(self._queue.model.names.schedule(name)))
        return schedule_of(page.items[0], self._queue.model, self._queue.serializers) if page.items else None

    async def list(self, *, offset: int = 0, limit: int = schedules.SCHEDULES_MAX) -> tuple[Schedule, ...]:
        """The schedules, by next tick, those that do not tick last: at most `limit` (all) from rank `offset` on. Pages of 100:
        one is one instant, several are not."""
        first = validate.integer("offset", offset, 0, 2**31)
        end = first + validate.integer("limit", limit, 1, schedules.SCHEDULES_MAX)
        found: dict[str, Schedule] = {}
        for rank in range(first, end, _PAGE):
            page: SchedulePage = await self._run(ListSchedules("", rank, min(_PAGE, end - rank)))
            # A schedule that has ticked between two pages may come twice.
            for stored in page.items:
                found[stored.schedule] = schedule_of(stored, self._queue.model, self._queue.serializers)
            if not page.more:
                break
        return tuple(found.values())
