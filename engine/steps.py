"""What a worker does next: pure code with events in, calls and timers out (DESIGN 3.1).

Threads, sockets and signals only execute it: the same machine runs in the worker process, inside a Locust user under gevent,
and step by step in a simulator. Every `now_ns` is monotonic. Each channel carries one call at a time:

- `work`: claim, finish (and claim), retry, release
- `renew`: extend, so that neither a slow claim nor a busy handler delays a renewal (rule 14)
- `sweep`: reap and promote
- `wake`: the blocking wait, on a connection of its own
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from engine.call import Call
from engine.operations import (
    Bury,
    Claim,
    Claimed,
    Count,
    Counts,
    Ended,
    Extend,
    Extended,
    Failure,
    Finish,
    FinishedAndClaimed,
    Lease,
    LeasedJob,
    Operation,
    Promote,
    Promoted,
    Reap,
    Reaped,
    Release,
    Reply,
    Retry,
    Wait,
    Woken,
)
from engine.server_clock import ServerClock

Channel = Literal["work", "renew", "sweep", "wake"]
MS = 1_000_000

#: A failed call is tried again after this pause; its own re-sends have already taken the driver's deadline.
RESEND_MS = 100
PROMOTE_LIMIT = 1000
REAP_LIMIT = 1000
DONE_MAX = 1000


@dataclass(frozen=True, slots=True)
class Settings:
    """A worker's configuration, checked by `Worker`."""

    name: str
    concurrency: int
    prefetch: int
    lease_ms: int
    sweep_ms: int
    grace_ms: int
    burst: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """A call was answered. `definite`: no earlier copy of it is unanswered."""

    channel: Channel
    call: Call[Any]
    reply: Reply
    first_send_ns: int
    done_ns: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A call ended without a usable reply. `fault`: the server answered with an error outside the contract."""

    channel: Channel
    call: Call[Any]
    first_send_ns: int
    fault: bool


@dataclass(frozen=True, slots=True)
class HandlerEnded:
    """A handler returned (error None) or raised."""

    lease: Lease
    error: str | None


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The worker shall stop: start nothing more, give back what has not started, wait for what runs."""


@dataclass(frozen=True, slots=True)
class Forked:
    """The process is another one than the one that claimed (fork, restored machine): take a new incarnation (rule 4)."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The instant that `wake_at_ns` named has come."""


Event = Answered | Unanswered | HandlerEnded | StopAsked | Forked | TimerFired


@dataclass(frozen=True, slots=True)
class Send:
    """Run this call on this channel."""

    channel: Channel
    call: Call[Any]


@dataclass(frozen=True, slots=True)
class Start:
    """Run this job's handler."""

    job: LeasedJob


@dataclass(frozen=True, slots=True)
class LoseLease:
    """Tell the handler of this lease that it has ended."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Exit:
    """Nothing is left to do."""


Action = Send | Start | LoseLease | Exit


@dataclass(slots=True, eq=False)
class _InHand:
    job: LeasedJob
    lease_until_ns: int
    lost: bool = False


class WorkerSteps:
    """The machine of one worker. Feed it events with `on`; execute the actions in their order; call again at `wake_at_ns`."""

    def __init__(
        self,
        settings: Settings,
        build: Callable[[Operation], Call[Any]],
        clock: ServerClock,
        new_incarnation: Callable[[], str],
        now_ns: int,
    ) -> None:
        self._settings = settings
        self._build = build
        self._clock = clock
        self._new_incarnation = new_incarnation
        self._incarnation = new_incarnation()
        self._counter = 0
        self._renewal = 0
        self._ready: deque[_InHand] = deque()
        self._running: dict[Lease, _InHand] = {}
        self._finishes: list[Lease] = []
        self._failures: list[Failure] = []
        self._releases: list[Lease] = []
        self._unreadable: list[Failure] = []
        self._first_send_ns: dict[Channel, int] = {}
        self._again: dict[Channel, Call[Any]] = {}
        self._again_at_ns: dict[Channel, int] = {}
        self._busy: set[Channel] = set()
        self._hungry = True
        self._renew_at_ns = now_ns + settings.lease_ms * MS // 3
        self._sweep_at_ns = now_ns
        self._sweep_reply_ms = settings.sweep_ms
        self._sweep_rest: list[Operation] = []
        self._stopping_since_ns: int | None = None
        self._exited = False

    # -- what the executor may look at

    @property
    def in_hand(self) -> int:
        """Jobs leased and not ended: running and not yet started."""
        return len(self._ready) + len(self._running)

    def wake_at_ns(self, now_ns: int) -> int:
        """When to feed TimerFired if nothing happens before."""
        times = [at_ns for channel, at_ns in self._again_at_ns.items() if channel not in self._busy]
        if "renew" not in self._busy:
            times.append(self._renew_at_ns)
        if "sweep" not in self._busy:
            times.append(self._sweep_at_ns)
        if self._stopping_since_ns is not None:
            times.append(self._stopping_since_ns + self._settings.grace_ms * MS)
        return max(now_ns, min(times, default=now_ns + self._settings.sweep_ms * MS))

    # -- events

    def on(self, event: Event, now_ns: int) -> list[Action]:
        """Take one event in; say what to do."""
        actions: list[Action] = []
        self._again_at_ns = {channel: at_ns for channel, at_ns in self._again_at_ns.items() if at_ns > now_ns}
        match event:
            case Answered():
                self._busy.discard(event.channel)
                self._learn(event, actions)
                self._first_send_ns.pop(event.channel, None)
            case Unanswered():
                self._busy.discard(event.channel)
                self._failed(event, now_ns)
            case HandlerEnded():
                self._handler_ended(event)
            case StopAsked():
                if self._stopping_since_ns is None:
                    self._stopping_since_ns = now_ns
            case Forked():
                self._take_new_incarnation()
            case TimerFired():
                pass
        self._start_jobs(now_ns, actions)
        self._use_work_channel(now_ns, actions)
        self._use_renew_channel(now_ns, actions)
        self._use_sweep_channel(now_ns, actions)
        self._use_wake_channel(actions)
        self._maybe_exit(now_ns, actions)
        return actions

    def _learn(self, event: Answered, actions: list[Action]) -> None:
        operation, reply = event.call.operation, event.reply
        match reply:
            case FinishedAndClaimed():
                self._claimed(event, reply.claimed)
            case Claimed():
                self._claimed(event, reply)
            case Extended():
                self._extended(event, operation, reply, actions)
            case Reaped():
                self._sweep_reply_ms = reply.sleep_ms
                self._hungry = self._hungry or bool(reply.leases)
            case Promoted():
                self._sweep_reply_ms = min(self._sweep_reply_ms, reply.sleep_ms)
                self._hungry = self._hungry or reply.promoted > 0
                self._sweep_at_ns = event.done_ns + max(1, self._sweep_reply_ms) * MS
            case Woken():
                self._hungry = self._hungry or reply.marker
            case Counts():
                if self._settings.burst and reply.waiting + reply.delayed + reply.active == 0 and not self.in_hand:
                    self._stopping_since_ns = self._stopping_since_ns or event.done_ns
            case Ended():
                # ok, repeated or stale: the lease has ended either way, and the server has decided how.
                pass
            case _:
                pass

    def _claimed(self, event: Answered, claimed: Claimed) -> None:
        if claimed.result == "stale":
            # The outstanding claim was refused as old: another process uses this incarnation (rule 4).
            self._take_new_incarnation()
        # A claim that had to be sent again is counted from its very first send (rule 9).
        first_send_ns = self._first_send_ns.get(event.channel, event.first_send_ns)
        for job in claimed.jobs:
            self._ready.append(_InHand(job, first_send_ns + self._settings.lease_ms * MS))
        self._unreadable.extend(claimed.unreadable)
        # Fewer than asked for: nothing was left, or the script has left a marker for what was.
        claim = event.call.operation.claim if isinstance(event.call.operation, Finish) else event.call.operation
        asked = claim.limit if isinstance(claim, Claim) else 0
        self._hungry = len(claimed.jobs) + len(claimed.unreadable) >= asked or claimed.result not in ("leased", "empty")
        self._sweep_at_ns = min(self._sweep_at_ns, event.done_ns + max(1, claimed.sleep_ms) * MS)

    def _extended(self, event: Answered, operation: Operation, reply: Extended, actions: list[Action]) -> None:
        if not isinstance(operation, Extend):
            return
        held = dict(self._running) | {entry.job.lease: entry for entry in self._ready}
        for lease, (result, _) in zip(operation.leases, reply.items, strict=True):
            entry = held.get(lease)
            if entry is None:
                continue
            if result in ("ok", "repeated"):
                entry.lease_until_ns = event.first_send_ns + self._settings.lease_ms * MS
            elif result == "stale":
                self._lose(entry, actions)

    def _lose(self, entry: _InHand, actions: list[Action]) -> None:
        """The server has ended this lease. A running handler is told; its finish is sent all the same (rule 37)."""
        if not entry.lost:
            entry.lost = True
            actions.append(LoseLease(entry.job.lease))
        if entry in self._ready:
            self._ready.remove(entry)

    def _handler_ended(self, event: HandlerEnded) -> None:
        entry = self._running.pop(event.lease)
        if event.error is None:
            self._finishes.append(event.lease)
        else:
            self._failures.append(Failure(event.lease, event.error, entry.job.options.backoff_ms))

    def _failed(self, event: Unanswered, now_ns: int) -> None:
        operation = event.call.operation
        if event.fault:
            self._first_send_ns.pop(event.channel, None)
        match operation:
            case Finish(leases=leases, claim=Claim()) if event.fault:
                # Rule 1: the fused call failed as a whole; the finish half goes alone.
                self._resend(event.channel, self._build(Finish(leases)), now_ns)
            case Claim() | Finish() | Retry() | Bury() | Release() if not event.fault:
                # One claim is outstanding per incarnation, and it is re-sent until it is answered (rule 4).
                self._first_send_ns.setdefault(event.channel, event.first_send_ns)
                self._resend(event.channel, event.call, now_ns)
            case Claim():
                self._hungry = True
                self._again_at_ns["work"] = now_ns + RESEND_MS * MS
            case Promote() | Reap() | Count():
                self._sweep_rest.clear()
                self._sweep_at_ns = now_ns + self._settings.sweep_ms * MS
            case Extend():
                self._renew_at_ns = now_ns + RESEND_MS * MS
            case Wait():
                self._hungry = True
                self._again_at_ns["wake"] = now_ns + RESEND_MS * MS
            case _:
                pass

    def _resend(self, channel: Channel, call: Call[Any], now_ns: int) -> None:
        self._again[channel] = call
        self._again_at_ns[channel] = now_ns + RESEND_MS * MS

    def _take_new_incarnation(self) -> None:
        self._incarnation = self._new_incarnation()
        self._counter = 0
        self._hungry = True

    # -- decisions

    def _start_jobs(self, now_ns: int, actions: list[Action]) -> None:
        least_ns = self._settings.lease_ms * MS // 5
        while self._ready:
            if self._stopping_since_ns is None and len(self._running) >= self._settings.concurrency:
                return
            entry = self._ready.popleft()
            # Rule 9: no handler starts with less than a fifth of its lease left.
            if self._stopping_since_ns is not None or entry.lease_until_ns - now_ns < least_ns:
                self._releases.append(entry.job.lease)
            else:
                self._running[entry.job.lease] = entry
                actions.append(Start(entry.job))

    def _use_work_channel(self, now_ns: int, actions: list[Action]) -> None:
        if "work" in self._busy or "work" in self._again_at_ns:
            return
        call = self._again.pop("work", None)
        if call is None:
            operation = self._next_work(now_ns)
            call = None if operation is None else self._build(operation)
        if call is not None:
            self._send("work", call, actions)

    def _next_work(self, now_ns: int) -> Operation | None:
        if self._failures:
            failures, self._failures = tuple(self._failures), []
            return Retry(failures)
        if self._releases:
            leases, self._releases = tuple(self._releases), []
            return Release(leases)
        if self._unreadable:
            unreadable, self._unreadable = tuple(self._unreadable), []
            return Bury(unreadable)
        claim = self._next_claim(now_ns)
        if self._finishes:
            leases, self._finishes = tuple(self._finishes), []
            return Finish(leases, claim)
        return claim if self._hungry else None

    def _next_claim(self, now_ns: int) -> Claim | None:
        """A claim for the free places. It rides on a finish even when the last one found nothing: that costs no round trip."""
        free = self._settings.concurrency + self._settings.prefetch - self.in_hand
        if free <= 0 or self._stopping_since_ns is not None or not self._clock.known:
            return None
        if not self._hungry and not self._finishes:
            return None
        self._counter += 1
        return Claim(
            incarnation=self._incarnation,
            counter=self._counter,
            limit=free,
            lease_ms=self._settings.lease_ms,
            not_after_ms=self._clock.now_ms(now_ns) + self._settings.lease_ms * 4 // 5,
            owner=self._settings.name,
            sleep_max_ms=self._settings.sweep_ms,
        )

    def _use_renew_channel(self, now_ns: int, actions: list[Action]) -> None:
        if "renew" in self._busy or now_ns < self._renew_at_ns:
            return
        self._renew_at_ns = now_ns + self._settings.lease_ms * MS // 3
        leases = [entry.job.lease for entry in (*self._ready, *self._running.values()) if not entry.lost]
        if not leases or not self._clock.known:
            return
        self._renewal += 1
        not_after_ms = self._clock.now_ms(now_ns) + self._settings.lease_ms // 3
        self._send("renew", self._build(Extend(tuple(leases), self._renewal, self._settings.lease_ms, not_after_ms)), actions)

    def _use_sweep_channel(self, now_ns: int, actions: list[Action]) -> None:
        """Reap, then promote; in burst mode then count. The replies say when to come again."""
        if "sweep" in self._busy:
            return
        if not self._sweep_rest and now_ns >= self._sweep_at_ns:
            most_ms = self._settings.sweep_ms
            self._sweep_at_ns = now_ns + most_ms * MS
            self._sweep_rest = [Reap(REAP_LIMIT, most_ms, DONE_MAX), Promote(PROMOTE_LIMIT, most_ms)]
            if self._settings.burst:
                self._sweep_rest.append(Count())
        if self._sweep_rest:
            self._send("sweep", self._build(self._sweep_rest.pop(0)), actions)

    def _use_wake_channel(self, actions: list[Action]) -> None:
        """Block for a marker only when the last claim found nothing more and there is room (rule 22)."""
        room = self._settings.concurrency + self._settings.prefetch > self.in_hand
        if self._hungry or not room or self._stopping_since_ns is not None:
            return
        if "wake" in self._busy or "wake" in self._again_at_ns:
            return
        self._send("wake", self._build(Wait(self._settings.sweep_ms)), actions)

    def _maybe_exit(self, now_ns: int, actions: list[Action]) -> None:
        if self._stopping_since_ns is None or self._exited:
            return
        owed = self._finishes or self._failures or self._releases or self._unreadable or self._again
        idle = not (self.in_hand or owed or "work" in self._busy)
        if idle or now_ns - self._stopping_since_ns >= self._settings.grace_ms * MS:
            self._exited = True
            actions.append(Exit())

    def _send(self, channel: Channel, call: Call[Any], actions: list[Action]) -> None:
        self._busy.add(channel)
        actions.append(Send(channel, call))
