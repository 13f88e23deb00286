"""How the step machine handles answers, failed calls, and handlers that have ended. Pure code."""

from __future__ import annotations

from engine.ops.base import Operation
from engine.ops.claims import (
    Bury,
    Claim,
    Claimed,
    Drop,
    Extend,
    Extended,
    Failure,
    Finish,
    FinishedAndClaimed,
    LeasedJob,
    Mark,
    Marked,
    Release,
    Retry,
)
from engine.ops.jobs import Enqueue, Enqueued, Lease
from engine.ops.looks import Count, Counts, NoteProgress
from engine.ops.schedules import Tick, Ticked
from engine.ops.sweeps import ReadWorkerUpdates, ReapLost, Sweep, Swept, Wait, Woken, WorkerUpdates
from engine.ops.workers import Beat, Beaten, ListConnections, ListedConnections, ReportRunTimes, RunTimesReported
from engine.outcomes import TIMED_OUT, Verdict, ending
from engine.worker.machine import backoff
from engine.worker.machine.deadlines import timed_out
from engine.worker.machine.events import (
    Action,
    Answered,
    GiveUpHandler,
    HandlerEnded,
    StopHandler,
    Unanswered,
)
from engine.worker.machine.state import State


class ReplyHandling(State):
    """Updates the state. Nothing is sent from here: what has to be sent is added to the pending acknowledgements."""

    def _learn(self, event: Answered, now_ns: int, actions: list[Action]) -> None:
        operation, reply = event.call.operation, event.reply
        match reply:
            case FinishedAndClaimed():
                self._claimed(event, reply.claimed, now_ns, actions)
            case Claimed():
                self._claimed(event, reply, now_ns, actions)
            case Woken():
                self._claiming.waited(marker=reply.marker)
                if reply.news and isinstance(operation, Wait) and operation.version is not None:
                    self._sweeping.learn(operation.version, marker=True)
                if reply.marker and not self._may_claim(now_ns):
                    # The marker is taken and this worker cannot claim: a sweep re-arms it for the others.
                    self._sweeping.soon(event.done_ns)
            case Extended():
                self._extended(event, operation, reply, actions)
            case Marked() if isinstance(operation, NoteProgress):
                if reply.result == "stale":
                    actions += self._lease_table.lose(operation.lease, self._starved_ms)
            case Enqueued():
                # Refused as late: it goes out once more, with the same identity and a new time.
                if reply.result != "refused":
                    self._acknowledgements.drop(self._acknowledgements.rerouting.answered().job.lease, "rerouted")
            case Marked() if isinstance(operation, Mark):
                self._marked(operation.lease, reply, actions)
            case Beaten() if isinstance(operation, Beat):
                self._heartbeat.answered(operation, reply.turn_ms, event.done_ns)
                self._sweeping.beaten(reply, event.done_ns)
                if reply.looks and self._presence.run_id:
                    # Its sweep is answered with the look, unless another one was first.
                    self._sweeping.soon(event.done_ns)
                self._compare(reply.version)
            case RunTimesReported():
                self._statistics.answered()
            case Swept() if isinstance(operation, Sweep):
                self._claiming.hear(bool(reply.leases) or reply.promoted > 0)
                if self._sweeping.swept(operation, reply, event.done_ns):
                    self._heartbeat.soon(event.done_ns)
                self._presence.assigned(reply.watched, event.done_ns)
                if not operation.orphans:
                    self._compare(reply.version)
            case ListedConnections():
                self._presence.looked(reply, event.first_send_ns, event.done_ns)
            case Swept() if isinstance(operation, ReapLost):
                self._claiming.hear(bool(reply.leases))
                self._presence.reaped(reply, event.done_ns)
            case WorkerUpdates():
                self._claiming.learned(reply)
                self._sweeping.learned(self._claiming.classes)
                self._allowance.learned(reply, event.done_ns)
                self._lease_table.resize(self._allowance.pooled)
            case Ticked():
                self._claiming.hear(bool(reply.jobs))
            case Counts() if reply.cursor and not reply.waiting:
                self._sweeping.count_on(reply.cursor)
            case Counts():
                if self._settings.burst and not self.owned and self._nothing_left(reply, now_ns):
                    self._stopping.ask("empty", event.done_ns)
            case _:
                # An ended lease: ok, repeated or stale, the server has decided, and there is nothing left to do.
                pass

    def _compare(self, version: int) -> None:
        """A reply named the version of the news: ask for them where it is not the one that this worker knows."""
        if version != self._claiming.version:
            self._sweeping.learn(self._claiming.version)

    def _nothing_left(self, counts: Counts, now_ns: int) -> bool:
        """Whether a burst is over: nothing is to come, or where delays do not matter, nothing can be claimed."""
        on = counts.active + counts.handing
        if self._settings.delayed:
            return counts.waiting + counts.delayed + on == 0
        if on or self._claiming.hungry or self._call_slots.busy("work"):
            return False
        # The last claim may be older than the last finish, which has let go of a child: a claim that is sent now would find it.
        self._last_look = self._room(now_ns) and self._claiming.look_again()
        return not self._last_look

    def _marked(self, lease: Lease, reply: Marked, actions: list[Action]) -> None:
        if reply.result != "stale":
            self._lease_table.marked(lease)
        else:
            actions += self._lease_table.lose(lease, self._starved_ms)

    def _cancel_told(self, lease: Lease, actions: list[Action]) -> None:
        """The job of a lease was cancelled (rule 26). The lease may be one that the answer to the claim still has to bring."""
        lost = self._lease_table.lose(lease, self._starved_ms, cancelled=True)
        if not lost and self._claiming.asking:
            self._cancelled_early[lease] = None
        actions += lost

    def _claimed(self, event: Answered, claimed: Claimed, now_ns: int, actions: list[Action]) -> None:
        if claimed.result == "stale":
            # The outstanding claim was refused as old: another process uses this incarnation (rule 4).
            self._take_new_incarnation()
        # anchor: lease-counts-from-the-first-send
        self._lease_table.add(claimed.jobs, self._call_slots.first_send_ns(event), now_ns)
        for lease in self._cancelled_early:
            actions += self._lease_table.lose(lease, self._starved_ms, cancelled=True)
        self._cancelled_early.clear()
        self._acknowledgements.bury(claimed.unreadable)
        claim = event.call.operation.claim if isinstance(event.call.operation, Finish) else event.call.operation
        if self._settings.priorities is not None and not claimed.jobs:
            # What waits is for others, and so is the marker that the claim has left: it must not come back here at once.
            self._call_slots.pause("wake", now_ns)
        self._claiming.answered(claim if isinstance(claim, Claim) else None, claimed)
        self._last_look = self._last_look and not claimed.jobs
        if self._last_look and not self._claiming.hungry:
            self._stopping.ask("empty", event.done_ns)
        if self._allowance.share is not None:
            self._allowance.share.answered(len(claimed.jobs))
        self._sweeping.not_after(event.done_ns, claimed.sleep_ms)

    def _extended(self, event: Answered, operation: Operation, reply: Extended, actions: list[Action]) -> None:
        if not isinstance(operation, Extend):
            return
        results = list(zip(operation.leases, reply.items, strict=True))
        self._lease_table.renewed([lease for lease, (result, _) in results if result in ("ok", "repeated")], event.first_send_ns)
        for lease, (result, _) in results:
            if result == "void":
                self._renewing.at_once(event.done_ns)
            elif result in ("stale", "cancelled"):
                if result == "stale":
                    self._presence.doubted(event.done_ns)
                # The handler is told; when it ends, its finish is sent all the same (rule 37).
                actions += self._lease_table.lose(lease, self._starved_ms, cancelled=result == "cancelled")

    def _failed(self, event: Unanswered, now_ns: int) -> None:
        operation = event.call.operation
        if event.fault:
            self._call_slots.settled(event.slot)
            if event.slot == "finish":
                self._finishing = ()
        match operation:
            case Finish(leases=leases, claim=Claim(), values=values) if event.fault:
                # Rule 1: the fused call failed as a whole; the finish half goes alone.
                self._claiming.asking = False
                self._call_slots.resend(event.slot, self._build(Finish(leases, None, values)), now_ns)
            # anchor: unanswered-calls-are-repeated
            case Claim() | Finish() | Retry() | Bury() | Drop() | Release() | Mark() | Enqueue() if not event.fault:
                # One claim is outstanding per incarnation, and it is re-sent until it is answered (rule 4).
                self._call_slots.resend(event.slot, event.call, now_ns, unanswered_since_ns=event.first_send_ns)
            case Claim():
                self._claiming.asking = False
                self._claiming.hungry = True
                self._call_slots.pause("work", now_ns)
            case Enqueue():
                # It cannot go there: here it has failed like any other.
                self._acknowledgements.retry(self._acknowledgements.rerouting.answered().failure)
            case Mark(lease=lease):
                # Nobody could charge its next crash: another worker may have better luck.
                self._acknowledgements.release(self._lease_table.unmark(lease))
                self._call_slots.pause("work", now_ns)
            case Tick() if event.fault:
                self._sweeping.tick_failed(now_ns)
            case Sweep() | ReadWorkerUpdates() | Count() | Tick():
                self._sweeping.failed(now_ns)
            case ListConnections() | ReapLost():
                self._presence.failed(fault=event.fault)
            case Beat():
                self._heartbeat.failed(operation, now_ns)
                if operation.until_ms:
                    # Nobody has told whether somebody else leads.
                    self._sweeping.soon(now_ns)
            case ReportRunTimes():
                self._statistics.unanswered(now_ns, fault=event.fault)
            case Extend():
                self._renewing.soon(now_ns)
            case Wait():
                self._claiming.hungry = True
                self._call_slots.pause("wake", now_ns)
            case _:
                pass

    def _take_new_incarnation(self) -> None:
        self._call_slots.drop_claim()
        self._claiming.take_new_incarnation()
        self._statistics.forget()

    def _handler_ended(self, event: HandlerEnded, now_ns: int, *, measured: bool = True) -> None:
        job, took_ns, given_up = self._lease_table.ended(event.lease, now_ns)
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
            self._statistics.failed(job.name, took_ns)
            self._fail(job, event.error, event.trace, event.verdict)
        else:
            self._statistics.succeeded(job.name, took_ns)
            self._acknowledgements.finish(event.lease, now_ns)
            if event.result is not None:
                self._acknowledgements.keep(job, event.result, took_ns)

    def _fail(self, job: LeasedJob, error: str, trace: str, verdict: Verdict) -> None:
        delay_ms = verdict.delay_ms
        if delay_ms is None:
            delay_ms = backoff.delay_ms(job.options, job.failures, self._draw)  # anchor: backoff-grows-with-failures
        failure = Failure(job.lease, error, delay_ms, trace, verdict.charge)
        end = ending(job.options, verdict)
        match end.kind:
            case "retry":
                self._acknowledgements.retry(failure)
            case "bury":
                self._acknowledgements.bury([failure])
            case "rerouted":
                # anchor: rerouted-jobs-are-enqueued-before-they-end
                self._acknowledgements.rerouting.add(job, failure, end.target)
            case _:
                self._acknowledgements.drop(job.lease, end.kind)

    def _time_out(self, now_ns: int, actions: list[Action]) -> None:
        stop, give_up = self._timeouts.due(now_ns)
        actions.extend(map(StopHandler, stop))
        for job in give_up:
            self._statistics.failed(job.name, self._lease_table.give_up(job.lease, now_ns))
            self._fail(job, timed_out(job), "", TIMED_OUT)
            actions.append(GiveUpHandler(job, self._lease_table.stuck))
