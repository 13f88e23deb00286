"""A worker's beats: when the next one is due, what it tells, and when the worker takes its leave. Pure code, a part of the step
machine (BQ02 to BQ04, BQ31, MQ30)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from engine.operations import Beat, Lease, NoteQueue
from engine.server_clock import ServerClock
from engine.worker.machine.events import MS, Settings

#: A worker is taken for dead when so many beats in a row have not come.
BEATS_MISSED = 3
#: Ids of leased jobs that a beat tells.
JOBS_TOLD = 100
#: A stop waits at most this long for the answer to its leave: the beats run out by themselves.
LEAVE_MS = 1_000
#: A failed beat is tried again after this pause.
_AGAIN_MS = 1_000
#: So often a worker notes that its queue is in use.
_NOTE_MS = 60_000


class Heartbeat:
    """The beats of one worker; none without an interval."""

    def __init__(self, settings: Settings, clock: ServerClock, now_ns: int) -> None:
        self._settings = settings
        self._clock = clock
        self._interval_ms = settings.beat_ms
        self._counter = 0
        self._note_at_ns = 0
        self._started_ms = 0
        self._leaving_since_ns: int | None = None
        self._gone = not settings.beat_ms
        #: When the next beat is due; None without beats.
        self.at_ns: int | None = now_ns if settings.beat_ms else None

    def due(self, now_ns: int) -> bool:
        """Whether it is time for a beat."""
        return self.at_ns is not None and now_ns >= self.at_ns and self._clock.known

    def next_beat(self, incarnation: str, leases: Iterable[Lease], now_ns: int) -> Beat:
        """The beat that is due."""
        self.at_ns = now_ns + self._interval_ms * MS
        now_ms = self._clock.now_ms(now_ns)
        self._started_ms = self._started_ms or now_ms
        held = list(leases)
        # After a fork or a restore the worker goes on under another incarnation, with the leases of the one before.
        others = {lease.nonce.partition(":")[0] for lease in held} - {incarnation}
        self._counter += 1
        about = self._about(held)
        ttl_ms = self._interval_ms * BEATS_MISSED
        return Beat(incarnation, self._counter, ttl_ms, now_ms + ttl_ms, self._settings.lease_ms, about, tuple(sorted(others)))

    def next_note(self, now_ns: int) -> NoteQueue | None:
        """With the beats, now and then: that the queue is in use."""
        if not self._counter or now_ns < self._note_at_ns:
            return None
        self._note_at_ns = now_ns + _NOTE_MS * MS
        return NoteQueue(self._clock.now_ms(now_ns))

    def next_leave(self, incarnation: str) -> Beat:
        """The last one: nothing is leased any more."""
        self._counter += 1
        self.at_ns = None
        return Beat(incarnation, self._counter, self._interval_ms * BEATS_MISSED, 0, self._settings.lease_ms, "{}")

    def leaves(self, now_ns: int) -> bool:
        """Whether an idle worker that stops still has to wait for its leave."""
        if self._gone or not self._counter:
            return False
        if self._leaving_since_ns is None:
            self._leaving_since_ns = now_ns
        return now_ns - self._leaving_since_ns < LEAVE_MS * MS

    @property
    def leaving_until_ns(self) -> int | None:
        """Until when it waits for its leave."""
        return None if self._leaving_since_ns is None or self._gone else self._leaving_since_ns + LEAVE_MS * MS

    def answered(self, beat: Beat) -> None:
        """A beat was heard."""
        self._gone = self._gone or not beat.until_ms

    def failed(self, beat: Beat, now_ns: int) -> None:
        """A beat was not answered."""
        if not beat.until_ms:
            self._gone = True
        elif self.at_ns is not None:
            self.at_ns = min(self.at_ns, now_ns + _AGAIN_MS * MS)

    def _about(self, held: list[Lease]) -> str:
        told: Mapping[str, object] = {
            **self._settings.about,
            "started_ms": self._started_ms,
            "in_hand": len(held),
            "jobs": [lease.job for lease in held[:JOBS_TOLD]],
        }
        return json.dumps(told, separators=(",", ":"))
