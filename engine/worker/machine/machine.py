"""What a worker does next: pure code with events in, calls and timers out
(docs/decisions/state-machine.md).

Threads, sockets and signals only execute it. The same machine runs in the worker process, inside a Locust
user under gevent, and step by step in a simulator. Every `now_ns` is monotonic.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from engine.ops.base import Call, Operation, ServerClock
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
    ReadWorkerUpdates,
    ReapLost,
    Release,
    Retry,
    Sweep,
    Swept,
    Wait,
    Woken,
    WorkerUpdates,
)
from engine.ops.jobs import Enqueue, Enqueued, Lease
from engine.ops.looks import Count, Counts, NoteProgress
from engine.ops.schedules import Tick, Ticked
from engine.ops.workers import (
    Beat,
    Beaten,
    ClientConnection,
    JobCancelled,
    ListConnections,
    ListedConnections,
    ReportRunTimes,
    RunTimesReported,
    UpdatesPublished,
)
from engine.outcomes import RunRequest, backoff_delay_ms, ending, request_of
from engine.worker.machine.acknowledgements import LINGER_MS, PendingAcknowledgements
from engine.worker.machine.claiming import WAIT_MS_MAX, Allowance, CallsInFlight, Claiming, Gate, Prefetch
from engine.worker.machine.concurrency import Quota, Share
from engine.worker.machine.events import (
    MS,
    Action,
    Answered,
    BatchEnded,
    ControlLost,
    Event,
    Exit,
    Forked,
    GiveUpHandler,
    HandlerEnded,
    LoseLease,
    MoreTime,
    NotStarted,
    PauseAsked,
    Progressed,
    StopAsked,
    StopHandler,
    StopReason,
    Subscribed,
    TimerFired,
    Unanswered,
    WatchAsked,
)
from engine.worker.machine.leases import (
    NOTHING,
    LeaseTable,
    Renewing,
    Stopping,
    Timeouts,
    timed_out,
    timeout_of,
)
from engine.worker.machine.reports import Heartbeat, ProgressReports, RunStatistics
from engine.worker.machine.settings import Settings
from engine.worker.machine.sweeping import Presence, Sweeping

#: After the last `next_start` the machine is woken for so long within each linger: what those left undecided
#: is due then.
START_POLL_MS = 20


class WorkerMachine:
    """The machine of one worker. Feed it events with `on`; execute the actions in their order; call again at
    `wake_at_ns`.

    `draw` gives the jitter of growing back-offs, numbers in [0, 1). `elsewhere` builds the calls of another
    queue, by its name.
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
        judge: Callable[[str, BaseException], RunRequest] = lambda _, failure: request_of(failure),
        share: Share | None = None,
        quota: Quota | None = None,
        elsewhere: Callable[[str], Callable[[Operation], Call[Any]]] | None = None,
    ) -> None:
        self._settings = settings
        self._build = build
        self._elsewhere = elsewhere
        #: What the rules of a name make of an exception.
        self._judge = judge
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
        # What a finish in flight carries.
        self._finishing: tuple[Lease, ...] = ()
        self._in_flight = CallsInFlight()
        self._sweeping = Sweeping(settings, now_ns)
        self._presence = Presence(clock)
        self._timeouts = Timeouts(settings)
        self._stopping = Stopping(settings)
        # The handlers that were told to end before the grace was over, or because it is, until they do:
        # whether it was that.
        self._interrupted: dict[Lease, bool] = {}
        self._cut_off = False
        # A burst's count found nothing that runs: it ends when a claim that is sent after that finds nothing
        # either.
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
        # When `next_start` was last asked: what it leaves undecided is decided within a linger.
        self._start_asked_ns: int | None = None
        self._starved_after_ns = settings.lease_ms // 5 * MS
        self._starved_ms = 0
        self._progress = ProgressReports(self._lease_table)
        # When the next heartbeat is due, as of the last decision about sweeps and beats.
        self._beat_at_ns = self._heartbeat.next_ns(informed=False)

    def wake_at_ns(self, now_ns: int) -> int:
        """When to feed TimerFired if no event comes first, monotonic ns."""
        busy = self._in_flight.busy
        times: list[int | None] = [self._allowance.next_ns(now_ns), *self._in_flight.pauses()]
        if "renew" not in busy:
            times.append(self._renewing.at_ns)
        if "sweep" not in busy:
            times += (self._sweeping.at_ns, self._beat_at_ns, self._presence.next_ns())
        if self._timeouts.jobs:
            times.append(self._timeouts.next_ns())
        if self._lease_table:
            times += (self._lease_table.next_end_ns(), self._wait_over_ns(now_ns))
        if self._stopping.on:
            times += (self._stopping.next_ns(now_ns), self._heartbeat.leaving_until_ns)
        if self._acknowledgements.finishes and self._in_flight.free("work"):
            times.append(self._acknowledgements.linger_until_ns)
        if self._start_asked_ns is not None and now_ns - self._start_asked_ns < START_POLL_MS * MS:
            times.append(now_ns + LINGER_MS * MS)
        known = [at_ns for at_ns in times if at_ns is not None]
        self._asked_ns = max(now_ns, min(known, default=now_ns + self._settings.sweep_ms * MS))
        return self._asked_ns

    def _wait_over_ns(self, now_ns: int) -> int | None:
        """When to look whether the job that has waited longest for a handler goes back. That depends on the
        handlers that run, so what has waited too long is looked at again and again."""
        oldest_ns = self._lease_table.oldest_wait_ns()
        if oldest_ns is None:
            return None
        over_ns = oldest_ns + WAIT_MS_MAX * MS
        return over_ns if over_ns > now_ns else now_ns + WAIT_MS_MAX * MS // 2

    def on(self, event: Event, now_ns: int) -> list[Action]:
        """Process one event. Returns the actions to execute, in order."""
        actions: list[Action] = []
        in_flight, asked_ns, self._asked_ns = self._in_flight, self._asked_ns, None
        starved = asked_ns is not None and now_ns - asked_ns >= self._starved_after_ns
        if starved:
            # Woken so late that a renewal may have come too late for it (rule 14).
            self._starved_ms = max(self._starved_ms, (now_ns - (asked_ns or 0)) // MS)
        if in_flight.paused:
            in_flight.tick(now_ns)
        match event:
            case Answered():
                in_flight.busy.discard(event.kind)
                in_flight.failures.pop(event.kind, None)
                if event.kind == "finish":
                    self._finishing = ()
                self._learn(event, now_ns, actions)
                # No copy of it is unanswered.
                in_flight.first_sends.pop(event.kind, None)
            case Unanswered():
                in_flight.busy.discard(event.kind)
                self._failed(event, now_ns)
            case HandlerEnded():
                self._handler_ended(event, now_ns)
            case BatchEnded(ends=ends):
                for number, end in enumerate(ends):
                    self._handler_ended(end, now_ns, measured=not number)
            case NotStarted(leases=leases):
                for lease in leases:
                    self._not_started(lease, now_ns)
            case StopAsked(reason=reason):
                self._stopping.ask(reason, now_ns)
            case MoreTime(lease=lease, for_ms=for_ms):
                self._timeouts.extend(lease, for_ms, now_ns)
            case PauseAsked(paused=paused):
                self._allowance.pause_here(paused)
            case WatchAsked(on=on):
                self._heartbeat.watch(on, now_ns)
            case JobCancelled(lease=lease):
                self._cancel_told(lease, actions)
            case UpdatesPublished(version=version):
                # The wait that is in flight gets the wake-up of the updates.
                if "wake" not in in_flight.busy:
                    self._compare(version)
            case Subscribed(connection=connection):
                self._is_connected(connection, now_ns)
                if self._lease_table:
                    self._renewing.at_once(now_ns)
            case ControlLost():
                self._is_connected(None, now_ns)
            case Progressed(lease=lease, body=body):
                self._progress.tell(lease, body)
            case Forked():
                # The connection is the parent's.
                self._presence.connected(None)
                self._take_new_incarnation()
            case TimerFired():
                pass
        if run_out := self._lease_table.run_out(now_ns):
            actions.extend(LoseLease(lease, self._starved_ms) for lease in run_out)
        if self._timeouts.jobs:
            self._time_out(now_ns, actions)
        if self._stopping.on and not self._cut_off and self._stopping.grace_over(now_ns):
            running = self._lease_table.running(self._settings.stoppable)
            jobs = self._timeouts.untold(running)
            # Those that were told of their timeout are waited for as well, and have failed.
            self._interrupted = {job.lease: job in jobs for job in running}
            self._cut_off = bool(running)
            actions.extend(StopHandler(job, "stop") for job in jobs)
        if isinstance(event, Answered) and isinstance(event.reply, Extended) and not starved:
            self._starved_ms = 0
        if self._allowance.quota is not None:
            self._take_places(self._allowance.quota, now_ns)
        self._start_jobs(now_ns, actions)
        self._send_work(now_ns, actions)
        if self._acknowledgements.finishes or in_flight.again:
            self._send_finish(actions)
        if now_ns >= self._renewing.at_ns and "renew" not in in_flight.busy:
            self._send_renew(now_ns, actions)
        # Before the sweep: a worker that waits for updates need not ask for them.
        if not self._claiming.wants_jobs and in_flight.free("wake"):
            self._send_wake(now_ns, actions)
        if "sweep" not in in_flight.busy:
            self._send_sweep(now_ns, actions)
        if self._stopping.reason is not None:
            self._maybe_exit(self._stopping.reason, now_ns, actions)
        if self._allowance.share is not None:
            self._report(self._allowance.share, now_ns)
        if self._sweeping.leads is not self._led:
            self._led = self._sweeping.leads
            if self.on_lead is not None:
                self.on_lead(self._led)
        return actions

    def next_start(self, lease: Lease, now_ns: int, result: bytes | None = None) -> LeasedJob | None:
        """A handler has returned, and its place asks for the next job. This is `on` with HandlerEnded for
        runners of many short handlers, which saves a whole decision after each. None: nothing was taken in,
        give the end to `on`.

        Whatever else may follow from the end, such as a call or a wait, is decided within the 5 ms that a
        finish may linger; at once where there is no next job.
        """
        run_queue = self._lease_table.queue_running(lease)
        if run_queue is None or not run_queue.ready or self._stopping.reason is not None:
            return None
        self._start_asked_ns = now_ns
        if self._asked_ns is None or not 0 < self._asked_ns - now_ns <= LINGER_MS * MS:
            return None
        if self._in_flight.free("work") and not self._acknowledgements.lingers(
            self._lease_table.startable - 1, now_ns, more=1
        ):
            return None
        swapped = self._lease_table.swap(run_queue, lease, now_ns)
        if swapped is None:
            return None
        ended, following, took_ns = swapped
        self._prefetch.ended(took_ns)
        self._statistics.succeeded(ended.name, took_ns)
        self._acknowledgements.finish(lease, now_ns)
        if result is not None:
            self._acknowledgements.keep(ended, result, took_ns)
        self._stopping.job_ended(now_ns)
        return following

    def _is_connected(self, connection: ClientConnection | None, now_ns: int) -> None:
        """The control connection is another one, or none: a heartbeat says so at once, or others would miss
        the one before."""
        if self._presence.connected(connection):
            self._heartbeat.soon(now_ns)  # anchor: new-connections-are-named-at-once

    def _take_places(self, quota: Quota, now_ns: int) -> None:
        """Use as many places as this shard has now."""
        work = (
            self._claiming.wants_jobs
            or self._lease_table.startable > 0
            or bool(self._acknowledgements.finishes)
        )
        wants = self._able(now_ns) and work
        running = len(self._lease_table.running_since_ns())
        places = quota.update(self.leased + self._claiming.asking, running, now_ns, wants=wants)
        if places != self._allowance.pooled:
            self._allowance.pooled = places
            self._lease_table.resize(places)

    def _able(self, now_ns: int) -> bool:
        """Whether this worker could claim, had it a place."""
        able = self._clock.known and not self._stopping.on and not self._allowance.closed(now_ns)
        return able and ("work" in self._in_flight.busy or "work" not in self._in_flight.paused)

    def _report(self, share: Share, now_ns: int) -> None:
        """Report this queue's use of the group's places, so that other queues can claim."""
        able = self._able(now_ns)
        share.report(self.leased, asking=self._claiming.asking, wants_jobs=able and self._claiming.wants_jobs)

    # -- What to send, of all that is wanted and may go now.

    def _start_jobs(self, now_ns: int, actions: list[Action]) -> None:
        if self._stopping.on or (self._allowance.restrained and self._allowance.paused(now_ns)):
            self._acknowledgements.release(self._lease_table.give_back())
            return
        places = None if self._allowance.quota is None else self._allowance.pooled
        if not self._lease_table and not self._lease_table.largest:
            self._ahead = self._prefetch.ahead((), now_ns, places)
            return
        begun = self._lease_table.begin(now_ns)
        if begun is not NOTHING:
            for start in begun.started:
                for job in start.batch or (start.job,):
                    self._timeouts.began(job, now_ns)  # anchor: finishes-follow-their-handlers
            actions.extend(begun.started)
            self._acknowledgements.release(begun.too_late)
            self._mark = begun.mark or self._mark
        measured = self._prefetch.ahead(self._lease_table.running_since_ns(), now_ns, places)
        for run_queue in self._lease_table.run_queues:
            if run_queue.ready:
                # Of the places that the measure knows, those of the other queue do not work these off.
                ahead = self._prefetch.ahead(run_queue.running_since_ns(), now_ns, run_queue.places)
                idle = self._lease_table.give_back_idle(
                    run_queue, min(measured, ahead), WAIT_MS_MAX * MS, now_ns
                )
                self._acknowledgements.release(idle)
        # The places of a group are shared job by job.
        self._ahead = measured
        if self._lease_table.largest and self._allowance.share is None:
            self._ahead = self._lease_table.ahead(measured)

    def _send_work(self, now_ns: int, actions: list[Action]) -> None:
        if not self._in_flight.takes("work", actions):
            return
        operation = self._next_work(now_ns)
        if isinstance(operation, Enqueue):
            queue = self._acknowledgements.rerouting.first.queue
            build = self._elsewhere(queue) if queue and self._elsewhere is not None else self._build
            self._in_flight.send("work", build(operation), actions)
        elif operation is not None:
            self._in_flight.send("work", self._build(operation), actions)

    def _send_finish(self, actions: list[Action]) -> None:
        """Finishes travel with the next claim. While one is in flight and nothing runs here, they would wait
        for its answer past an idle moment. Then they go by themselves, and the server has work while the next
        jobs come in (rule 21)."""
        if not self._in_flight.takes("finish", actions):
            return
        if self._acknowledgements.finishes and not self.owned and "work" in self._in_flight.busy:
            self._finishing, values = self._acknowledgements.take_finishes()
            self._in_flight.send("finish", self._build(Finish(self._finishing, None, values)), actions)

    def _next_work(self, now_ns: int) -> Operation | None:
        end = self._acknowledgements.take_end()
        if end is not None:
            return end
        if self._acknowledgements.rerouting.waiting and self._clock.known:
            return self._acknowledgements.rerouting.enqueue(self._clock.now_ms(now_ns))
        mark = self._mark if self._mark is not None and self._lease_table.is_marking(self._mark) else None
        ending = (*self._acknowledgements.finishes, *self._finishing)
        if mark is not None and self._crashed_end not in ending:
            # Not before the end of the one that was marked before it is told: that would be charged for the
            # crash of this one. It waits for nothing else: the finishes of a flood of others would never let
            # it through.
            self._mark = None
            return Mark(mark)
        if mark is None and self._acknowledgements.finishes and self._lingers(now_ns):
            return None
        claim = self._next_claim(now_ns)
        if self._acknowledgements.finishes:
            leases, values = self._acknowledgements.take_finishes()
            return Finish(leases, claim, values)
        return claim if self._claiming.wants_jobs else None

    def _lingers(self, now_ns: int) -> bool:
        """Whether finishes wait for others to travel with, for 5 ms. They do while more jobs wait for a
        handler than have ended. The next jobs are here before the last of these has started (rule 21)."""
        return not self._stopping.on and self._acknowledgements.lingers(self._lease_table.startable, now_ns)

    def _next_claim(self, now_ns: int) -> Claim | None:
        """A claim for the free places. It rides on a finish even when the last one found nothing: that costs
        no round trip."""
        if not self._claiming.wants_jobs and (
            not self._acknowledgements.finishes or self._allowance.share is not None
        ):
            # Places that others may need are not kept for what is not known to be there.
            return None
        free = self._free
        if free <= 0 or self._stopping.on or not self._clock.known:
            return None
        if (
            not self._acknowledgements.finishes
            and free < self._lease_table.startable
            and self._lease_table.busy
        ):
            # It would bring a few, and the next one many: as long as most of what was taken ahead has not
            # started, it can wait.
            return None
        if not self._claiming.classes or (free := self._allowance.most(free, self.leased, now_ns)) <= 0:
            return None
        # anchor: one-crashed-job-claimed-at-a-time
        return self._claiming.next_claim(free, 0 if self._lease_table.has_crashed else 1, now_ns)

    def _send_renew(self, now_ns: int, actions: list[Action]) -> None:
        self._renewing.begin(now_ns)
        renewal = self._renewing.next_renewal(
            self._lease_table.leases() + self._acknowledgements.leases(), now_ns
        )
        if renewal is not None:
            self._in_flight.send("renew", self._build(renewal), actions)

    def _send_sweep(self, now_ns: int, actions: list[Action]) -> None:
        incarnation = self._claiming.incarnation
        operation: Operation | None = None
        # Who blocks for updates, or sweeps, gets them soon without a heartbeat.
        informed = self._sweeping.regular or "wake" in self._in_flight.busy
        beat_at_ns = self._beat_at_ns = self._heartbeat.next_ns(informed=informed)
        if beat_at_ns is not None and now_ns >= beat_at_ns and self._clock.known:
            kept_back = self._allowance.kept_back(now_ns)
            operation = self._heartbeat.next_beat(
                incarnation, self._lease_table.leases(), now_ns, kept_back, self._presence.connection(now_ns)
            )
        idle = self._stopping.on and not (self.owned or self._unacknowledged)
        if operation is None and idle and self._heartbeat.leaves(now_ns):
            operation = self._statistics.next_report(
                incarnation, now_ns, last=True
            ) or self._heartbeat.next_leave(incarnation)
        if operation is None and self._progress.told:
            operation = self._progress.next_operation()
        if operation is None and now_ns >= self._heartbeat.note_at_ns:
            operation = self._heartbeat.next_note(now_ns)
        if operation is None and now_ns >= self._statistics.at_ns:
            operation = self._statistics.next_report(incarnation, now_ns)
        if operation is None and self._presence.looks:
            operation = self._presence.next_operation(incarnation, self._sweeping.next_counter, now_ns)
        operation = operation or self._sweeping.next_operation(incarnation, now_ns, self._presence.run_id)
        if operation is not None:
            self._in_flight.send("sweep", self._build(operation), actions)

    def _send_wake(self, now_ns: int, actions: list[Action]) -> None:
        """Block for a wake-up only when the last claim was answered, has found nothing more, and a handler is
        free (rule 22). Where all are busy the end of one asks for the next job, and a wake-up would be taken
        from a worker that idles."""
        if self._claiming.asking or self._stopping.on or self._sweeping.asking or not self._room(now_ns):
            return
        if self._lease_table.busy and self._allowance.share is None and self._allowance.quota is None:
            return
        self._in_flight.send("wake", self._build(self._claiming.next_wait()), actions)

    def _maybe_exit(self, reason: StopReason, now_ns: int, actions: list[Action]) -> None:
        if self._exited:
            return
        telling = bool(
            self._unacknowledged or self._interrupted or (not self.owned and self._heartbeat.leaves(now_ns))
        )
        if self._stopping.over(now_ns, running=self.owned > 0, telling=telling):
            self._exited = True
            cut_off = self._cut_off or self.owned or self._unacknowledged
            actions.append(Exit("grace over" if cut_off and reason == "stopped" else reason))

    # -- What replies change.

    def _learn(self, event: Answered, now_ns: int, actions: list[Action]) -> None:
        operation, reply = event.call.operation, event.reply
        match reply:
            case FinishedAndClaimed():
                self._claimed(event, reply.claimed, now_ns, actions)
            case Claimed():
                self._claimed(event, reply, now_ns, actions)
            case Woken():
                self._claiming.waited(found_work=reply.work)
                if reply.updates and isinstance(operation, Wait) and operation.version is not None:
                    self._sweeping.learn(operation.version, took_wake_up=True)
                if reply.work and not self._may_claim(now_ns):
                    # The wake-up is taken and this worker cannot claim: a sweep leaves another one for the
                    # others.
                    self._sweeping.soon(event.done_ns)
            case Extended():
                self._extended(event, operation, reply, actions)
            case Marked() if isinstance(operation, NoteProgress):
                if reply.result == "stale":
                    actions += self._lease_table.lose(operation.lease, self._starved_ms)
            case Enqueued():
                # Refused as late: it goes out once more, with the same identity and a new time.
                if reply.result != "refused":
                    self._acknowledgements.drop(
                        self._acknowledgements.rerouting.answered().job.lease, "rerouted"
                    )
            case Marked() if isinstance(operation, Mark):
                self._marked(operation.lease, reply, actions)
            case Beaten() if isinstance(operation, Beat):
                self._heartbeat.answered(operation, reply.watch_in_ms, event.done_ns)
                self._sweeping.beaten(reply, event.done_ns)
                if reply.looks and self._presence.run_id:
                    # Its sweep is answered with the look, unless another one was first.
                    self._sweeping.soon(event.done_ns)
                self._compare(reply.version)
            case RunTimesReported():
                self._statistics.answered()
            case Swept() if isinstance(operation, Sweep):
                self._claiming.notify_work(bool(reply.leases) or reply.promoted > 0)
                if self._sweeping.swept(operation, reply, event.done_ns):
                    self._heartbeat.soon(event.done_ns)
                self._presence.assigned(reply.watched, event.done_ns)
                if not operation.orphans:
                    self._compare(reply.version)
            case ListedConnections():
                self._presence.looked(reply, event.first_send_ns, event.done_ns)
            case Swept() if isinstance(operation, ReapLost):
                self._claiming.notify_work(bool(reply.leases))
                self._presence.reaped(reply, event.done_ns)
            case WorkerUpdates():
                self._claiming.learned(reply)
                self._sweeping.learned(self._claiming.classes)
                self._allowance.learned(reply, event.done_ns)
                self._lease_table.resize(self._allowance.pooled)
            case Ticked():
                self._claiming.notify_work(bool(reply.jobs))
            case Counts() if reply.cursor and not reply.waiting:
                self._sweeping.count_on(reply.cursor)
            case Counts():
                if self._settings.burst and not self.owned and self._nothing_left(reply, now_ns):
                    self._stopping.ask("empty", event.done_ns)
            case _:
                # An ended lease: ok, repeated or stale, the server has decided, and there is nothing left to
                # do.
                pass

    def _compare(self, version: int) -> None:
        """A reply named the version of the updates: ask for them where it is not the one that this worker
        knows."""
        if version != self._claiming.version:
            self._sweeping.learn(self._claiming.version)

    def _nothing_left(self, counts: Counts, now_ns: int) -> bool:
        """Whether a burst is over: nothing is to come, or where delays do not matter, nothing can be
        claimed."""
        on = counts.active + counts.handing
        if self._settings.delayed:
            return counts.waiting + counts.delayed + on == 0
        if on or self._claiming.wants_jobs or "work" in self._in_flight.busy:
            return False
        # The last claim may be older than the last finish, which has let go of a child. A claim that is sent
        # now would find it.
        self._last_look = self._room(now_ns) and self._claiming.look_again()
        return not self._last_look

    def _marked(self, lease: Lease, reply: Marked, actions: list[Action]) -> None:
        if reply.result != "stale":
            self._lease_table.marked(lease)
        else:
            actions += self._lease_table.lose(lease, self._starved_ms)

    def _cancel_told(self, lease: Lease, actions: list[Action]) -> None:
        """The job of a lease was cancelled (rule 26). The lease may be one that the answer to the claim still
        has to bring."""
        lost = self._lease_table.lose(lease, self._starved_ms, cancelled=True)
        if not lost and self._claiming.asking:
            self._cancelled_early[lease] = None
        actions += lost

    def _claimed(self, event: Answered, claimed: Claimed, now_ns: int, actions: list[Action]) -> None:
        if claimed.result == "stale":
            # The outstanding claim was refused as old: another process uses this incarnation (rule 4).
            self._take_new_incarnation()
        first_send_ns = self._in_flight.first_sends.get(event.kind, event.first_send_ns)
        # anchor: lease-counts-from-the-first-send
        self._lease_table.add(claimed.jobs, first_send_ns, now_ns)
        for lease in self._cancelled_early:
            actions += self._lease_table.lose(lease, self._starved_ms, cancelled=True)
        self._cancelled_early.clear()
        self._acknowledgements.bury(claimed.unreadable)
        claim = (
            event.call.operation.claim if isinstance(event.call.operation, Finish) else event.call.operation
        )
        if self._settings.priorities is not None and not claimed.jobs:
            # What waits is for others, and so is the wake-up that the claim has left: it must not come back
            # here at once.
            self._in_flight.pause("wake", now_ns)
        self._claiming.answered(claim if isinstance(claim, Claim) else None, claimed)
        self._last_look = self._last_look and not claimed.jobs
        if self._last_look and not self._claiming.wants_jobs:
            self._stopping.ask("empty", event.done_ns)
        if self._allowance.share is not None:
            self._allowance.share.answered(len(claimed.jobs))
        self._sweeping.not_after(event.done_ns, claimed.sleep_ms)

    def _extended(
        self, event: Answered, operation: Operation, reply: Extended, actions: list[Action]
    ) -> None:
        if not isinstance(operation, Extend):
            return
        results = list(zip(operation.leases, reply.items, strict=True))
        self._lease_table.renewed(
            [lease for lease, (result, _) in results if result in ("ok", "repeated")], event.first_send_ns
        )
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
            self._in_flight.first_sends.pop(event.kind, None)
            if event.kind == "finish":
                self._finishing = ()
        match operation:
            case Finish(leases=leases, claim=Claim(), values=values) if event.fault:
                # Rule 1: the fused call failed as a whole; the finish half goes alone.
                self._claiming.asking = False
                self._in_flight.resend(event.kind, self._build(Finish(leases, None, values)), now_ns)
            # anchor: unanswered-calls-are-repeated, 3 lines
            case Claim() | Finish() | Retry() | Bury() | Drop() | Release() | Mark() | Enqueue() if (
                not event.fault
            ):
                # One claim is outstanding per incarnation, and it is re-sent until it is answered (rule 4).
                self._in_flight.resend(
                    event.kind, event.call, now_ns, unanswered_since_ns=event.first_send_ns
                )
            case Claim():
                self._claiming.asking = False
                self._claiming.want()
                self._in_flight.pause("work", now_ns)
            case Enqueue():
                # It cannot go there: here it has failed like any other.
                self._acknowledgements.retry(self._acknowledgements.rerouting.answered().failure)
            case Mark(lease=lease):
                # Nobody could charge its next crash: another worker may have better luck.
                self._acknowledgements.release(self._lease_table.unmark(lease))
                self._in_flight.pause("work", now_ns)
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
                self._claiming.want()
                self._in_flight.pause("wake", now_ns)
            case _:
                pass

    def _take_new_incarnation(self) -> None:
        self._in_flight.drop_claim()
        self._claiming.take_new_incarnation()
        self._statistics.forget()

    def _handler_ended(self, event: HandlerEnded, now_ns: int, *, measured: bool = True) -> None:
        job, took_ns, given_up = self._lease_table.ended(event.lease, now_ns)
        if measured:
            self._prefetch.ended(took_ns)
        self._stopping.job_ended(now_ns)
        self._timeouts.ended(event.lease)
        # The next job with a crash behind it may be claimed: it was passed by while this one ran.
        self._claiming.notify_work(job.crashes > 0)
        if job.crashes:
            self._crashed_end = event.lease
        interrupted = self._interrupted.pop(event.lease, False)
        if given_up:
            # It was told as failed before: what came of it since is of no use.
            return
        if event.error is not None and interrupted and not event.request.asked:
            # Not before its handler has ended, or the job would run twice at once.
            self._acknowledgements.release([event.lease], started=True)
        elif event.error is not None:
            self._statistics.failed(job.name, took_ns)
            self._fail(job, event.error, event.trace, event.request)
        else:
            self._statistics.succeeded(job.name, took_ns)
            self._acknowledgements.finish(event.lease, now_ns)
            if event.result is not None:
                self._acknowledgements.keep(job, event.result, took_ns)

    def _not_started(self, lease: Lease, now_ns: int) -> None:
        job, _, given_up = self._lease_table.ended(lease, now_ns)
        self._timeouts.ended(lease)
        self._claiming.notify_work(job.crashes > 0)
        self._interrupted.pop(lease, None)
        if not given_up:
            self._acknowledgements.release([lease])

    def _fail(self, job: LeasedJob, error: str, trace: str, request: RunRequest) -> None:
        delay_ms = request.delay_ms
        if delay_ms is None:
            # anchor: backoff-grows-with-failures
            delay_ms = backoff_delay_ms(job.options, job.failures, self._draw)
        failure = Failure(job.lease, error, delay_ms, trace, request.charge)
        end = ending(job.options, request)
        match end.kind:
            case "retry":
                self._acknowledgements.retry(failure)
            case "bury":
                self._acknowledgements.bury([failure])
            case "rerouted":
                # anchor: rerouted-jobs-are-enqueued-before-they-end
                self._acknowledgements.rerouting.add(job, failure, end.target)
            case _:
                self._acknowledgements.drop(job.lease, end.kind, error)

    def _time_out(self, now_ns: int, actions: list[Action]) -> None:
        stop, give_up = self._timeouts.due(now_ns)
        actions.extend(stop)
        for job in give_up:
            self._statistics.failed(job.name, self._lease_table.give_up(job.lease, now_ns))
            self._fail(job, timed_out(job), "", self._judge(job.name, timeout_of(job)))
            actions.append(GiveUpHandler(job, self._lease_table.stuck))

    # -- What several of them ask.

    @property
    def leased(self) -> int:
        """Jobs leased and not ended: running and not yet started. Handlers that were given up are among them,
        for the places that they take."""
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
        busy = self._in_flight.busy
        return bool(self._acknowledgements or self._in_flight.again or "work" in busy or "finish" in busy)

    def _room(self, now_ns: int) -> bool:
        if not self._settings.classes:
            return False
        if self._allowance.restrained and self._allowance.closed(now_ns):
            return False
        # Where places are shared, whether this queue has work decides what the others may claim, so it is
        # always listened to.
        return self._allowance.share is not None or self._allowance.quota is not None or self._free > 0

    def _may_claim(self, now_ns: int) -> bool:
        share, quota = self._allowance.share, self._allowance.quota
        return self._room(now_ns) and not (share is not None and share.full) and (quota is None or quota.idle)

    @property
    def _free(self) -> int:
        """How many more jobs there is room for, with the present limit of handlers."""
        wanted = self._inline_places + self._allowance.pooled + self._ahead
        return wanted - self.leased if self._allowance.share is not None else self._lease_table.room(wanted)
