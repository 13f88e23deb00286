"""How long the handlers of each name took: measured in the worker, and told now and then as one small report. Pure code, a part
of the step machine (MQ36).

It must cost next to nothing for a job, so a run adds to a row of counters in memory; no job has a call of its own. Statistics may
be lost with a worker or with a report that nobody answers, and are never counted twice: a report that was sent keeps its identity
and its content until it is answered or void, and a worker that goes on under another incarnation begins anew.
"""

from __future__ import annotations

from typing import Literal

from engine.operations import BUCKET_MAX, TellTook, TookItem
from engine.server_clock import ServerClock
from engine.worker.machine.events import MS

#: Names of one report: each has a few dozen counters, all of which the server adds at once.
ITEMS_MAX = 50
#: A report counts when it arrives within so long.
_VOID_MS = 30_000
#: One that was not answered is sent again after this pause.
_AGAIN_MS = 1_000
# The counters of a row: one for each bucket that 64 bits of ns can lead to, then the sum and the greatest, in ns.
_TOTAL, _MOST = 129, 130
_ROW = [0] * 131


class RunStatistics:
    """What one worker has measured, and not told yet."""

    def __init__(self, clock: ServerClock, interval_ms: int, now_ns: int) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._at_ns = now_ns + interval_ms * MS
        self._counter = 0
        # By name: the rows of runs that succeeded, and of those that failed.
        self._ok: dict[str, list[int]] = {}
        self._failed: dict[str, list[int]] = {}
        # The report that is out; it may be sent again at `_at_ns`.
        self._out: TellTook | None = None

    def succeeded(self, name: str, took_ns: int) -> None:
        """A handler has returned. Called for every job: 0.13 us."""
        try:
            row = self._ok[name]
        except KeyError:
            row = self._ok[name] = _ROW.copy()
        # The number of bits of the square: buckets that are the square root of 2 wide, for the price of those twice as wide.
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

    def next_report(self, incarnation: str, now_ns: int, *, last: bool = False) -> TellTook | None:
        """The report that is due, or has to be sent again; with `last` whatever there is to tell. None where reports are off."""
        if now_ns < self._at_ns and (self._out is not None or not last):
            return None
        if not self._interval_ms or not self._clock.known:
            return None
        now_ms = self._clock.now_ms(now_ns)
        if self._out is not None and now_ms <= self._out.not_after_ms:
            return self._out
        self._out = None
        items = self._take()
        if not (self._ok or self._failed):
            self._at_ns = now_ns + self._interval_ms * MS
        if not items:
            return None
        self._counter += 1
        self._out = TellTook(incarnation, self._counter, now_ms + _VOID_MS, items)
        return self._out

    def answered(self) -> None:
        """The report was added, now or by an earlier copy, or never will be."""
        self._out = None

    def unanswered(self, now_ns: int, *, fault: bool) -> None:
        """Nobody knows whether it was. `fault`: the server cannot add it."""
        if fault:
            self._out = None
        else:
            self._at_ns = now_ns + _AGAIN_MS * MS

    def forget(self) -> None:
        """The process is another one: the one that it was copied from tells what was measured."""
        self._ok.clear()
        self._failed.clear()
        self._out = None

    def _take(self) -> tuple[TookItem, ...]:
        items: list[TookItem] = []
        told: tuple[tuple[Literal["ok", "failed"], dict[str, list[int]]], ...] = (("ok", self._ok), ("failed", self._failed))
        for outcome, rows in told:
            while rows and len(items) < ITEMS_MAX:
                name, row = rows.popitem()
                buckets = {bucket: runs for bucket, runs in enumerate(row[:BUCKET_MAX]) if runs}
                if longest := sum(row[BUCKET_MAX:_TOTAL]):
                    buckets[BUCKET_MAX] = longest
                items.append(TookItem(name, outcome, row[_TOTAL] // 1000, row[_MOST] // 1000, tuple(buckets.items())))
        return tuple(items)
