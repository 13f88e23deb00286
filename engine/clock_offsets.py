"""Rows that say how the monotonic clock of a process stands to the server's, so that a judge can compare times of several hosts.

A reply carries the server's time, which was read between the send of its call and the reply. So each call that a process makes
anyway measures its clock, and the shortest round trip bounds it best.
"""

from __future__ import annotations

import threading

from engine.history import HistoryFile

#: How often a process writes the best measure of the time since the last one.
PERIOD_NS = 10_000_000_000


class ClockOffsets:
    """Writes the `offset` rows of one process: of its first call, then of the shortest round trip of every period."""

    def __init__(self, file: HistoryFile, *, period_ns: int = PERIOD_NS) -> None:
        self._file = file
        self._period_ns = period_ns
        self._lock = threading.Lock()
        self._due_ns = 0
        #: Round trip, send, reply, and the server's time of the best call since the last row.
        self._best: tuple[int, int, int, int] | None = None

    def learn(self, sent_ns: int, done_ns: int, srv_us: int) -> None:
        """A call was sent once, between these instants of the monotonic clock, and its reply has this server time."""
        measure = (done_ns - sent_ns, sent_ns, done_ns, srv_us)
        with self._lock:
            self._best = measure if self._best is None else min(self._best, measure)
            if done_ns < self._due_ns:
                return
            self._due_ns = done_ns + self._period_ns
        self.write()

    def write(self) -> None:
        """Write the best measure since the last row now, if there is one: before the file is closed."""
        with self._lock:
            best, self._best = self._best, None
        if best is not None:
            _, sent_ns, done_ns, srv_us = best
            self._file.append([f'"kind":"offset","first_send_ns":{sent_ns},"done_ns":{done_ns},"srv_us":{srv_us}'])
