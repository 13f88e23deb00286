# Generated from engine/queue/asynchronous/jobs.py by "make generate"; do not edit.
"""The jobs of a queue, to look at and to change by admin actions: `queue.jobs` and `queue.dead` (rules 7 and 26)."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Unpack

from engine import validate
from engine.ops.admin import Altered
from engine.ops.looks import Count, Explain, Explained, Inspect, Inspected, NameCounts, Page, Paged
from engine.queue import altering, clearing, selecting
from engine.queue.job_info import JobInfo, JobPage, JobState, job_info, state_of
from engine.queue.selecting import Listing, ListOptions
from engine.queue.synchronous.calls import Part
from engine.queue.why import Why, why
from engine.validate import Milliseconds

#: Jobs of one call that counts names: reading one takes the server up to 10 us.
_NAMES_PAGE = 250


class JobsPart(Part):
    """The base of the parts that list jobs."""

    def _select(self, state: str, listing: Listing) -> builtins.list[JobInfo]:
        """One page of the jobs in a state that are meant; of all of them without looking at others."""
        wanted, first, most = listing.wanted, listing.offset, listing.offset + listing.limit
        if wanted.everything:
            page: Paged = self._run(Page(state, first, listing.limit, listing.newest_first))
            return self._look(page.jobs, state)
        found: list[JobInfo] = []
        looked = 0
        while looked < selecting.LOOKED_MAX and len(found) < most:
            page = self._run(Page(state, looked, selecting.PIECE, listing.newest_first))
            infos = self._look(page.jobs, state)
            found += [info for info in infos if wanted.matches(info, page.srv_us // 1000)]
            looked += page.seen
            if page.seen < selecting.PIECE:
                break
        return found[first:most]

    def _page(self, state: str, listing: Listing) -> JobPage:
        """The jobs at these places that are meant, in two calls."""
        page: Paged = self._run(Page(state, listing.offset, listing.limit, listing.newest_first))
        if not page.jobs:
            return JobPage(page.srv_us, (), 0, None)
        reply: Inspected = self._run(Inspect(page.jobs))
        found = tuple(info for info in self._still(state, page.jobs, reply) if listing.wanted.matches(info, reply.srv_us // 1000))
        # A reply ends after 1 MiB of payloads: the next page goes on behind what was read.
        looked = len(reply.items)
        more = looked < len(page.jobs) or page.seen == listing.limit
        return JobPage(reply.srv_us, found, looked, listing.offset + looked if more else None)

    def _look(self, jobs: tuple[str, ...], state: str) -> builtins.list[JobInfo]:
        """Read these jobs; those that have left the state meanwhile are left out."""
        found: list[JobInfo] = []
        while jobs:
            reply: Inspected = self._run(Inspect(jobs[: altering.PIECE]))
            found += self._still(state, jobs, reply)
            jobs = jobs[len(reply.items) :]
        return found

    def _still(self, state: str, jobs: tuple[str, ...], reply: Inspected) -> Iterator[JobInfo]:
        """The jobs of a reply that are in the state; it may have fewer than were asked for."""
        for job, looked in zip(jobs, reply.items, strict=False):
            now = state_of(looked, reply.srv_us)
            if now == state or (now, state) == ("stuck", "active"):
                yield job_info(self._queue.model, self._queue.serializers, job, looked, reply.srv_us)


class Jobs(JobsPart):
    """The jobs of one queue."""

    def get(self, id: str) -> JobInfo | None:
        """Return what is known of a job; None when the server does not know it, or no longer. Raises as `enqueue` does."""
        job = self._queue.model.names.known_id(id)
        reply: Inspected = self._run(Inspect((job,)))
        looked = reply.items[0]
        return None if looked.state == "gone" else job_info(self._queue.model, self._queue.serializers, job, looked, reply.srv_us)

    def state(self, id: str) -> JobState:
        """The state of a job: waiting, delayed, active, stuck (its lease has ended, and no sweep has taken it yet), dead,
        finished, cancelled, discarded, or gone. Of an ended job it is known for 20 s, and of the last 1,000 finished ones
        (`set_retention`)."""
        reply: Inspected = self._run(Inspect((self._queue.model.names.known_id(id),), whole=False))
        return state_of(reply.items[0], reply.srv_us)

    def why(self, id: str) -> Why:
        """Why a job does not run, or what else it does, as a sentence: `print(queue.jobs.why(id))` says `waits for the limit of
        key acme: 2 of 2 in hand, by w1 and w3`. It knows of pauses, limits, delays, parents, the last error of a dead job, and of
        workers what their heartbeats have told, at most 200 of them. Raises as `enqueue` does."""
        job = self._queue.model.names.known_id(id)
        found: Explained = self._run(Explain(job))
        return why(job, found)

    def list(self, state: str, **options: Unpack[ListOptions]) -> list[JobInfo]:
        """One page of the jobs that are waiting, delayed, active, stuck, dead or finished, at most 1,000. `options`: see
        ListOptions. What changes its state between the page and the look at it is left out.

        With a name, a key, an error or an age `offset` counts jobs that are meant, and of the first 10,000 of the state those
        are found."""
        listing = selecting.listing(validate.PAGE_MAX, names=self._queue.model.names, **options)
        return self._select(altering.check_state(state, altering.LISTED), listing)

    def page(self, state: str, **options: Unpack[ListOptions]) -> JobPage:
        """What `list` finds among `limit` places of a state (1 to 250) from `offset` on, in two calls however many jobs there
        are; so a page may be short, or empty, and `next` is the `offset` of the one after it, None where there is none."""
        listing = selecting.listing(selecting.PLACES_MAX, names=self._queue.model.names, **options)
        return self._page(altering.check_state(state, altering.LISTED), listing)

    def counts_by_name(self) -> dict[str, NameCounts]:
        """Jobs of each name that wait, are delayed, active and dead; '' stands for those that nobody can read. It reads 250
        jobs a call, the waiting ones by lane, so with many delayed or dead jobs it takes its time, and is no instant."""
        counts: dict[str, dict[str, int]] = {}
        for state in NameCounts._fields:
            offset, cursor = 0, ""
            while True:
                page: Paged = self._run(Page(state, offset, _NAMES_PAGE, names=True, cursor=cursor))
                for name, count in page.names.items():
                    of_name = counts.setdefault(name, {})
                    of_name[state] = of_name.get(state, 0) + count
                offset, cursor = offset + page.seen, page.cursor
                if page.seen < _NAMES_PAGE and not cursor:
                    break
        return {name: NameCounts(**of_name) for name, of_name in sorted(counts.items())}

    def cancel(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End a job that waits, is delayed or runs. A running one loses its token at once: what its worker still says about it is
        refused, and its handler learns of it within a second (`Job.cancelled`, `Job.cancelled_by_hand`): a coroutine is
        cancelled, a child process killed. Where the worker's control connection is away, that is at the next renewal.

        With `expected_state` only if it is in that state; without it is looked at first, and again when it changes meanwhile.
        Returns Altered: `done`, or `changed` with the state that keeps it from being done. Its id is known for 20 s."""
        return self._queue.carry_out(altering.altering(self._queue.model, "cancel", id, expected_state))

    def run_now(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End the delay of a job: it is claimable at once, at its place among its equals. As `cancel`, for delayed jobs and those
        that wait for another attempt."""
        return self._queue.carry_out(altering.altering(self._queue.model, "run_now", id, expected_state))

    def remove(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End a job that is waiting, delayed or dead, or take a finished one from the list with its result. As `cancel`; it never
        touches one that runs."""
        return self._queue.carry_out(altering.altering(self._queue.model, "remove", id, expected_state))


class Dead(JobsPart):
    """The dead jobs of one queue. They stay until they are requeued or discarded, or are too many or too old (`set_retention`;
    100,000 and 90 days unless told)."""

    def list(self, **options: Unpack[ListOptions]) -> list[JobInfo]:
        """One page of the dead jobs, at most 1,000, the longest dead first: `last_error` is why, `errors` its runs with their
        stack traces. A corrupt one is among them, with `unreadable` and its bytes. `options`: see ListOptions; ages are from
        their deaths. Raises as `enqueue` does."""
        return self._select("dead", selecting.listing(validate.PAGE_MAX, names=self._queue.model.names, **options))

    def requeue(self, id: str) -> Altered:
        """Let a dead job run again, with all its attempts, at the place that it had. Its error history stays.

        Returns Altered: `done`; `changed` when it is not dead; `held` when the job `holder` has its unique key by now (rule 23);
        `corrupt` when nobody can read it."""
        return self._queue.carry_out(altering.altering(self._queue.model, "requeue", id, None))

    def requeue_all(
        self,
        name: str | None = None,
        *,
        limit: int = 10_000,
        key: str | None = None,
        error: str | None = None,
        older_than_ms: int = 0,
        newer_than_ms: int | None = None,
    ) -> int:
        """Requeue the dead jobs of a name, with a key, an error (`ValueError`) or an age, or all, the longest dead first, in
        pieces of 100; how many there were. What is said of them is as in `queue.jobs.list`. Those that are held or corrupt stay
        dead."""
        wanted = selecting.selection(name, key, error, older_than_ms, newer_than_ms, self._queue.model.names)
        most = validate.integer("limit", limit, 1, validate.DEAD_MAX)
        # A job that dies again meanwhile is not requeued twice.
        left: int = (self._run(Count())).dead
        offset = done = 0
        while left > 0 and done < most:
            page: Paged = self._run(Page("dead", offset, min(altering.PIECE, left, most - done)))
            if not page.jobs:
                break
            jobs = page.jobs
            if not wanted.everything:
                now_ms = page.srv_us // 1000
                jobs = tuple(info.id for info in self._look(jobs, "dead") if wanted.matches(info, now_ms))
            items = (self._queue.carry_out(altering.alter("requeue", jobs, "dead"))) if jobs else ()
            requeued = sum(item.done for item in items)
            done += requeued
            left -= len(page.jobs)
            offset += len(page.jobs) - requeued
        return done

    def discard(self, id: str) -> Altered:
        """End a dead job for good, also a corrupt one."""
        return self._queue.carry_out(altering.altering(self._queue.model, "discard", id, None))

    def clear(self, *, older_than_ms: Milliseconds = 0, limit: int = 1_000_000) -> int:
        """Discard the jobs that have been dead for so long, in pieces; how many there were."""
        return self._queue.carry_out(clearing.cleaning("dead", older_than_ms, limit))
