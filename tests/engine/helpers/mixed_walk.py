"""What users, schedulers and workers do, as steps of a mixed walk: each method makes a call, and asserts that it is told what the
oracle of mixed_oracle.py would tell."""

from typing import Any

from engine.errors import UnknownParent
from engine.worker.machine.sweeping import tick
from tests.engine.helpers import lanes_state, mixed_oracle, mixed_state
from tests.engine.helpers.schedules_oracle import SchedulesOracle
from tests.engine.ops import Altered, Bury, Drop, Failure, Finish, Lease, LeasedJob, Limit, Release, Retry, Swept, Window
from tests.engine.using import LEASE_MS, Desk, Operation

NAMES = ("mail", "sms", "push")
LATE_MS = 5_000
#: Windows of one length a target: what becomes of a window whose length changes is not told.
PER_MS = {"n:mail": 700, "n:sms": 300, "k:*": 500, "k:a": 500}
#: From which states each action takes a job.
ACTIONS = {
    "cancel": ("waiting", "blocked", "delayed", "active"), "run_now": ("delayed",), "requeue": ("dead",), "discard": ("dead",),
    "remove": ("waiting", "blocked", "delayed", "dead", "finished"),
}  # fmt: skip


def ends_of(lease: Lease) -> dict[str, tuple[Operation, str]]:
    """The calls that end a lease, and what it is called."""
    return {
        "finish": (Finish((lease,)), "finished"), "retry": (Retry((Failure(lease, "boom", 100),)), "retried"),
        "bury": (Bury((Failure(lease, "no"),)), "buried"), "release": (Release((lease,)), "released"),
        "skip": (Drop((lease,), ("skipped",)), "skipped"), "discard": (Drop((lease,), ("discarded",)), "discarded"),
    }  # fmt: skip


class MixedWalk:
    """A queue on a desk, and the oracle beside it. `ids` are all that jobs ever had, in their order."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.oracle, self.schedules = desk, mixed_oracle.MixedOracle(), SchedulesOracle(LATE_MS)
        self.ids: list[str] = []
        #: Leases that have ended, and how ('' = taken away): a late copy of an end hears that, and changes nothing.
        self.over: list[tuple[Lease, str]] = []
        self.asked, self.told = set[str](), set[str]()
        self.counter = self.told_ms = 0
        desk.begin().sweep()

    @property
    def now_ms(self) -> int:
        return self.desk.now_ms

    def known(self, pick: int) -> str:
        """An id of which everybody knows what it is by now; '' where there is none."""
        ids = [job for job in self.ids if not self.oracle.blurred(job, self.now_ms)]
        return ids[-1 - pick % len(ids)] if ids else ""

    def leases(self, *picks: int) -> list[Lease]:
        leases = [work.lease for work in self.oracle.works.values() if work.lease is not None]
        return [leases[place] for place in dict.fromkeys(pick % len(leases) for pick in picks)] if leases else []

    def work(self, name: str, options: dict[str, Any]) -> mixed_oracle.Work:
        work = mixed_oracle.Work(name, options.get("key", ""), options.get("priority", 5), 0)
        work.lifo, work.unique = options.get("lifo", False), options.get("unique", "")
        work.attempts, work.crashes_max = options.get("attempts", 3), options.get("crashes_max", 3)
        work.ignores = options.get("on_parent_failure") == "ignore"
        work.due_ms = self.now_ms + options["delay_ms"] if "delay_ms" in options else 0
        return work

    def check(self) -> None:
        mixed_state.compare(self.desk, self.oracle, self.schedules, set(self.ids))
        told = {name for name in NAMES if self.oracle.claimable((name,), self.now_ms)}
        if self.now_ms == self.told_ms:
            # Rule 22: what a call has made claimable, or a claim has left, is told.
            gained = {name for name in told if name not in self.told or name in self.asked}
            assert gained <= set(lanes_state.markers(self.desk)), (gained, "has work that nobody is told of")
        self.told, self.told_ms, self.asked = told, self.now_ms, set()

    # -- what those do who put jobs in and administer the queue

    def enqueue(self, name: str, again: int | None, parents: list[int], options: dict[str, Any]) -> None:
        """`again`: under an id that was there before."""
        options = {**options, "dedup_ms": 60_000 if options["dedup"] == "d" else 5_000} if "dedup" in options else options
        job = self.known(again) if again is not None else ""
        # Ids with this prefix belong to schedules.
        job = f"j{len(self.ids)}" if not job or job.startswith("cron:") else job
        needs = tuple(sorted({self.known(pick) for pick in parents} - {"", job}))
        if job not in self.ids:
            self.ids.append(job)
        work = self.work(name, options)
        told = self.oracle.enqueue(job, work, self.now_ms, needs, options.get("dedup", ""), options.get("dedup_ms", 0))
        try:
            found = self.desk.queue.enqueue(name, {"job": job}, id=job, needs=needs, **options)
        except UnknownParent as error:
            assert told == ("orphan", "", error.parent)
            return
        assert (found.result, told[1] if self.oracle.blurred(found.holder, self.now_ms) else found.state, found.holder) == told

    def alter(self, action: str, pick: int) -> None:
        """Mostly to a job whose state allows it."""
        now_ms = self.now_ms
        sure = [job for job in self.ids if not self.oracle.blurred(job, now_ms)]
        fit = [job for job in sure if self.oracle.known(job, now_ms)[0] in ACTIONS[action]] if pick % 5 else []
        job = fit[pick % len(fit)] if fit else self.known(pick)
        if not job:
            return
        state = self.oracle.known(job, now_ms)[0]
        found: Altered = getattr(self.desk.queue.dead if action in ("requeue", "discard") else self.desk.queue.jobs, action)(job)
        if state not in ACTIONS[action]:
            assert found == Altered(job, "changed", state)
            return
        holder = self._altered(action, job, state)
        assert found == Altered(job, "held" if holder else "done", state, holder or None)

    def _altered(self, action: str, job: str, state: str) -> str:
        work = self.oracle.works.get(job)
        if action == "requeue":
            return self.oracle.requeue(job, self.now_ms)
        if action == "run_now" and work:
            work.state, work.at_ms = "waiting", 0
        elif state == "finished":
            self.oracle.done.pop(job, None)
        elif work:
            self.over += [(work.lease, "")] if work.lease else []
            self.oracle.end_by_hand(job, "cancelled" if action == "cancel" else "discarded", self.now_ms)
        return ""

    def clean(self, state: str, older_than_ms: int) -> None:
        now_ms, works = self.now_ms, self.oracle.works
        ages = {job: work.at_ms if state == "dead" else work.enqueued_ms for job, work in works.items() if work.state == state}
        ages = self.oracle.done if state == "finished" else ages
        old = [job for job, at_ms in ages.items() if at_ms <= now_ms - older_than_ms]
        assert self.desk.queue.clean(state, older_than_ms=older_than_ms) == len(old)
        for job in old:
            if state == "finished":
                del self.oracle.done[job]
            else:
                self.oracle.end_by_hand(job, "discarded", now_ms)

    def obliterate(self) -> None:
        assert self.desk.queue.obliterate(force=True)
        oracle = self.oracle
        for job, work in list(oracle.works.items()):
            self.over += [(work.lease, "")] if work.lease else []
            oracle.end_by_hand(job, "discarded", self.now_ms)
        for forgotten in (oracle.done, oracle.limits, oracle.pauses, oracle.feeds, oracle.feeding, oracle.handing):
            forgotten.clear()
        oracle.finished = oracle.buried = 0
        self.schedules.known.clear()

    def pause(self, name: str, length_ms: int) -> None:
        self.desk.queue.pause(None if name == "*" else name, length_ms=length_ms)
        self.oracle.pauses[name] = self.now_ms + length_ms if length_ms else 0

    def resume(self, name: str) -> None:
        self.desk.queue.resume(None if name == "*" else name)
        self.oracle.pauses.pop(name, None)

    def limit(self, target: str, concurrency: int, rate: int, window: Window) -> None:
        """Without any bound: remove it."""
        name, key = (target[2:], None) if target[0] == "n" else (None, target[2:])
        bounds = Limit(concurrency, rate, PER_MS[target] if rate else 0, window)
        self.oracle.limits.pop(target, None)
        if concurrency or rate:
            self.desk.queue.set_limit(name, key=key, concurrency=concurrency, rate=rate, per_ms=bounds.per_ms, window=window)
            self.oracle.limits[target] = bounds
        else:
            self.desk.queue.remove_limit(name, key=key)

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
