"""The state of the step machine, and the questions that its layers ask of several parts of it. Pure code."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from engine.ops.base import Operation
from engine.ops.jobs import Lease
from engine.server_clock import ServerClock
from engine.wire.call import Call
from engine.worker.machine.acknowledgements import PendingAcknowledgements
from engine.worker.machine.call_slots import CallSlots
from engine.worker.machine.claiming import Claiming
from engine.worker.machine.concurrency import Allowance, Gate, Prefetch, Share
from engine.worker.machine.deadlines import Renewing, Stopping, Timeouts
from engine.worker.machine.events import Settings
from engine.worker.machine.lease_table import LeaseTable
from engine.worker.machine.places import Quota
from engine.worker.machine.presence import Presence
from engine.worker.machine.reports import Heartbeat, ProgressReports, RunStatistics
from engine.worker.machine.sweeping import Sweeping


class State:
    """The parts of one worker's machine, each with its own subject.

    `draw` gives the jitter of growing back-offs, numbers in [0, 1). `elsewhere` builds the calls of another queue, by its name.
    """

    def __init__(
        self,
        settings: Settings,
        build: Callable[[Operation], Call[Any]],
        clock: ServerClock,
        new_incarnation: Callable[[], str],
        now_ns: int,
        draw: Callable[[], float] = random.random,
        gate: Gate | None = None,
        share: Share | None = None,
        quota: Quota | None = None,
        elsewhere: Callable[[str], Callable[[Operation], Call[Any]]] | None = None,
    ) -> None:
        self._settings = settings
        self._build = build
        self._elsewhere = elsewhere
        self._clock = clock
        self._draw = draw
        self._claiming = Claiming(settings, clock, new_incarnation)
        self._renewing = Renewing(settings, clock, now_ns)
        self._lease_table = LeaseTable(settings)
        if quota is not None:
            self._lease_table.resize(0)
        # Leases whose jobs were cancelled before the claim that has them was answered.
        self._cancelled_early: dict[Lease, None] = {}
        self._prefetch = Prefetch(settings.places, settings.prefetch)
        self._ahead = min(1, settings.prefetch)
        self._inline_places = settings.places - settings.concurrency
        self._mark: Lease | None = None
        # The job with a crash behind it that ended last.
        self._crashed_end: Lease | None = None
        self._acknowledgements = PendingAcknowledgements()
        # What the finish slot carries.
        self._finishing: tuple[Lease, ...] = ()
        self._call_slots = CallSlots()
        self._sweeping = Sweeping(settings, now_ns)
        self._presence = Presence(clock)
        self._timeouts = Timeouts(settings)
        self._stopping = Stopping(settings)
        # A burst's count found nothing that runs: it ends when a claim that is sent after that finds nothing either.
        self._last_look = False
        self._heartbeat = Heartbeat(settings, clock, now_ns, lambda: len(self._lease_table) > 0)
        self._statistics = RunStatistics(clock, settings.beat_ms, now_ns)
        self._sweeping.classes = self._claiming.classes
        self._allowance = Allowance(settings, gate, share, quota)
        #: Told when this worker leads its queue, and when it does so no more.
        self.on_lead: Callable[[bool], None] | None = None
        self._led = False
        self._exited = False
        self._asked_ns: int | None = None
        # When somebody last asked for a turn: what turns leave undecided is looked at soon.
        self._turn_asked_ns: int | None = None
        self._starved_ms = 0
        self._progress = ProgressReports(self._lease_table)

    @property
    def leased(self) -> int:
        """Jobs leased and not ended: running and not yet started. Handlers that were given up are among them, for the places
        that they take."""
        return len(self._lease_table)

    @property
    def places(self) -> int:
        """Handlers that may run at once."""
        return self._settings.places

    @property
    def owned(self) -> int:
        """As `leased`, without the jobs whose handlers were given up: nothing more is sent about those."""
        return len(self._lease_table) - self._lease_table.stuck

    @property
    def _unacknowledged(self) -> bool:
        """Whether a call about jobs is unanswered or has not been sent."""
        busy = self._call_slots.busy("work") or self._call_slots.busy("finish")
        return bool(self._acknowledgements) or self._call_slots.resending or busy

    @property
    def _informed(self) -> bool:
        """Whether this worker hears of news soon without a heartbeat: it blocks for them, or sweeps."""
        return self._sweeping.regular or self._call_slots.busy("wake")

    def _room(self, now_ns: int) -> bool:
        if not self._settings.classes:
            return False
        if self._allowance.share is not None or self._allowance.quota is not None:
            # Whether this queue has work decides what the others may claim, so it is always listened to.
            return not self._allowance.closed(now_ns)
        return self._free > 0 and not self._allowance.closed(now_ns)

    def _may_claim(self, now_ns: int) -> bool:
        share, quota = self._allowance.share, self._allowance.quota
        return self._room(now_ns) and not (share is not None and share.full) and (quota is None or quota.idle)

    @property
    def _free(self) -> int:
        """How many more jobs there is room for, with the present limit of handlers."""
        wanted = self._inline_places + self._allowance.pooled + self._ahead
        return wanted - self.leased if self._allowance.share is not None else self._lease_table.room(wanted)
