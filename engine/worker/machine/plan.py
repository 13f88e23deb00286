"""What the step machine decides after an event: which jobs start and which call each slot carries. Pure code."""

from __future__ import annotations

from engine.ops.base import Operation
from engine.ops.claims import Claim, Finish, Mark
from engine.ops.jobs import Enqueue
from engine.worker.machine.concurrency import WAIT_MS_MAX
from engine.worker.machine.events import MS, Action, Exit
from engine.worker.machine.run_queue import NOTHING
from engine.worker.machine.state import State


class Planning(State):
    """Looks at the state and appends actions."""

    def _start_jobs(self, now_ns: int, actions: list[Action]) -> None:
        if self._stopping.on or self._allowance.paused(now_ns):
            self._acknowledgements.release(self._lease_table.give_back())
            return
        begun = self._lease_table.begin(now_ns)
        if begun is not NOTHING:
            for start in begun.started:
                for job in start.batch or (start.job,):
                    self._timeouts.began(job, now_ns)  # anchor: finishes-follow-their-handlers
            actions.extend(begun.started)
            self._acknowledgements.release(begun.too_late)
            self._mark = begun.mark or self._mark
        places = None if self._allowance.quota is None else self._allowance.pooled
        measured = self._prefetch.ahead(self._lease_table.running_since_ns(), now_ns, places)
        for run_queue in self._lease_table.run_queues:
            if run_queue.ready:
                # Of the places that the measure knows, those of the other queue do not work these off.
                ahead = self._prefetch.ahead(run_queue.running_since_ns(), now_ns, run_queue.places)
                idle = self._lease_table.give_back_idle(run_queue, min(measured, ahead), WAIT_MS_MAX * MS, now_ns)
                self._acknowledgements.release(idle)
        # The places of a group are shared job by job.
        self._ahead = measured if self._allowance.share is not None else self._lease_table.ahead(measured)

    def _use_work_slot(self, now_ns: int, actions: list[Action]) -> None:
        if not self._call_slots.free("work") or self._call_slots.send_again("work", actions):
            return
        operation = self._next_work(now_ns)
        if isinstance(operation, Enqueue):
            queue = self._acknowledgements.rerouting.first.queue
            build = self._elsewhere(queue) if queue and self._elsewhere is not None else self._build
            self._call_slots.send("work", build(operation), actions)
        elif operation is not None:
            self._call_slots.send("work", self._build(operation), actions)

    def _use_finish_slot(self, actions: list[Action]) -> None:
        """Finishes travel with the next claim. While one is on its way and nothing runs here, they would wait for its answer past
        an idle moment: then they go by themselves, and the server has work while the next jobs come in (rule 21)."""
        if not self._call_slots.free("finish") or self._call_slots.send_again("finish", actions):
            return
        if self._acknowledgements.finishes and not self.owned and self._call_slots.busy("work"):
            self._finishing, values = self._acknowledgements.take_finishes()
            self._call_slots.send("finish", self._build(Finish(self._finishing, None, values)), actions)

    def _next_work(self, now_ns: int) -> Operation | None:
        end = self._acknowledgements.take_end()
        if end is not None:
            return end
        if self._acknowledgements.rerouting and self._clock.known:
            return self._acknowledgements.rerouting.enqueue(self._clock.now_ms(now_ns))
        mark = self._mark if self._mark is not None and self._lease_table.is_marking(self._mark) else None
        pending = self._acknowledgements.has_finish(self._crashed_end) or self._crashed_end in self._finishing
        if mark is not None and not pending:
            # Not before the end of the one that was marked before it is told: that would be charged for the crash of this one.
            # It waits for nothing else: the finishes of a flood of others would never let it through.
            self._mark = None
            return Mark(mark)
        if mark is None and self._lingers(now_ns):
            return None
        claim = self._next_claim(now_ns)
        if self._acknowledgements.finishes:
            leases, values = self._acknowledgements.take_finishes()
            return Finish(leases, claim, values)
        return claim if self._claiming.hungry else None

    def _lingers(self, now_ns: int) -> bool:
        """Whether finishes wait for others to travel with: for 5 ms, and only while more jobs wait for a handler than have ended,
        so that the next jobs are here before the last of these has started (rule 21)."""
        return not self._stopping.on and self._acknowledgements.lingers(self._lease_table.startable, now_ns)

    def _next_claim(self, now_ns: int) -> Claim | None:
        """A claim for the free places. It rides on a finish even when the last one found nothing: that costs no round trip."""
        free = self._free
        if free <= 0 or self._stopping.on or not self._clock.known:
            return None
        if not self._acknowledgements.finishes and self._lease_table.busy and free < self._lease_table.startable:
            # It would bring a few, and the next one many: as long as most of what was taken ahead has not started, it can wait.
            return None
        if not self._claiming.hungry and not self._acknowledgements.finishes:
            return None
        if self._allowance.share is not None and not self._claiming.hungry:
            # Places that others may need are not kept for what is not known to be there.
            return None
        if not self._claiming.classes or (free := self._allowance.most(free, self.leased, now_ns)) <= 0:
            return None
        # anchor: one-crashed-job-claimed-at-a-time
        return self._claiming.next_claim(free, 0 if self._lease_table.has_crashed else 1, now_ns)

    def _use_renew_slot(self, now_ns: int, actions: list[Action]) -> None:
        if self._call_slots.busy("renew") or now_ns < self._renewing.at_ns:
            return
        self._renewing.begin(now_ns)
        renewal = self._renewing.next_renewal(self._lease_table.leases() + self._acknowledgements.leases(), now_ns)
        if renewal is not None:
            self._call_slots.send("renew", self._build(renewal), actions)

    def _use_sweep_slot(self, now_ns: int, actions: list[Action]) -> None:
        if self._call_slots.busy("sweep"):
            return
        incarnation = self._claiming.incarnation
        operation: Operation | None = None
        if self._heartbeat.due(now_ns, informed=self._informed):
            kept_back = self._allowance.kept_back(now_ns)
            operation = self._heartbeat.next_beat(
                incarnation, self._lease_table.leases(), now_ns, kept_back, self._presence.connection(now_ns)
            )
        idle = not (self.owned or self._unacknowledged)
        if operation is None and self._stopping.on and idle and self._heartbeat.leaves(now_ns):
            operation = self._statistics.next_report(incarnation, now_ns, last=True) or self._heartbeat.next_leave(incarnation)
        operation = operation or self._progress.next_operation() or self._heartbeat.next_note(now_ns)
        operation = operation or self._statistics.next_report(incarnation, now_ns)
        operation = operation or self._presence.next_operation(incarnation, self._sweeping.next_counter, now_ns)
        operation = operation or self._sweeping.next_operation(incarnation, now_ns, self._presence.run_id)
        if operation is not None:
            self._call_slots.send("sweep", self._build(operation), actions)

    def _use_wake_slot(self, now_ns: int, actions: list[Action]) -> None:
        """Block for a marker only when the last claim found nothing more and there is room (rule 22)."""
        if self._claiming.hungry or not self._room(now_ns) or self._stopping.on or self._sweeping.asking:
            return
        if self._call_slots.free("wake"):
            self._call_slots.send("wake", self._build(self._claiming.next_wait()), actions)

    def _maybe_exit(self, now_ns: int, actions: list[Action]) -> None:
        if self._exited or self._stopping.reason is None:
            return
        telling = self._unacknowledged or (not self.owned and self._heartbeat.leaves(now_ns))
        if self._stopping.over(now_ns, running=self.owned > 0, telling=telling):
            self._exited = True
            cut_off = self._stopping.reason == "stopped" and (self.owned or self._unacknowledged)
            actions.append(Exit("grace over" if cut_off else self._stopping.reason))
