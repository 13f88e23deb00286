"""What a worker does next: pure code with events in, calls and timers out
(docs/decisions/state-machine.md).

Threads, sockets and signals only execute it: the same machine runs in the worker process, inside a Locust user under gevent,
and step by step in a simulator. Every `now_ns` is monotonic.
"""

from __future__ import annotations

from engine.ops.claims import Extended, LeasedJob
from engine.ops.jobs import Lease
from engine.ops.workers import ClientConnection, JobCancelled, NewsPublished
from engine.worker.machine.concurrency import LINGER_MS, WAIT_MS_MAX, Share
from engine.worker.machine.events import (
    MS,
    Action,
    Answered,
    BatchEnded,
    ControlLost,
    Event,
    Forked,
    HandlerEnded,
    LoseLease,
    MoreTime,
    PauseAsked,
    Progressed,
    StopAsked,
    Subscribed,
    TimerFired,
    Unanswered,
    WatchAsked,
)
from engine.worker.machine.places import Quota
from engine.worker.machine.plan import Planning
from engine.worker.machine.replies import ReplyHandling

#: After the last turn that was asked for, the machine is woken for so long as often as turns need it.
TURNING_MS = 20


class WorkerSteps(ReplyHandling, Planning):
    """The machine of one worker. Feed it events with `on`; execute the actions in their order; call again at `wake_at_ns`."""

    def wake_at_ns(self, now_ns: int) -> int:
        """When to feed TimerFired if no event comes first, monotonic ns."""
        times: list[int | None] = [self._timeouts.next_ns(), self._allowance.next_ns(now_ns), *self._call_slots.pauses()]
        if not self._call_slots.busy("renew"):
            times.append(self._renewing.at_ns)
        if not self._call_slots.busy("sweep"):
            times += (self._sweeping.at_ns, self._presence.next_ns(), self._heartbeat.next_ns(informed=self._informed))
        if self._lease_table:
            times += (self._lease_table.next_end_ns(), self._wait_over_ns(now_ns))
        if self._stopping.on:
            times += (self._stopping.next_ns(now_ns), self._heartbeat.leaving_until_ns)
        if self._acknowledgements.finishes and self._call_slots.free("work"):
            times.append(self._acknowledgements.linger_until_ns)
        if self._turn_asked_ns is not None and now_ns - self._turn_asked_ns < TURNING_MS * MS:
            times.append(now_ns + LINGER_MS * MS)
        known = [at_ns for at_ns in times if at_ns is not None]
        self._asked_ns = max(now_ns, min(known, default=now_ns + self._settings.sweep_ms * MS))
        return self._asked_ns

    def _wait_over_ns(self, now_ns: int) -> int | None:
        """When to look whether the job that has waited longest for a handler goes back. That depends on the handlers that run, so
        what has waited too long is looked at again and again."""
        oldest_ns = self._lease_table.oldest_wait_ns()
        if oldest_ns is None:
            return None
        over_ns = oldest_ns + WAIT_MS_MAX * MS
        return over_ns if over_ns > now_ns else now_ns + WAIT_MS_MAX * MS // 2

    def on(self, event: Event, now_ns: int) -> list[Action]:
        """Process one event. Returns the actions to execute, in order."""
        actions: list[Action] = []
        starved = self._was_starved(now_ns)
        self._call_slots.tick(now_ns)
        match event:
            case Answered():
                self._call_slots.returned(event)
                if event.slot == "finish":
                    self._finishing = ()
                self._learn(event, now_ns, actions)
                self._call_slots.settled(event.slot)
            case Unanswered():
                self._call_slots.returned(event)
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
            case WatchAsked(on=on):
                self._heartbeat.watch(on, now_ns)
            case JobCancelled(lease=lease):
                self._cancel_told(lease, actions)
            case NewsPublished(version=version):
                # Who blocks for the news has their marker.
                if not self._call_slots.busy("wake"):
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
        actions.extend(LoseLease(lease, self._starved_ms) for lease in self._lease_table.run_out(now_ns))
        if self._timeouts:
            self._time_out(now_ns, actions)
        if isinstance(event, Answered) and isinstance(event.reply, Extended) and not starved:
            self._starved_ms = 0
        if self._allowance.quota is not None:
            self._take_places(self._allowance.quota, now_ns)
        self._start_jobs(now_ns, actions)
        self._use_work_slot(now_ns, actions)
        self._use_finish_slot(actions)
        self._use_renew_slot(now_ns, actions)
        # Before the sweep slot: who blocks for the news need not ask for them.
        self._use_wake_slot(now_ns, actions)
        self._use_sweep_slot(now_ns, actions)
        self._maybe_exit(now_ns, actions)
        if self._allowance.share is not None:
            self._report(self._allowance.share, now_ns)
        if self._sweeping.leads is not self._led:
            self._led = self._sweeping.leads
            if self.on_lead is not None:
                self.on_lead(self._led)
        return actions

    def turn(self, lease: Lease, now_ns: int, result: bytes | None = None) -> LeasedJob | None:
        """A handler has returned, and its place is asked for the next job: `on` with HandlerEnded for runners of many short
        handlers, who would else pay for a whole decision after each. None: nothing was taken in, give the end to `on`.

        What more than the next start may follow from the end (a call to send, a wait) is decided within the 5 ms that a finish
        may linger, and at once where there is no next job.
        """
        run_queue = self._lease_table.queue_running(lease)
        if run_queue is None or not run_queue.ready or self._stopping.reason is not None:
            return None
        self._turn_asked_ns = now_ns
        if self._asked_ns is None or not 0 < self._asked_ns - now_ns <= LINGER_MS * MS:
            return None
        if self._call_slots.free("work") and not self._acknowledgements.lingers(self._lease_table.startable - 1, now_ns, more=1):
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
        """The control connection is another one, or none: a heartbeat says so at once, or others would miss the one before."""
        if self._presence.connected(connection):
            self._heartbeat.soon(now_ns)  # anchor: new-connections-are-named-at-once

    def _was_starved(self, now_ns: int) -> bool:
        """Whether the machine was woken so late that a renewal may have come too late for it (rule 14)."""
        late_ms = 0 if self._asked_ns is None else (now_ns - self._asked_ns) // MS
        self._asked_ns = None
        if late_ms < self._settings.lease_ms // 5:
            return False
        self._starved_ms = max(self._starved_ms, late_ms)
        return True

    def _take_places(self, quota: Quota, now_ns: int) -> None:
        """Use as many places as this shard has now."""
        work = self._claiming.hungry or self._lease_table.startable > 0 or bool(self._acknowledgements.finishes)
        wants = self._able(now_ns) and work
        running = len(self._lease_table.running_since_ns())
        places = quota.update(self.leased + self._claiming.asking, running, now_ns, wants=wants)
        if places != self._allowance.pooled:
            self._allowance.pooled = places
            self._lease_table.resize(places)

    def _able(self, now_ns: int) -> bool:
        """Whether this worker could claim, had it a place."""
        able = self._clock.known and not self._stopping.on and not self._allowance.closed(now_ns)
        return able and (self._call_slots.free("work") or self._call_slots.busy("work"))

    def _report(self, share: Share, now_ns: int) -> None:
        """Report this queue's use of the group's places, so that other queues can claim."""
        able = self._able(now_ns)
        share.report(self.leased, asking=self._claiming.asking, hungry=able and self._claiming.hungry)
