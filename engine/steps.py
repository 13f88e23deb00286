"""What a worker does next: pure code with events in, calls and timers out (DESIGN 3.1).

Threads, sockets and signals only execute it: the same machine runs in the worker process, inside a Locust user under gevent,
and step by step in a simulator. Every `now_ns` is monotonic.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from engine import backoff
from engine.call import Call
from engine.class_turns import ClassTurns
from engine.in_hand import InHand
from engine.operations import (
    Bury,
    Claim,
    Claimed,
    Count,
    Counts,
    Extend,
    Extended,
    Failure,
    Finish,
    FinishedAndClaimed,
    Lease,
    Mark,
    Marked,
    Operation,
    Promote,
    Promoted,
    Reap,
    Reaped,
    Release,
    Retry,
    Wait,
    Woken,
)
from engine.prefetch import LINGER_MS, WAIT_MS_MAX, Prefetch
from engine.server_clock import ServerClock
from engine.step_values import (
    MS,
    Action,
    Answered,
    Channel,
    Event,
    Exit,
    Forked,
    HandlerEnded,
    LoseLease,
    Send,
    Settings,
    Start,
    StopAsked,
    TimerFired,
    Unanswered,
)

#: A failed call is tried again after this pause; its own re-sends have already taken the driver's deadline.
RESEND_MS = 100
PROMOTE_LIMIT = 1000
REAP_LIMIT = 1000
DONE_MAX = 1000


class WorkerSteps:
    """The machine of one worker. Feed it events with `on`; execute the actions in their order; call again at `wake_at_ns`.

    `draw` gives the jitter of growing back-offs, numbers in [0, 1).
    """

    def __init__(
        self,
        settings: Settings,
        build: Callable[[Operation], Call[Any]],
        clock: ServerClock,
        new_incarnation: Callable[[], str],
        now_ns: int,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._build = build
        self._clock = clock
        self._new_incarnation = new_incarnation
        self._draw = draw
        self._incarnation = new_incarnation()
        self._counter = 0
        self._renewal = 0
        self._sweeps = 0
        self._turns = ClassTurns(settings.classes)
        self._hand = InHand(settings.lease_ms)
        self._prefetch = Prefetch(settings.concurrency, settings.prefetch)
        self._ahead = min(1, settings.prefetch)
        self._mark: Lease | None = None
        # The job with a crash behind it that ended last.
        self._crashed_end: Lease | None = None
        self._finishes: list[Lease] = []
        self._finishes_since_ns = 0
        self._failures: list[Failure] = []
        self._releases: list[Lease] = []
        self._unreadable: list[Failure] = []
        self._first_send_ns: dict[Channel, int] = {}
        self._again: dict[Channel, Call[Any]] = {}
        self._again_at_ns: dict[Channel, int] = {}
        self._busy: set[Channel] = set()
        self._hungry = True
        # Work was heard of since the last claim was built: that claim may have been answered before the work came.
        self._heard = False
        self._renew_at_ns = now_ns + settings.lease_ms * MS // 3
        self._sweep_at_ns = now_ns
        self._sweep_reply_ms = settings.sweep_ms
        self._sweep_rest: list[Operation] = []
        self._stopping_since_ns: int | None = None
        self._exited = False
        self._asked_ns: int | None = None
        self._starved_ms = 0

    # -- what the executor may look at

    @property
    def in_hand(self) -> int:
        """Jobs leased and not ended: running and not yet started."""
        return len(self._hand)

    def wake_at_ns(self, now_ns: int) -> int:
        """When to feed TimerFired if nothing happens before."""
        times = [at_ns for channel, at_ns in self._again_at_ns.items() if channel not in self._busy]
        if "renew" not in self._busy:
            times.append(self._renew_at_ns)
        if "sweep" not in self._busy:
            times.append(self._sweep_at_ns)
        lease_end_ns = self._hand.next_end_ns()
        if lease_end_ns is not None:
            times.append(lease_end_ns)
        if self._stopping_since_ns is not None:
            times.append(self._stopping_since_ns + self._settings.grace_ms * MS)
        if self._finishes and "work" not in self._busy and "work" not in self._again_at_ns:
            times.append(self._finishes_since_ns + LINGER_MS * MS)
        oldest_ns = self._hand.oldest_wait_ns()
        if oldest_ns is not None:
            # Whether it goes back depends on the handlers that run, so what has waited too long is looked at again and again.
            over_ns = oldest_ns + WAIT_MS_MAX * MS
            times.append(over_ns if over_ns > now_ns else now_ns + WAIT_MS_MAX * MS // 2)
        self._asked_ns = max(now_ns, min(times, default=now_ns + self._settings.sweep_ms * MS))
        return self._asked_ns

    # -- events

    def on(self, event: Event, now_ns: int) -> list[Action]:
        """Take one event in; say what to do."""
        actions: list[Action] = []
        starved = self._was_starved(now_ns)
        self._again_at_ns = {channel: at_ns for channel, at_ns in self._again_at_ns.items() if at_ns > now_ns}
        match event:
            case Answered():
                self._busy.discard(event.channel)
                self._learn(event, now_ns, actions)
                self._first_send_ns.pop(event.channel, None)
            case Unanswered():
                self._busy.discard(event.channel)
                self._failed(event, now_ns)
            case HandlerEnded():
                self._handler_ended(event, now_ns)
            case StopAsked():
                if self._stopping_since_ns is None:
                    self._stopping_since_ns = now_ns
            case Forked():
                self._take_new_incarnation()
            case TimerFired():
                pass
        actions.extend(LoseLease(lease, self._starved_ms) for lease in self._hand.run_out(now_ns))
        if isinstance(event, Answered) and isinstance(event.reply, Extended) and not starved:
            self._starved_ms = 0
        self._start_jobs(now_ns, actions)
        self._use_work_channel(now_ns, actions)
        self._use_renew_channel(now_ns, actions)
        self._use_sweep_channel(now_ns, actions)
        self._use_wake_channel(actions)
        self._maybe_exit(now_ns, actions)
        return actions

    def _was_starved(self, now_ns: int) -> bool:
        """Whether the machine was woken so late that a renewal may have come too late for it (rule 14)."""
        late_ms = 0 if self._asked_ns is None else (now_ns - self._asked_ns) // MS
        self._asked_ns = None
        if late_ms < self._settings.lease_ms // 5:
            return False
        self._starved_ms = max(self._starved_ms, late_ms)
        return True

    def _learn(self, event: Answered, now_ns: int, actions: list[Action]) -> None:
        operation, reply = event.call.operation, event.reply
        match reply:
            case FinishedAndClaimed():
                self._claimed(event, reply.claimed, now_ns)
            case Claimed():
                self._claimed(event, reply, now_ns)
            case Marked() if isinstance(operation, Mark):
                self._marked(operation.lease, reply, actions)
            case Extended():
                self._extended(event, operation, reply, actions)
            case Reaped():
                self._sweep_reply_ms = reply.sleep_ms
                self._hear(bool(reply.leases))
            case Promoted():
                self._sweep_reply_ms = min(self._sweep_reply_ms, reply.sleep_ms)
                self._hear(reply.promoted > 0)
                self._sweep_at_ns = min(self._sweep_at_ns, event.done_ns + max(1, self._sweep_reply_ms) * MS)
            case Woken():
                self._turns.waited(marker=reply.marker)
                self._hear(reply.marker)
                if reply.marker and not self._room():
                    # The marker is taken and this worker cannot claim: a sweep re-arms it for the others.
                    self._sweep_at_ns = event.done_ns
            case Counts():
                if self._settings.burst and reply.waiting + reply.delayed + reply.active == 0 and not self.in_hand:
                    self._stopping_since_ns = self._stopping_since_ns or event.done_ns
            case _:
                # An ended lease: ok, repeated or stale, the server has decided, and there is nothing left to do.
                pass

    def _marked(self, lease: Lease, reply: Marked, actions: list[Action]) -> None:
        if reply.result != "stale":
            self._hand.marked(lease)
        elif self._hand.lose(lease):
            actions.append(LoseLease(lease, self._starved_ms))

    def _claimed(self, event: Answered, claimed: Claimed, now_ns: int) -> None:
        if claimed.result == "stale":
            # The outstanding claim was refused as old: another process uses this incarnation (rule 4).
            self._take_new_incarnation()
        # A claim that had to be sent again is counted from its very first send (rule 9).
        first_send_ns = self._first_send_ns.get(event.channel, event.first_send_ns)
        self._hand.add(claimed.jobs, first_send_ns, now_ns)
        self._unreadable.extend(claimed.unreadable)
        # Fewer than asked for: nothing was left, or the script has left a marker for what was.
        claim = event.call.operation.claim if isinstance(event.call.operation, Finish) else event.call.operation
        asked = claim.limit if isinstance(claim, Claim) else 0
        full = len(claimed.jobs) + len(claimed.unreadable) >= asked
        more = full or self._heard or claimed.result not in ("leased", "empty")
        self._hungry = self._turns.claimed(more=more)
        self._sweep_at_ns = min(self._sweep_at_ns, event.done_ns + max(1, claimed.sleep_ms) * MS)

    def _extended(self, event: Answered, operation: Operation, reply: Extended, actions: list[Action]) -> None:
        if not isinstance(operation, Extend):
            return
        for lease, (result, _) in zip(operation.leases, reply.items, strict=True):
            if result in ("ok", "repeated"):
                self._hand.renewed(lease, event.first_send_ns)
            elif result == "void":
                # It came too late to count. This reply has set the clock right, so the next one need not wait.
                self._renew_at_ns = min(self._renew_at_ns, event.done_ns + RESEND_MS * MS)
            elif result == "stale" and self._hand.lose(lease):
                # The handler is told; when it ends, its finish is sent all the same (rule 37).
                actions.append(LoseLease(lease, self._starved_ms))

    def _handler_ended(self, event: HandlerEnded, now_ns: int) -> None:
        job, took_ns = self._hand.ended(event.lease, now_ns)
        self._prefetch.ended(took_ns)
        # The next job with a crash behind it may be claimed: it was passed by while this one ran.
        self._hear(job.crashes > 0)
        if job.crashes:
            self._crashed_end = event.lease
        if event.error is not None:
            delay_ms = backoff.delay_ms(job.options, job.failures, self._draw)
            self._failures.append(Failure(event.lease, event.error, delay_ms))
            return
        if not self._finishes:
            self._finishes_since_ns = now_ns
        self._finishes.append(event.lease)

    def _failed(self, event: Unanswered, now_ns: int) -> None:
        operation = event.call.operation
        if event.fault:
            self._first_send_ns.pop(event.channel, None)
        match operation:
            case Finish(leases=leases, claim=Claim()) if event.fault:
                # Rule 1: the fused call failed as a whole; the finish half goes alone.
                self._resend(event.channel, self._build(Finish(leases)), now_ns)
            case Claim() | Finish() | Retry() | Bury() | Release() | Mark() if not event.fault:
                # One claim is outstanding per incarnation, and it is re-sent until it is answered (rule 4).
                self._first_send_ns.setdefault(event.channel, event.first_send_ns)
                self._resend(event.channel, event.call, now_ns)
            case Claim():
                self._hungry = True
                self._again_at_ns["work"] = now_ns + RESEND_MS * MS
            case Mark(lease=lease):
                # Nobody could charge its next crash: another worker may have better luck.
                self._releases.extend(self._hand.unmark(lease))
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
        """A claim of the old incarnation is not sent again: its other user is answered by it."""
        waiting = self._again.get("work")
        if waiting is not None and isinstance(waiting.operation, Claim):
            del self._again["work"]
        self._incarnation = self._new_incarnation()
        self._counter = 0
        self._hungry = True

    # -- decisions

    def _start_jobs(self, now_ns: int, actions: list[Action]) -> None:
        if self._stopping_since_ns is not None:
            self._releases.extend(self._hand.give_back())
            return
        begun = self._hand.begin(self._settings.concurrency, now_ns)
        actions.extend(Start(job) for job in begun.started)
        self._releases.extend(begun.too_late)
        self._mark = begun.mark or self._mark
        self._ahead = self._prefetch.ahead(self._hand.running_since_ns(), now_ns)
        self._releases.extend(self._hand.give_back_idle(self._ahead, WAIT_MS_MAX * MS, now_ns))

    def _use_work_channel(self, now_ns: int, actions: list[Action]) -> None:
        if "work" in self._busy or "work" in self._again_at_ns:
            return
        call = self._again.pop("work", None)
        if call is not None:
            self._send("work", call, actions, again="work" in self._first_send_ns)
        elif (operation := self._next_work(now_ns)) is not None:
            self._send("work", self._build(operation), actions)

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
        mark = self._mark if self._mark is not None and self._hand.is_marking(self._mark) else None
        if mark is not None and self._crashed_end not in self._finishes:
            # Not before the end of the one that was marked before it is told: that would be charged for the crash of this one.
            # It waits for nothing else: the finishes of a flood of others would never let it through.
            self._mark = None
            return Mark(mark)
        if mark is None and self._lingers(now_ns):
            return None
        claim = self._next_claim(now_ns)
        if self._finishes:
            leases, self._finishes = tuple(self._finishes), []
            return Finish(leases, claim)
        return claim if self._hungry else None

    def _lingers(self, now_ns: int) -> bool:
        """Whether finishes wait for others to travel with: for 5 ms, and only while more jobs wait for a handler than have ended,
        so that the next jobs are here before the last of these has started (rule 21)."""
        waited_ns = now_ns - self._finishes_since_ns
        return self._stopping_since_ns is None and waited_ns < LINGER_MS * MS and 0 < len(self._finishes) < self._hand.startable

    def _next_claim(self, now_ns: int) -> Claim | None:
        """A claim for the free places. It rides on a finish even when the last one found nothing: that costs no round trip."""
        free = self._settings.concurrency + self._ahead - self.in_hand
        if free <= 0 or self._stopping_since_ns is not None or not self._clock.known:
            return None
        if not self._hungry and not self._finishes:
            return None
        self._counter += 1
        self._heard = False
        return Claim(
            incarnation=self._incarnation,
            counter=self._counter,
            limit=free,
            lease_ms=self._settings.lease_ms,
            not_after_ms=self._clock.now_ms(now_ns) + self._settings.lease_ms * 4 // 5,
            owner=self._settings.name,
            sleep_max_ms=self._settings.sweep_ms,
            classes=self._turns.current(),
            crashed_max=0 if self._hand.has_crashed else 1,
        )

    def _use_renew_channel(self, now_ns: int, actions: list[Action]) -> None:
        if "renew" in self._busy or now_ns < self._renew_at_ns:
            return
        self._renew_at_ns = now_ns + self._settings.lease_ms * MS // 3
        # Also what has ended and could not be sent yet, or else it would be reaped while it waits.
        owed = [*self._finishes, *self._releases, *(failure.lease for failure in self._failures)]
        leases = self._hand.leases() + owed
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
            reap = Reap(self._incarnation, self._sweeps + 1, REAP_LIMIT, most_ms, DONE_MAX)
            self._sweeps += 2
            self._sweep_rest = [reap, Promote(self._incarnation, self._sweeps, PROMOTE_LIMIT, most_ms)]
            if self._settings.burst:
                self._sweep_rest.append(Count(self._settings.classes))
        if self._sweep_rest:
            self._send("sweep", self._build(self._sweep_rest.pop(0)), actions)

    def _use_wake_channel(self, actions: list[Action]) -> None:
        """Block for a marker only when the last claim found nothing more and there is room (rule 22)."""
        if self._hungry or not self._room() or self._stopping_since_ns is not None:
            return
        if "wake" in self._busy or "wake" in self._again_at_ns:
            return
        block_ms = max(1, self._settings.sweep_ms // self._turns.groups)
        self._send("wake", self._build(Wait(block_ms, self._turns.current())), actions)

    def _maybe_exit(self, now_ns: int, actions: list[Action]) -> None:
        if self._stopping_since_ns is None or self._exited:
            return
        owed = self._finishes or self._failures or self._releases or self._unreadable or self._again
        idle = not (self.in_hand or owed or "work" in self._busy)
        if idle or now_ns - self._stopping_since_ns >= self._settings.grace_ms * MS:
            self._exited = True
            actions.append(Exit())

    def _send(self, channel: Channel, call: Call[Any], actions: list[Action], *, again: bool = False) -> None:
        self._busy.add(channel)
        actions.append(Send(channel, call, again))

    def _hear(self, of_work: bool) -> None:
        self._hungry = self._hungry or of_work
        self._heard = self._heard or of_work

    def _room(self) -> bool:
        return self._settings.concurrency + self._ahead > self.in_hand
