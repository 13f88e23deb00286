"""What users, schedulers and workers do, as steps of a mixed walk: each method makes a call, and asserts that it is told what the
oracle would tell."""

from typing import Any

from engine.ops import base, jobs
from engine.worker.machine.sweeping import tick
from tests.engine.helpers.mixed_sides import LATE_MS, NAMES
from tests.engine.helpers.mixed_users import Users
from tests.engine.using import LEASE_MS, Bury, Drop, Failure, Finish, LeasedJob, Release, Retry, Swept


def ends_of(lease: jobs.Lease) -> dict[str, tuple[base.Operation, str]]:
    """The calls that end a lease, and what it is called."""
    return {
        "finish": (Finish((lease,)), "finished"), "retry": (Retry((Failure(lease, "boom", 100),)), "retried"),
        "bury": (Bury((Failure(lease, "no"),)), "buried"), "release": (Release((lease,)), "released"),
        "skip": (Drop((lease,), ("skipped",)), "skipped"), "discard": (Drop((lease,), ("discarded",)), "discarded"),
    }  # fmt: skip


class MixedWalk(Users):
    """A mixed walk; its methods are the steps."""

    # -- what workers do

    def claim(self, worker: str, limit: int, classes: tuple[str, ...], *ends: int) -> None:
        """With `ends`: finish these first, in the same call. The worker has taken the markers of its classes."""
        self.asked |= set(classes)
        self.desk.redis.delete(*map(self.desk.keys.wake, classes))
        leases, operation = self.leases(*ends), self.desk.claim_operation(worker, limit, classes=classes)
        reply = self.desk.run(Finish(tuple(leases), operation)).claimed if leases else self.desk.run(operation)
        self.oracle.promote(self.now_ms)
        for lease in leases:
            self.oracle.end_lease(lease.job, "finished", self.now_ms, tell=False)
            self.over.append((lease, "finished"))
        self.oracle.hand_over(self.now_ms)
        found: list[LeasedJob] = list(reply.jobs)
        for job in found:
            work = self.oracle.lease(job.lease.job, job.lease, classes, self.now_ms, LEASE_MS)
            assert (job.claims, job.failures, job.crashes) == (work.claims, work.failures, work.crashes)
            assert job.deadline_ms == self.now_ms + LEASE_MS
        may = self.oracle.claimable(classes, self.now_ms)
        assert len(found) == limit or not may, ("left behind", list(may))

    def finish_and_claim(self, worker: str, limit: int, ends: list[int]) -> None:
        self.claim(worker, limit, NAMES, *ends)

    def end(self, how: str, delay_ms: int, pick: int) -> None:
        for lease in self.leases(pick):
            job, now_ms = lease.job, self.now_ms
            if how == "retry":
                outcome = self.oracle.retry(job, delay_ms, now_ms)
                assert self.desk.retry(lease, delay_ms=delay_ms) == ("ok", outcome)
            else:
                operation, outcome = ends_of(lease)[how]
                assert self.desk.run(operation).items == (("ok", outcome),)
                if how == "bury":
                    self.oracle.bury(job, now_ms)
                elif how == "release":
                    self.oracle.put_back(job, unstarted=True)
                else:
                    self.oracle.end_lease(job, outcome, now_ms)
            self.over.append((lease, outcome))

    def late(self, how: str, pick: int) -> None:
        """A token that has ended does nothing more, whatever it is used for, and hears only how it has ended (rule 5)."""
        if not self.over:
            return
        lease, outcome = self.over[-1 - pick % len(self.over)]
        renewal = self.desk.extend_operation(lease, renewal=1000)
        before = None if self.oracle.handing else self.desk.dump()
        ((result, said),) = self.desk.run(renewal if how == "extend" else ends_of(lease)[how][0]).items
        if how != "extend" and self.oracle.remembers(lease, outcome, self.now_ms):
            assert (result, said) == ("repeated", outcome)
        else:
            assert result != "ok" and (result != "repeated" or said == outcome)
        assert before in (None, self.desk.dump())
        if how in ("finish", "skip", "discard"):
            self.oracle.hand_over(self.now_ms)

    def extend(self, pick: int) -> None:
        for lease in self.leases(pick):
            self.counter += 1
            renewed = self.desk.run(self.desk.extend_operation(lease, renewal=self.counter)).items
            assert renewed == (("ok", self.now_ms + LEASE_MS),)
            self.oracle.works[lease.job].at_ms = self.now_ms + LEASE_MS

    def mark(self, pick: int) -> None:
        for lease in self.leases(pick):
            assert self.desk.mark(lease) in ("ok", "repeated")
            self.oracle.works[lease.job].marked = True

    def time(self, step_ms: int, steps: int) -> None:
        """Sweeps come often enough that none looks like the end of a stall (rule 11)."""
        for _ in range(steps):
            self.desk.tick(step_ms)
            self.sweep()

    def sweep(self) -> Swept:
        """Leases that have run out are taken, what is due goes on, and children hear of their parents."""
        wanted, swept = self.oracle.sweep(self.now_ms), self.desk.sweep()
        assert sorted(swept.leases) == wanted
        self.over += [(lease, "") for lease, _ in wanted]
        self.oracle.promote(self.now_ms)
        self.oracle.hand_over(self.now_ms)
        return swept

    # -- what schedulers do

    def put_schedule(self, name: str, job_name: str, every_s: int, cron: bool, policy: Any, options: Any) -> None:
        timing: dict[str, Any] = {"cron": f"*/{every_s} * * * * *"} if cron else {"every_ms": every_s * 1000}
        self.desk.queue.schedules.put(name, job_name, None, late_ms=LATE_MS, **policy, **timing, **options)
        known = self.schedules.put(name, every_s * 1000, policy["missed"], self.now_ms, cron=cron)
        known.overlap, known.options = policy["overlap"], {"name": job_name, **options}

    def change_schedule(self, name: str, how: str) -> None:
        there = name in self.schedules.known
        if how == "run_now":
            found = self.desk.queue.schedules.run_now(name)
            assert (found is not None) == there
            if found is not None:
                options = dict(self.schedules.known[name].options)
                work = self.work(options.pop("name"), options)
                self.ids.append(found.job)
                assert (found.result, found.state, found.holder) == self.oracle.enqueue(found.job, work, self.now_ms)
            return
        assert getattr(self.desk.queue.schedules, how)(name) == there
        self.schedules.known.pop(name, None) if how == "remove" else self.schedules.enable(name, how == "enable", self.now_ms)

    def sweep_and_tick(self) -> None:
        """As a worker does it: the schedules that a sweep finds due tick."""
        promoted = self.sweep()
        due = {name for name, known in self.schedules.known.items() if known.enabled and known.next_ms <= self.now_ms}
        assert {schedule.schedule for schedule in promoted.due} == due
        for schedule in promoted.due:
            self.counter += 1
            told = self.desk.run(tick(schedule, promoted.srv_us // 1000, "s" * 16, self.counter))
            assert (told.result, list(told.jobs)) == ("ticked", self._fire(schedule.schedule))

    def _fire(self, name: str) -> list[str]:
        known, works, made = self.schedules.known[name], self.oracle.works, list[str]()
        last = works.get(known.last_job)
        free = known.overlap == "allow" or last is None or last.state == "dead"
        for tick_ms in self.schedules.fire(name, self.now_ms):
            job, options = f"cron:{name}:{tick_ms}", dict(known.options)
            work = self.work(options.pop("name"), options)
            if not free or (work.unique and (made or self.oracle.holder(job, work.unique, self.now_ms))):
                known.skipped += 1
                continue
            self.oracle.create(job, work, self.now_ms)
            made.append(job)
            known.last_job, free = job, known.overlap == "allow"
        known.count += len(made)
        self.ids += made
        return made

    def wind_up(self) -> None:
        """Let every job end, under the limits that there are."""
        for name in list(self.schedules.known):
            self.change_schedule(name, "remove")
        for name in list(self.oracle.pauses):
            self.resume(name)
        for _ in range(300):
            if all(work.state == "dead" for work in self.oracle.works.values()):
                break
            self.desk.tick(600)
            self.sweep_and_tick()
            self.claim("a", 10, NAMES, *range(20))
        assert all(work.state == "dead" for work in self.oracle.works.values())
        # What rests or is paused until a time, and lanes and results that nobody needs any more.
        self.time(3_000, 3)
        self.claim("a", 10, NAMES)
        self.sweep()
        self.check()
