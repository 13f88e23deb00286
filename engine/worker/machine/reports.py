"""What a worker reports about itself: its heartbeats, the progress of its jobs, and how long its handlers
took. Pure code, a part of the state machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from engine.ops.admin import NoteQueue
from engine.ops.base import ServerClock
from engine.ops.jobs import Lease
from engine.ops.looks import NoteProgress
from engine.ops.workers import BUCKET_MAX, Beat, ReportRunTimes, RunTimes
from engine.worker.machine.events import MS
from engine.worker.machine.leases import LeaseTable
from engine.worker.machine.settings import Settings

#: A worker is taken for dead when so many beats in a row have not come.
BEATS_MISSED = 3
#: Ids of leased jobs that a beat tells.
JOBS_TOLD = 100
#: A stop waits at most this long for the answer to its leave: the beats run out by themselves.
LEAVE_MS = 1_000
#: A failed report is sent again after this pause, a heartbeat after the first one, then after twice as long
#: up to this. One that names another control connection has to arrive before the next look (AGAIN_MS of
#: sweeping.py).
_AGAIN_MS = 1_000
_FIRST_AGAIN_MS = 100
#: An instant that does not come.
NEVER = 2**63
#: So often a worker notes that its queue is in use.
_NOTE_MS = 60_000


class Heartbeat:
    """When the next heartbeat of a worker is due, what it carries, and when the worker takes its leave; none
    without an interval."""

    def __init__(
        self, settings: Settings, clock: ServerClock, now_ns: int, holds: Callable[[], bool] = lambda: True
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._interval_ms = settings.beat_ms
        self._holds = holds
        self._watches = settings.idle_beats == 1
        self._counter = 0
        #: When to note next that the queue is in use; with the first beat.
        self.note_at_ns = NEVER
        self._started_ms = 0
        self._leaving_since_ns: int | None = None
        self._gone = not settings.beat_ms
        self._again_ms = _FIRST_AGAIN_MS
        # When the next beat is due, and when the last one was sent; None without beats.
        self._at_ns: int | None = now_ns if settings.beat_ms else None
        self._sent_ns = now_ns

    def next_ns(self, *, informed: bool) -> int | None:
        """When the next heartbeat is due. Who is not `informed` of updates in another way asks with one in
        each sweep interval."""
        if self._at_ns is None:
            return None
        at_ns = min(self._at_ns, self._sent_ns + self._every_ms * MS)
        return at_ns if informed else min(at_ns, self._sent_ns + self._settings.sweep_ms * MS)

    @property
    def _every_ms(self) -> int:
        return self._interval_ms * (1 if self._watches or self._holds() else self._settings.idle_beats)

    def watch(self, on: bool, now_ns: int) -> None:
        """Look after the leader, from now on, also without jobs in hand; or not."""
        if on and not self._watches:
            self.soon(now_ns)
        self._watches = on or self._settings.idle_beats == 1

    def next_beat(
        self,
        incarnation: str,
        leases: Iterable[Lease],
        now_ns: int,
        kept_back: Mapping[str, bool],
        connection: str = "",
    ) -> Beat:
        """Build the heartbeat that is due. `kept_back`: what keeps the worker from claiming; `connection`: as
        in Beat."""
        every_ms = self._every_ms
        self._at_ns = now_ns + every_ms * MS
        self._sent_ns = now_ns
        now_ms = self._clock.now_ms(now_ns)
        self._started_ms = self._started_ms or now_ms
        held = list(leases)
        # After a fork or a restore the worker goes on under another incarnation, with the leases of the one
        # before.
        others = {lease.nonce.partition(":")[0] for lease in held} - {incarnation}
        self._counter += 1
        if self.note_at_ns == NEVER:
            self.note_at_ns = now_ns
        about = self._about(held, kept_back)
        ttl_ms = every_ms * BEATS_MISSED
        settings = self._settings
        words = (settings.lease_ms, settings.sweep_ms, about, tuple(sorted(others)))
        return Beat(incarnation, self._counter, ttl_ms, now_ms + ttl_ms, *words, connection)

    def next_note(self, now_ns: int) -> NoteQueue:
        """The call that lists the queue as used, once a minute beside the heartbeats."""
        self.note_at_ns = now_ns + _NOTE_MS * MS
        return NoteQueue(self._clock.now_ms(now_ns))

    def next_leave(self, incarnation: str) -> Beat:
        """The last heartbeat, which removes the worker from the list: nothing is leased any more."""
        self._counter += 1
        self._at_ns = None
        settings = self._settings
        return Beat(
            incarnation,
            self._counter,
            self._interval_ms * BEATS_MISSED,
            0,
            settings.lease_ms,
            settings.sweep_ms,
            "{}",
        )

    def leaves(self, now_ns: int) -> bool:
        """Whether an idle worker that stops still waits for the answer to its last heartbeat."""
        if self._gone or not self._counter:
            return False
        if self._leaving_since_ns is None:
            self._leaving_since_ns = now_ns
        return now_ns - self._leaving_since_ns < LEAVE_MS * MS

    @property
    def leaving_until_ns(self) -> int | None:
        """Until when the worker waits for that answer, monotonic ns."""
        return (
            None if self._leaving_since_ns is None or self._gone else self._leaving_since_ns + LEAVE_MS * MS
        )

    def answered(self, beat: Beat, watch_in_ms: int, done_ns: int) -> None:
        """Note that a heartbeat was answered. A follower sends the next one when its watch slot comes to look
        after the leader, if that is before the interval is over (rule 13)."""
        self._gone = self._gone or not beat.until_ms
        self._again_ms = _FIRST_AGAIN_MS
        if watch_in_ms and self._at_ns is not None and (self._watches or self._holds()):
            # anchor: followers-look-after-the-leader
            self._at_ns = min(self._at_ns, done_ns + watch_in_ms * MS)

    def soon(self, now_ns: int) -> None:
        """Send one now: this worker leads no more, and has no watch slot yet; or its control connection is
        another one."""
        if self._at_ns is not None:
            self._at_ns = now_ns

    def failed(self, beat: Beat, now_ns: int) -> None:
        """Send again soon: a heartbeat was not answered."""
        if not beat.until_ms:
            self._gone = True
        elif self._at_ns is not None:
            self._at_ns = min(self._at_ns, now_ns + self._again_ms * MS)
            self._again_ms = min(2 * self._again_ms, _AGAIN_MS)

    def _about(self, held: list[Lease], kept_back: Mapping[str, bool]) -> str:
        told: Mapping[str, object] = {
            **self._settings.about,
            "started_ms": self._started_ms,
            "in_hand": len(held),
            "jobs": [lease.job for lease in held[:JOBS_TOLD]],
            **kept_back,
        }
        return json.dumps(told, separators=(",", ":"))


class ProgressReports:
    """Progress that handlers have reported and that has not been sent: the newest of each running job."""

    def __init__(self, lease_table: LeaseTable) -> None:
        self._lease_table = lease_table
        #: By lease: what has not been sent.
        self.told: dict[Lease, bytes] = {}
        # How many reports were sent.
        self._count = 0

    def tell(self, lease: Lease, body: bytes) -> None:
        """Keep the progress that a handler reports; it replaces an older report of the same run."""
        self.told[lease] = body

    def next_operation(self) -> NoteProgress | None:
        """The call for one report of a job that still runs; None without any."""
        while self.told:
            lease, body = self.told.popitem()
            if self._lease_table.queue_running(lease) is not None:
                self._count += 1
                return NoteProgress(lease, self._count, body)
        return None


#: Names of one report: each has a few dozen counters, all of which the server adds at once.
ITEMS_MAX = 50
#: A report counts when it arrives within so long.
_VOID_MS = 30_000
# The counters of a row: one for each bucket that 64 bits of ns can lead to, then the sum and the greatest, in
# ns.
_TOTAL, _MOST = 129, 130
_ROW = [0] * 131


class RunStatistics:
    """How long the handlers of each name took, until it is reported.

    It must cost next to nothing for a job. So a run adds to a row of counters in memory. No job has a call of
    its own. Statistics may be lost, with a worker or an unanswered report. They are never counted
    twice: a sent report keeps its identity and content until it is answered or void. A new incarnation starts
    afresh.
    """

    def __init__(self, clock: ServerClock, interval_ms: int, now_ns: int) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        #: When the next report is due.
        self.at_ns = now_ns + interval_ms * MS if interval_ms else NEVER
        self._counter = 0
        # By name: the rows of runs that succeeded, and of those that failed.
        self._ok: dict[str, list[int]] = {}
        self._failed: dict[str, list[int]] = {}
        # The report that is out; it may be sent again at `at_ns`.
        self._out: ReportRunTimes | None = None

    def succeeded(self, name: str, took_ns: int) -> None:
        """A handler has returned. Called for every job: 0.13 us."""
        try:
            row = self._ok[name]
        except KeyError:
            row = self._ok[name] = _ROW.copy()
        # The number of bits of the square: buckets that are the square root of 2 wide, for the price of those
        # twice as wide.
        row[(took_ns * took_ns).bit_length()] += 1
        row[_TOTAL] += took_ns
        if took_ns > row[_MOST]:
            row[_MOST] = took_ns

    def failed(self, name: str, took_ns: int) -> None:
        """A handler has raised, or was given up."""
        row = self._failed.setdefault(name, _ROW.copy())
        row[(took_ns * took_ns).bit_length()] += 1
        row[_TOTAL] += took_ns
        row[_MOST] = max(row[_MOST], took_ns)

    def next_report(self, incarnation: str, now_ns: int, *, last: bool = False) -> ReportRunTimes | None:
        """The report that is due, or has to be sent again; with `last` whatever there is to tell. None where
        reports are off."""
        if now_ns < self.at_ns and (self._out is not None or not last):
            return None
        if not self._interval_ms or not self._clock.known:
            return None
        now_ms = self._clock.now_ms(now_ns)
        if self._out is not None and now_ms <= self._out.not_after_ms:
            return self._out
        self._out = None
        items = self._take()
        if not (self._ok or self._failed):
            self.at_ns = now_ns + self._interval_ms * MS
        if not items:
            return None
        self._counter += 1
        self._out = ReportRunTimes(incarnation, self._counter, now_ms + _VOID_MS, items)
        return self._out

    def answered(self) -> None:
        """Drop the report: it was added, by this copy or an earlier one, or never will be."""
        self._out = None

    def unanswered(self, now_ns: int, *, fault: bool) -> None:
        """Send the report again later, or with `fault` drop it: the server cannot add it."""
        if fault:
            self._out = None
        else:
            self.at_ns = now_ns + _AGAIN_MS * MS

    def forget(self) -> None:
        """Drop all numbers after a fork: the process that was copied reports them."""
        self._ok.clear()
        self._failed.clear()
        self._out = None

    def _take(self) -> tuple[RunTimes, ...]:
        items: list[RunTimes] = []
        told: tuple[tuple[Literal["ok", "failed"], dict[str, list[int]]], ...] = (
            ("ok", self._ok),
            ("failed", self._failed),
        )
        for outcome, rows in told:
            while rows and len(items) < ITEMS_MAX:
                name, row = rows.popitem()
                buckets = {bucket: runs for bucket, runs in enumerate(row[:BUCKET_MAX]) if runs}
                if longest := sum(row[BUCKET_MAX:_TOTAL]):
                    buckets[BUCKET_MAX] = longest
                items.append(
                    RunTimes(name, outcome, row[_TOTAL] // 1000, row[_MOST] // 1000, tuple(buckets.items()))
                )
        return tuple(items)
