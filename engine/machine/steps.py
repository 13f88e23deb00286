"""What a worker does next: pure code with events in, calls and timers out (DESIGN 3.1).

Threads, sockets and signals only execute it: the same machine runs in the worker process, inside a Locust user under gevent,
and step by step in a simulator. Every `now_ns` is monotonic.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from engine.call import Call
from engine.machine import backoff
from engine.machine.allowance import Allowance, Gate
from engine.machine.channels import Channels
from engine.machine.claiming import Claiming
from engine.machine.in_hand import InHand
from engine.machine.lines import NOTHING
from engine.machine.membership import Membership
from engine.machine.owed import Owed
from engine.machine.prefetch import LINGER_MS, WAIT_MS_MAX, Prefetch
from engine.machine.renewing import Renewing
from engine.machine.sharing import Share
from engine.machine.step_values import (
    MS,
    Action,
    Answered,
    BatchEnded,
    Event,
    Exit,
    Forked,
    GiveUpHandler,
    HandlerEnded,
    LoseLease,
    MoreTime,
    PauseAsked,
    Progressed,
    Settings,
    StopAsked,
    StopHandler,
    TimerFired,
    Unanswered,
)
from engine.machine.stopping import Stopping
from engine.machine.sweeping import Sweeping
from engine.machine.telling import Telling
from engine.machine.timeouts import Timeouts, timed_out
from engine.machine.took import Took
from engine.operations import (
    Beat,
    Beaten,
    Bury,
    Claim,
    Claimed,
    Count,
    Counts,
    Drop,
    Enqueue,
    Enqueued,
    Extend,
    Extended,
    Failure,
    Finish,
    FinishedAndClaimed,
    Learned,
    Lease,
    LeasedJob,
    Mark,
    Marked,
    News,
    NoteProgress,
    Operation,
    Promote,
    Promoted,
    Reap,
    Reaped,
    Release,
    Retry,
    TellTook,
    Tick,
    Ticked,
    TookTold,
    Wait,
    Woken,
)
from engine.outcomes import TIMED_OUT, Verdict, ending
from engine.server_clock import ServerClock

#: After the last turn that was asked for, the machine is woken for so long as often as turns need it.
TURNING_MS = 20


class WorkerSteps:
    """The machine of one worker. Feed it events with `on`; execute the actions in their order; call again at `wake_at_ns`.

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
        elsewhere: Callable[[str], Callable[[Operation], Call[Any]]] | None = None,
    ) -> None:
        self._settings = settings
        self._build = build
        self._elsewhere = elsewhere
        self._clock = clock
        self._draw = draw
        self._claiming = Claiming(settings, clock, new_incarnation)
        self._renewing = Renewing(settings, clock, now_ns)
        self._hand = InHand(settings)
        self._prefetch = Prefetch(settings.places, settings.prefetch)
        self._ahead = min(1, settings.prefetch)
        self._inline_places = settings.places - settings.concurrency
        self._mark: Lease | None = None
        # The job with a crash behind it that ended last.
        self._crashed_end: Lease | None = None
        self._owed = Owed()
        # What the finish channel carries.
        self._finishing: tuple[Lease, ...] = ()
        self._channels = Channels()
        self._sweeping = Sweeping(settings, now_ns)
        self._timeouts = Timeouts(settings)
        self._stopping = Stopping(settings)
        self._membership = Membership(settings, clock, now_ns)
        self._took = Took(clock, settings.beat_ms, now_ns)
        self._sweeping.classes = self._claiming.classes
        self._allowance = Allowance(settings, gate, share)
        self._exited = False
        self._asked_ns: int | None = None
        # When somebody last asked for a turn: what turns leave undecided is looked at soon.
        self._turn_asked_ns: int | None = None
        self._starved_ms = 0
        self._progress = Telling(self._hand)

    # -- what the executor may look at

    @property
    def in_hand(self) -> int:
        """Jobs leased and not ended: running and not yet started. Handlers that were given up are among them, for the places
        that they take."""
        return len(self._hand)

    @property
    def places(self) -> int:
        """Handlers that may run at once."""
        return self._settings.places

    @property
    def owned(self) -> int:
        """The same without those that were given up: nothing more is to be told of them."""
        return len(self._hand) - self._hand.stuck

    def wake_at_ns(self, now_ns: int) -> int:
        """When to feed TimerFired if nothing happens before."""
        times: list[int | None] = [self._timeouts.next_ns(), self._allowance.next_ns(now_ns), *self._channels.pauses()]
        if not self._channels.busy("renew"):
            times.append(self._renewing.at_ns)
        if not self._channels.busy("sweep"):
            times += (self._sweeping.at_ns, self._membership.at_ns)
        if self._hand:
            times += (self._hand.next_end_ns(), self._wait_over_ns(now_ns))
        if self._stopping.on:
            times += (self._stopping.next_ns(now_ns), self._membership.leaving_until_ns)
        if self._owed.finishes and self._channels.free("work"):
            times.append(self._owed.linger_until_ns)
        if self._turn_asked_ns is not None and now_ns - self._turn_asked_ns < TURNING_MS * MS:
            times.append(now_ns + LINGER_MS * MS)
        known = [at_ns for at_ns in times if at_ns is not None]
        self._asked_ns = max(now_ns, min(known, default=now_ns + self._settings.sweep_ms * MS))
        return self._asked_ns

    def _wait_over_ns(self, now_ns: int) -> int | None:
        """When to look whether the job that has waited longest for a handler goes back. That depends on the handlers that run, so
        what has waited too long is looked at again and again."""
        oldest_ns = self._hand.oldest_wait_ns()
        if oldest_ns is None:
            return None
        over_ns = oldest_ns + WAIT_MS_MAX * MS
        return over_ns if over_ns > now_ns else now_ns + WAIT_MS_MAX * MS // 2

    # -- events

    def on(self, event: Event, now_ns: int) -> list[Action]:
        """Take one event in; say what to do."""
        actions: list[Action] = []
        starved = self._was_starved(now_ns)
        self._channels.tick(now_ns)
        match event:
            case Answered():
                self._channels.returned(event)
                if event.channel == "finish":
                    self._finishing = ()
                self._learn(event, now_ns, actions)
                self._channels.settled(event.channel)
            case Unanswered():
                self._channels.returned(event)
                self._failed(event, now_ns)
            case HandlerEnded():
                self._handler_ended(event, now_ns)
            case BatchEnded(ends=ends):
                for number, end in enumerate(ends):
                    self._handler_ended(end, now_ns, measured=not number)
            case StopAsked(reason=reason):
                self._stopping.ask(reason, now_ns)
            case MoreTime(lease=lease, for_ms=for_ms):
                self._timeouts.extend(lease, for_ms, now_ns)
            case PauseAsked(paused=paused):
                self._allowance.paused_here = paused
            case Progressed(lease=lease, body=body):
                self._progress.tell(lease, body)
            case Forked():
                self._take_new_incarnation()
            case TimerFired():
                pass
        for lease in self._hand.run_out(now_ns):
            actions.append(LoseLease(lease, self._starved_ms))
        if self._timeouts:
            self._time_out(now_ns, actions)
        if isinstance(event, Answered) and isinstance(event.reply, Extended) and not starved:
            self._starved_ms = 0
        self._start_jobs(now_ns, actions)
        self._use_work_channel(now_ns, actions)
        self._use_finish_channel(actions)
        self._use_renew_channel(now_ns, actions)
        self._use_sweep_channel(now_ns, actions)
        self._use_wake_channel(now_ns, actions)
        self._maybe_exit(now_ns, actions)
        if self._allowance.share is not None:
            self._report(self._allowance.share, now_ns)
        return actions

    def _report(self, share: Share, now_ns: int) -> None:
        """Tell the other queues what this one leaves to them."""
        able = self._clock.known and not self._stopping.on and not self._allowance.closed(now_ns)
        able = able and (self._channels.free("work") or self._channels.busy("work"))
        share.report(self.in_hand, asking=self._claiming.asking, hungry=able and self._claiming.hungry)

    def turn(self, lease: Lease, now_ns: int, result: bytes | None = None) -> LeasedJob | None:
        """A handler has returned, and its place is asked for the next job: `on` with HandlerEnded for runners of many short
        handlers, who would else pay for a whole decision after each. None: nothing was taken in, give the end to `on`.

        What more than the next start may follow from the end (a call to send, a wait) is decided within the 5 ms that a finish
        may linger, and at once where there is no next job.
        """
        line = self._hand.line_running(lease)
        if line is None or not line.ready or self._stopping.reason is not None:
            return None
        self._turn_asked_ns = now_ns
        if self._asked_ns is None or not 0 < self._asked_ns - now_ns <= LINGER_MS * MS:
            return None
        if self._channels.free("work") and not self._owed.lingers(self._hand.startable - 1, now_ns, more=1):
            return None
        swapped = self._hand.swap(line, lease, now_ns)
        if swapped is None:
            return None
        ended, following, took_ns = swapped
        self._prefetch.ended(took_ns)
        self._took.succeeded(ended.name, took_ns)
        self._owed.finish(lease, now_ns)
        if result is not None:
            self._owed.keep(ended, result, took_ns)
        self._stopping.job_ended(now_ns)
        return following

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
            case Woken():
                self._claiming.waited(marker=reply.marker)
                if reply.news and isinstance(operation, Wait) and operation.version is not None:
                    self._sweeping.learn(operation.version)
                if reply.marker and not self._may_claim(now_ns):
                    # The marker is taken and this worker cannot claim: a sweep re-arms it for the others.
                    self._sweeping.at_ns = event.done_ns
            case Extended():
                self._extended(event, operation, reply, actions)
            case Marked() if isinstance(operation, NoteProgress):
                if reply.result == "stale":
                    actions += self._hand.lose(operation.lease, self._starved_ms)
            case Enqueued():
                # Refused as late: it goes out once more, with the same identity and a new time.
                if reply.result != "refused":
                    self._owed.drop(self._owed.rerouting.answered().job.lease, "rerouted")
            case Marked() if isinstance(operation, Mark):
                self._marked(operation.lease, reply, actions)
            case Beaten() if isinstance(operation, Beat):
                self._membership.answered(operation)
                self._sweeping.beaten(reply, event.done_ns)
            case TookTold():
                self._took.answered()
            case Reaped():
                self._sweeping.reaped(operation, reply, event.done_ns)
                self._claiming.hear(bool(reply.leases))
            case Promoted():
                self._claiming.hear(reply.promoted > 0)
                self._sweeping.promoted(reply, event.done_ns)
                if reply.version != self._claiming.version:
                    self._sweeping.learn(self._claiming.version)
            case Learned():
                self._claiming.learned(reply)
                self._sweeping.learned(self._claiming.classes)
                self._allowance.learned(reply, event.done_ns)
                self._hand.resize(self._allowance.pooled)
            case Ticked():
                self._claiming.hear(bool(reply.jobs))
            case Counts():
                if self._settings.burst and not self.owned and self._nothing_left(reply):
                    self._stopping.ask("empty", event.done_ns)
            case _:
                # An ended lease: ok, repeated or stale, the server has decided, and there is nothing left to do.
                pass

    def _nothing_left(self, counts: Counts) -> bool:
        """Whether a burst is over: nothing is to come, or where delays do not matter, nothing could be claimed."""
        on = counts.active + counts.handing
        if self._settings.delayed:
            return counts.waiting + counts.delayed + on == 0
        return on == 0 and not self._claiming.hungry and not self._channels.busy("work")

    def _marked(self, lease: Lease, reply: Marked, actions: list[Action]) -> None:
        if reply.result != "stale":
            self._hand.marked(lease)
        else:
            actions += self._hand.lose(lease, self._starved_ms)

    def _claimed(self, event: Answered, claimed: Claimed, now_ns: int) -> None:
        if claimed.result == "stale":
            # The outstanding claim was refused as old: another process uses this incarnation (rule 4).
            self._take_new_incarnation()
        self._hand.add(claimed.jobs, self._channels.first_send_ns(event), now_ns)
        self._owed.bury(claimed.unreadable)
        claim = event.call.operation.claim if isinstance(event.call.operation, Finish) else event.call.operation
        if self._settings.priorities is not None and not claimed.jobs:
            # What waits is for others, and so is the marker that the claim has left: it must not come back here at once.
            self._channels.pause("wake", now_ns)
        self._claiming.answered(claim if isinstance(claim, Claim) else None, claimed)
        if self._allowance.share is not None:
            self._allowance.share.answered(len(claimed.jobs))
        self._sweeping.not_after(event.done_ns, claimed.sleep_ms)

    def _extended(self, event: Answered, operation: Operation, reply: Extended, actions: list[Action]) -> None:
        if not isinstance(operation, Extend):
            return
        results = list(zip(operation.leases, reply.items, strict=True))
        self._hand.renewed([lease for lease, (result, _) in results if result in ("ok", "repeated")], event.first_send_ns)
        for lease, (result, _) in results:
            if result == "void":
                self._renewing.came_late(event.done_ns)
            elif result in ("stale", "cancelled"):
                # The handler is told; when it ends, its finish is sent all the same (rule 37).
                actions += self._hand.lose(lease, self._starved_ms, cancelled=result == "cancelled")

    def _handler_ended(self, event: HandlerEnded, now_ns: int, *, measured: bool = True) -> None:
        job, took_ns, given_up = self._hand.ended(event.lease, now_ns)
        if measured:
            self._prefetch.ended(took_ns)
        self._stopping.job_ended(now_ns)
        self._timeouts.ended(event.lease)
        # The next job with a crash behind it may be claimed: it was passed by while this one ran.
        self._claiming.hear(job.crashes > 0)
        if job.crashes:
            self._crashed_end = event.lease
        if given_up:
            # It was told as failed before: what came of it since is of no use.
            return
        if event.error is not None:
            self._took.failed(job.name, took_ns)
            self._fail(job, event.error, event.trace, event.verdict)
        else:
            self._took.succeeded(job.name, took_ns)
            self._owed.finish(event.lease, now_ns)
            if event.result is not None:
                self._owed.keep(job, event.result, took_ns)

    def _fail(self, job: LeasedJob, error: str, trace: str, verdict: Verdict) -> None:
        delay_ms = verdict.delay_ms
        if delay_ms is None:
            delay_ms = backoff.delay_ms(job.options, job.failures, self._draw)
        failure = Failure(job.lease, error, delay_ms, trace, verdict.charge)
        end = ending(job.options, verdict)
        match end.kind:
            case "retry":
                self._owed.retry(failure)
            case "bury":
                self._owed.bury([failure])
            case "rerouted":
                self._owed.rerouting.add(job, failure, end.target)
            case _:
                self._owed.drop(job.lease, end.kind)

    def _time_out(self, now_ns: int, actions: list[Action]) -> None:
        stop, give_up = self._timeouts.due(now_ns)
        actions.extend(map(StopHandler, stop))
        for job in give_up:
            self._took.failed(job.name, self._hand.give_up(job.lease, now_ns))
            self._fail(job, timed_out(job), "", TIMED_OUT)
            actions.append(GiveUpHandler(job, self._hand.stuck))

    def _failed(self, event: Unanswered, now_ns: int) -> None:
        operation = event.call.operation
        if event.fault:
            self._channels.settled(event.channel)
            if event.channel == "finish":
                self._finishing = ()
        match operation:
            case Finish(leases=leases, claim=Claim(), values=values) if event.fault:
                # Rule 1: the fused call failed as a whole; the finish half goes alone.
                self._claiming.asking = False
                self._channels.resend(event.channel, self._build(Finish(leases, None, values)), now_ns)
            case Claim() | Finish() | Retry() | Bury() | Drop() | Release() | Mark() | Enqueue() if not event.fault:
                # One claim is outstanding per incarnation, and it is re-sent until it is answered (rule 4).
                self._channels.resend(event.channel, event.call, now_ns, unanswered_since_ns=event.first_send_ns)
            case Claim():
                self._claiming.asking = False
                self._claiming.hungry = True
                self._channels.pause("work", now_ns)
            case Enqueue():
                # It cannot go there: here it has failed like any other.
                self._owed.retry(self._owed.rerouting.answered().failure)
            case Mark(lease=lease):
                # Nobody could charge its next crash: another worker may have better luck.
                self._owed.release(self._hand.unmark(lease))
                self._channels.pause("work", now_ns)
            case Tick() if event.fault:
                self._sweeping.tick_failed(now_ns)
            case Promote() | Reap() | News() | Count() | Tick():
                self._sweeping.failed(now_ns)
            case Beat():
                self._membership.failed(operation, now_ns)
            case TellTook():
                self._took.unanswered(now_ns, fault=event.fault)
            case Extend():
                self._renewing.soon(now_ns)
            case Wait():
                self._claiming.hungry = True
                self._channels.pause("wake", now_ns)
            case _:
                pass

    def _take_new_incarnation(self) -> None:
        self._channels.drop_claim()
        self._claiming.take_new_incarnation()
        self._took.forget()

    # -- decisions

    def _start_jobs(self, now_ns: int, actions: list[Action]) -> None:
        if self._stopping.on or self._allowance.paused(now_ns):
            self._owed.release(self._hand.give_back())
            return
        begun = self._hand.begin(now_ns)
        if begun is not NOTHING:
            for start in begun.started:
                for job in start.batch or (start.job,):
                    self._timeouts.began(job, now_ns)
            actions.extend(begun.started)
            self._owed.release(begun.too_late)
            self._mark = begun.mark or self._mark
        measured = self._prefetch.ahead(self._hand.running_since_ns(), now_ns)
        for line in self._hand.lines:
            if line.ready:
                # Of the places that the measure knows, those of the other line do not work these off.
                ahead = self._prefetch.ahead(line.running_since_ns(), now_ns, line.places)
                self._owed.release(self._hand.give_back_idle(line, min(measured, ahead), WAIT_MS_MAX * MS, now_ns))
        # The places of a group are shared job by job.
        self._ahead = measured if self._allowance.share is not None else self._hand.ahead(measured)

    def _use_work_channel(self, now_ns: int, actions: list[Action]) -> None:
        if not self._channels.free("work") or self._channels.send_again("work", actions):
            return
        operation = self._next_work(now_ns)
        if isinstance(operation, Enqueue):
            queue = self._owed.rerouting.first.queue
            build = self._elsewhere(queue) if queue and self._elsewhere is not None else self._build
            self._channels.send("work", build(operation), actions)
        elif operation is not None:
            self._channels.send("work", self._build(operation), actions)

    def _use_finish_channel(self, actions: list[Action]) -> None:
        """Finishes travel with the next claim. While one is on its way and nothing runs here, they would wait for its answer past
        an idle moment: then they go by themselves, and the server has work while the next jobs come in (rule 21)."""
        if not self._channels.free("finish") or self._channels.send_again("finish", actions):
            return
        if self._owed.finishes and not self.owned and self._channels.busy("work"):
            self._finishing, values = self._owed.take_finishes()
            self._channels.send("finish", self._build(Finish(self._finishing, None, values)), actions)

    def _next_work(self, now_ns: int) -> Operation | None:
        end = self._owed.take_end()
        if end is not None:
            return end
        if self._owed.rerouting and self._clock.known:
            return self._owed.rerouting.enqueue(self._clock.now_ms(now_ns))
        mark = self._mark if self._mark is not None and self._hand.is_marking(self._mark) else None
        if mark is not None and not self._owed.has_finish(self._crashed_end) and self._crashed_end not in self._finishing:
            # Not before the end of the one that was marked before it is told: that would be charged for the crash of this one.
            # It waits for nothing else: the finishes of a flood of others would never let it through.
            self._mark = None
            return Mark(mark)
        if mark is None and self._lingers(now_ns):
            return None
        claim = self._next_claim(now_ns)
        if self._owed.finishes:
            leases, values = self._owed.take_finishes()
            return Finish(leases, claim, values)
        return claim if self._claiming.hungry else None

    def _lingers(self, now_ns: int) -> bool:
        """Whether finishes wait for others to travel with: for 5 ms, and only while more jobs wait for a handler than have ended,
        so that the next jobs are here before the last of these has started (rule 21)."""
        return not self._stopping.on and self._owed.lingers(self._hand.startable, now_ns)

    def _next_claim(self, now_ns: int) -> Claim | None:
        """A claim for the free places. It rides on a finish even when the last one found nothing: that costs no round trip."""
        free = self._free
        if free <= 0 or self._stopping.on or not self._clock.known:
            return None
        if not self._owed.finishes and self._hand.busy and free < self._hand.startable:
            # It would bring a few, and the next one many: as long as most of what was taken ahead has not started, it can wait.
            return None
        if not self._claiming.hungry and not self._owed.finishes:
            return None
        if self._allowance.share is not None and not self._claiming.hungry:
            # Places that others may need are not kept for what is not known to be there.
            return None
        if not self._claiming.classes or (free := self._allowance.most(free, self.in_hand, now_ns)) <= 0:
            return None
        return self._claiming.next_claim(free, 0 if self._hand.has_crashed else 1, now_ns)

    def _use_renew_channel(self, now_ns: int, actions: list[Action]) -> None:
        if self._channels.busy("renew") or now_ns < self._renewing.at_ns:
            return
        self._renewing.begin(now_ns)
        renewal = self._renewing.next_renewal(self._hand.leases() + self._owed.leases(), now_ns)
        if renewal is not None:
            self._channels.send("renew", self._build(renewal), actions)

    def _use_sweep_channel(self, now_ns: int, actions: list[Action]) -> None:
        if self._channels.busy("sweep"):
            return
        incarnation = self._claiming.incarnation
        operation: Operation | None = None
        if self._membership.due(now_ns):
            operation = self._membership.next_beat(incarnation, self._hand.leases(), now_ns)
        if operation is None and self._stopping.on and not (self.owned or self._telling) and self._membership.leaves(now_ns):
            operation = self._took.next_report(incarnation, now_ns, last=True) or self._membership.next_leave(incarnation)
        operation = operation or self._progress.next_operation() or self._membership.next_note(now_ns)
        operation = operation or self._took.next_report(incarnation, now_ns)
        operation = operation or self._sweeping.next_operation(incarnation, now_ns)
        if operation is not None:
            self._channels.send("sweep", self._build(operation), actions)

    def _use_wake_channel(self, now_ns: int, actions: list[Action]) -> None:
        """Block for a marker only when the last claim found nothing more and there is room (rule 22)."""
        if self._claiming.hungry or not self._room(now_ns) or self._stopping.on or self._sweeping.asking:
            return
        if self._channels.free("wake"):
            self._channels.send("wake", self._build(self._claiming.next_wait()), actions)

    def _maybe_exit(self, now_ns: int, actions: list[Action]) -> None:
        if self._exited or self._stopping.reason is None:
            return
        telling = self._telling or (not self.owned and self._membership.leaves(now_ns))
        if self._stopping.over(now_ns, running=self.owned > 0, telling=telling):
            self._exited = True
            actions.append(Exit(self._stopping.reason))

    @property
    def _telling(self) -> bool:
        """Whether a call about jobs is out, or has to go out."""
        busy = self._channels.busy("work") or self._channels.busy("finish")
        return bool(self._owed) or self._channels.resending or busy

    def _room(self, now_ns: int) -> bool:
        if not self._settings.classes:
            return False
        if self._allowance.share is not None:
            # Whether this queue has work decides what the others may claim, so it is always listened to.
            return not self._allowance.closed(now_ns)
        return self._free > 0 and not self._allowance.closed(now_ns)

    def _may_claim(self, now_ns: int) -> bool:
        share = self._allowance.share
        return self._room(now_ns) and not (share is not None and share.full)

    @property
    def _free(self) -> int:
        """Jobs that there is room for, with the handlers that may run at once as it is set now."""
        wanted = self._inline_places + self._allowance.pooled + self._ahead
        return wanted - self.in_hand if self._allowance.share is not None else self._hand.room(wanted)
