"""The jobs of a queue, to look at and to change by admin actions: `queue.jobs`, `queue.dead` (rules 7 and 26)
and `queue.workflows`."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Unpack

from engine import validate
from engine.ops.admin import AdminAction, Alter, Altered
from engine.ops.looks import LISTED, Count, Explain, Explained, Inspect, Inspected, NameCounts, Page, Paged
from engine.queue import admin, looks, workflows
from engine.queue.asynchronous.calls import AsyncPart, AsyncQueueCalls
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
from engine.queue.producing import JOBS_MAX
from engine.queue.why import Why, why
from engine.queue.workflows import Workflow, WorkflowChange
from engine.validate import Milliseconds

#: Jobs of one call that counts names: reading one takes the server up to 10 us.
_NAMES_PAGE = 250


class AsyncJobsPart(AsyncPart):
    """The base of the parts that list jobs: pages of one shard, and of all shards together."""

    async def _select(self, state: str, listing: PageRequest) -> builtins.list[JobInfo]:
        """One page of the jobs in a state that are meant, in all shards; those that wait come shard by shard,
        the others by time."""
        shards = await self._queue.in_use()
        if len(shards) == 1:
            return await self._select_in(shards[0], state, listing)
        first, most = listing.offset, listing.offset + listing.limit
        found: list[JobInfo] = []
        for shard in shards:
            at = 0
            while at < most:
                piece = replace(listing, offset=at, limit=min(validate.PAGE_MAX, most - at))
                page = await self._select_in(shard, state, piece)
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

    async def _select_in(
        self, shard: AsyncQueueCalls, state: str, listing: PageRequest
    ) -> builtins.list[JobInfo]:
        """One page of the jobs of a shard that are meant; of all of them without looking at others."""
        wanted, first, most = listing.wanted, listing.offset, listing.offset + listing.limit
        if wanted.everything:
            page: Paged = await shard.do(Page(state, first, listing.limit, listing.newest_first))
            return await self._look(shard, page.jobs, state)
        found: list[JobInfo] = []
        looked = 0
        while looked < looks.LOOKED_MAX and len(found) < most:
            page = await shard.do(Page(state, looked, looks.PIECE, listing.newest_first))
            infos = await self._look(shard, page.jobs, state)
            found += [info for info in infos if wanted.matches(info, page.srv_us // 1000)]
            looked += page.seen
            if page.seen < looks.PIECE:
                break
        return found[first:most]

    async def _page(self, state: str, listing: PageRequest) -> JobPage:
        """The jobs at these places that are meant; of one shard in two calls."""
        shards = await self._queue.in_use()
        if len(shards) > 1:
            infos = await self._select(state, replace(listing, wanted=Selection()))
            now_ms, looked = await self._queue.driver.server_now_ms(), len(infos)
            meant = tuple(info for info in infos if listing.wanted.matches(info, now_ms))
            return JobPage(
                now_ms * 1000, meant, looked, listing.offset + looked if looked == listing.limit else None
            )
        (shard,) = shards
        page: Paged = await shard.do(Page(state, listing.offset, listing.limit, listing.newest_first))
        if not page.jobs:
            return JobPage(page.srv_us, (), 0, None)
        reply: Inspected = await shard.do(Inspect(page.jobs))
        found = tuple(
            info
            for info in self._still(state, page.jobs, reply)
            if listing.wanted.matches(info, reply.srv_us // 1000)
        )
        # A reply ends after 1 MiB of payloads: the next page goes on behind what was read.
        looked = len(reply.items)
        more = looked < len(page.jobs) or page.seen == listing.limit
        return JobPage(reply.srv_us, found, looked, listing.offset + looked if more else None)

    async def _look(
        self, shard: AsyncQueueCalls, jobs: tuple[str, ...], state: str
    ) -> builtins.list[JobInfo]:
        """Read these jobs of a shard; those that have left the state meanwhile are left out."""
        found: list[JobInfo] = []
        while jobs:
            reply: Inspected = await shard.do(Inspect(jobs[: admin.PIECE]))
            found += self._still(state, jobs, reply)
            jobs = jobs[len(reply.items) :]
        return found

    def _still(self, state: str, jobs: tuple[str, ...], reply: Inspected) -> Iterator[JobInfo]:
        """The jobs of a reply that are in the state; it may have fewer than were asked for."""
        for job, looked in zip(jobs, reply.items, strict=False):
            now = state_of(looked, reply.srv_us)
            if now == state or (now, state) in (("stuck", "active"), ("skipped", "finished")):
                yield job_info(self._queue.model, self._queue.serializers, job, looked, reply.srv_us)


class AsyncJobs(AsyncJobsPart):
    """The jobs of one queue."""

    async def get(self, id: str) -> JobInfo | None:
        """Return what is known of a job; None when the server does not know it, or no longer. Raises as
        `enqueue` does."""
        job = self._queue.model.names.known_id(id)
        reply: Inspected = await self._queue.do(Inspect((job,)))
        looked = reply.items[0]
        return (
            None
            if looked.state == "gone"
            else job_info(self._queue.model, self._queue.serializers, job, looked, reply.srv_us)
        )

    async def state(self, id: str) -> JobState:
        """The state of a job: waiting, delayed, active, stuck (its lease has ended, and no sweep has taken it
        yet), dead, finished, cancelled, discarded, or gone. Of an ended job it is known for 20 s, and of the
        last 1,000 finished ones (`set_retention`)."""
        reply: Inspected = await self._queue.do(Inspect((self._queue.model.names.known_id(id),), whole=False))
        return state_of(reply.items[0], reply.srv_us)

    async def why(self, id: str) -> Why:
        """Why a job does not run, or what else it does, as a sentence: `print(queue.jobs.why(id))` says
        `waits for the limit of key acme: 2 of 2 in hand, by w1 and w3`. It knows of pauses, limits, delays,
        parents, the last error of a dead job, and of workers what their heartbeats have told, at most 200 of
        them. Raises as `enqueue` does."""
        job = self._queue.model.names.known_id(id)
        found: Explained = await self._queue.do(Explain(job))
        return why(job, found)

    async def list(self, state: str, **options: Unpack[ListOptions]) -> list[JobInfo]:
        """One page of the jobs that are waiting, delayed, active, stuck, dead or finished, at most 1,000.
        `options`: see ListOptions. What changes its state between the page and the look at it is left out.

        With a name, a key, an error or an age `offset` counts jobs that are meant, and of the first 10,000 of
        the state those are found."""
        listing = looks.listing(validate.PAGE_MAX, names=self._queue.model.names, **options)
        return await self._select(admin.check_state(state, LISTED), listing)

    async def page(self, state: str, **options: Unpack[ListOptions]) -> JobPage:
        """What `list` finds among `limit` places of a state (1 to 250) from `offset` on, in two calls however
        many jobs there are. So a page may be short, or empty, and `next` is the `offset` of the one after it,
        None where there is none."""
        listing = looks.listing(looks.PLACES_MAX, names=self._queue.model.names, **options)
        return await self._page(admin.check_state(state, LISTED), listing)

    async def counts_by_name(self) -> dict[str, NameCounts]:
        """Jobs of each name that wait, are delayed, active and dead; '' stands for those that nobody can
        read. It reads 250 jobs a call, the waiting ones by lane. So with many delayed or dead jobs it takes
        its time, and is no instant."""
        counts: dict[str, dict[str, int]] = {}
        for shard, state in itertools.product(await self._queue.in_use(), NameCounts._fields):
            offset, cursor = 0, ""
            while True:
                page: Paged = await shard.do(Page(state, offset, _NAMES_PAGE, names=True, cursor=cursor))
                for name, count in page.names.items():
                    of_name = counts.setdefault(name, {})
                    of_name[state] = of_name.get(state, 0) + count
                offset, cursor = offset + page.seen, page.cursor
                if page.seen < _NAMES_PAGE and not cursor:
                    break
        return {name: NameCounts(**of_name) for name, of_name in sorted(counts.items())}

    async def cancel(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End a job that waits, is delayed or runs. A running one loses its token at once: what its worker
        still says about it is refused. Its handler learns of it within a second (`Job.cancelled`,
        `Job.cancelled_by_hand`): a coroutine is cancelled, a child process killed. Where the worker's control
        connection is away, that is at the next renewal.

        With `expected_state` only if it is in that state; without it is looked at first, and again when it
        changes meanwhile. Returns Altered: `done`, or `changed` with the state that keeps it from being done.
        Its id is known for 20 s."""
        return await self._queue.carry_out(
            admin.altering(self._queue.model.names, "cancel", id, expected_state)
        )

    async def run_now(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End the delay of a job: it is claimable at once, at its place among its equals. As `cancel`, for
        delayed jobs and those that wait for another attempt."""
        return await self._queue.carry_out(
            admin.altering(self._queue.model.names, "run_now", id, expected_state)
        )

    async def remove(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End a job that is waiting, delayed or dead, or take a finished one from the list with its result.
        As `cancel`; it never touches one that runs."""
        return await self._queue.carry_out(
            admin.altering(self._queue.model.names, "remove", id, expected_state)
        )


class AsyncDead(AsyncJobsPart):
    """The dead jobs of one queue. They stay until they are requeued or discarded, or are too many or too old
    (`set_retention`; 100,000 and 90 days unless told)."""

    async def list(self, **options: Unpack[ListOptions]) -> list[JobInfo]:
        """One page of the dead jobs, at most 1,000, the longest dead first: `last_error` is why, `errors` its
        runs with their stack traces. A corrupt one is among them, with `unreadable` and its bytes. `options`:
        see ListOptions; ages are from their deaths. Raises as `enqueue` does."""
        return await self._select(
            "dead", looks.listing(validate.PAGE_MAX, names=self._queue.model.names, **options)
        )

    async def requeue(self, id: str, *, with_children: bool = False) -> Altered:
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
        return await self._queue.carry_out(
            workflows.requeueing(model, id)
            if validate.truth("with_children", with_children)
            else admin.altering(model.names, "requeue", id, None)
        )

    async def requeue_all(
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
        return await self._alter_all("requeue", wanted, limit)

    async def discard_all(
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
        return await self._alter_all("discard", wanted, limit)

    async def by_error(self, *, limit: int = looks.LOOKED_MAX) -> ErrorGroups:
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
            page = await self._page("dead", listing)
            # What dies meanwhile moves the others on, so that they come again.
            found |= {job.id: job for job in page.jobs}
            offset, left, srv_us = page.next, left - page.looked, page.srv_us
        return ErrorGroups(looks.error_groups(found.values()), len(found), offset is not None, srv_us)

    async def _alter_all(self, action: AdminAction, wanted: Selection, limit: object) -> int:
        most = validate.integer("limit", limit, 1, validate.DEAD_MAX)
        done = 0
        for shard in await self._queue.in_use():
            done += await self._alter_in(shard, action, wanted, most - done) if done < most else 0
        return done

    async def _alter_in(
        self, shard: AsyncQueueCalls, action: AdminAction, wanted: Selection, most: int
    ) -> int:
        # A job that dies again meanwhile is not changed twice.
        left: int = (await shard.do(Count())).dead
        offset = done = 0
        while left > 0 and done < most:
            page: Paged = await shard.do(Page("dead", offset, min(admin.PIECE, left, most - done)))
            if not page.jobs:
                break
            jobs = page.jobs
            if not wanted.everything:
                now_ms = page.srv_us // 1000
                jobs = tuple(
                    info.id for info in await self._look(shard, jobs, "dead") if wanted.matches(info, now_ms)
                )
            items = (await shard.do(Alter(action, jobs, "dead"))).items if jobs else ()
            changed = sum(item.done for item in items)
            done += changed
            left -= len(page.jobs)
            offset += len(page.jobs) - changed
        return done

    async def discard(self, id: str) -> Altered:
        """End a dead job for good, also a corrupt one."""
        return await self._queue.carry_out(admin.altering(self._queue.model.names, "discard", id, None))

    async def clear(self, *, older_than_ms: Milliseconds = 0, limit: int = 1_000_000) -> int:
        """Discard the jobs that have been dead for so long, in pieces; how many there were."""
        return await self._queue.carry_out_up_to(
            lambda most: admin.cleaning("dead", older_than_ms, most), limit
        )


class AsyncWorkflows(AsyncPart):
    """Jobs that need each other, as one (Lanes alone): each call names any of them."""

    async def get(self, id: str, *, limit: int = workflows.SHOWN) -> Workflow | None:
        """The jobs above and below one that are still known, at most `limit` of them (100,000), parents
        first; `more` says that there are others. None where nothing is known of the job.

        A job that has ended is among them while one that is there needs it, or was buried with it. Raises
        UnsupportedFeature for another format than Lanes."""
        return await self._queue.carry_out(workflows.looking(self._queue.model, id, limit))

    async def cancel(self, id: str, *, limit: int = JOBS_MAX) -> WorkflowChange:
        """Cancel all jobs of it that have not ended, children before their parents, in pieces of 100; see
        `jobs.cancel` for one that runs. `left` are those that have not ended all the same.

        Cut off half way, children are cancelled and their parents go on; the same call, with a job that is
        still known, goes on. Raises as `get` does."""
        return await self._queue.carry_out(workflows.cancelling(self._queue.model, id, limit))

    async def retry(self, id: str, *, limit: int = JOBS_MAX) -> WorkflowChange:
        """Requeue all jobs of it that are dead, parents before their children, in pieces of 100. One that was
        buried with a parent waits for it again, as with `dead.requeue`. `left` are those that stay dead, as
        there.

        Cut off half way, parents run and some of their children are dead; the same call goes on. Raises as
        `get` does."""
        return await self._queue.carry_out(workflows.retrying(self._queue.model, id, limit))
