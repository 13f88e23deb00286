"""Rows that say how the monotonic clock of a process stands to the server's, so that a judge can compare times of several hosts.

A reply carries the server's time, which was read between the send of its call and the reply. So each call that a process makes
anyway measures its clock, and the shortest round trip bounds it best.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from engine.history import HistoryFile

#: How often a process writes the best measure of the time since the last one.
PERIOD_NS = 10_000_000_000


class _Measure(NamedTuple):
    round_trip_ns: int
    sent_ns: int
    done_ns: int
    srv_us: int


class ClockOffsets:
    """Writes the `offset` rows of one process: of its first call, of the shortest round trip of every period, and of its last
    call: a clock that jumps after the last measure is not seen to have jumped."""

    def __init__(self, file: HistoryFile, *, period_ns: int = PERIOD_NS) -> None:
        self._file = file
        self._period_ns = period_ns
        self._lock = threading.Lock()
        self._due_ns = 0
        #: Of the calls since the last row.
        self._best: _Measure | None = None
        self._latest: _Measure | None = None

    def learn(self, sent_ns: int, done_ns: int, srv_us: int) -> None:
        """A call was sent once, between these instants of the monotonic clock, and its reply has this server time."""
        measure = _Measure(done_ns - sent_ns, sent_ns, done_ns, srv_us)
        with self._lock:
            best = measure if self._best is None else min(self._best, measure)
            if done_ns < self._due_ns:
                self._best, self._latest = best, measure
                return
            self._due_ns = done_ns + self._period_ns
            self._best = self._latest = None
        self._write(best)

    def end(self) -> None:
        """Write what was measured since the last row, before the file is closed."""
        with self._lock:
            left, self._best, self._latest = {self._best, self._latest}, None, None
        for measure in sorted(filter(None, left), key=lambda one: one.done_ns):
            self._write(measure)

    def _write(self, measure: _Measure) -> None:
        _, sent_ns, done_ns, srv_us = measure
        self._file.append([f'"kind":"offset","first_send_ns":{sent_ns},"done_ns":{done_ns},"srv_us":{srv_us}'])
