"""What users do, as steps of a mixed walk: each method makes a call, and asserts that it is told what the oracle would tell."""

from typing import Any

from engine.errors import UnknownParent
from engine.ops.admin import Altered, Limit, Window
from tests.engine.helpers.mixed_sides import Side

#: Windows of one length a target: what becomes of a window whose length changes is not told.
PER_MS = {"n:mail": 700, "n:sms": 300, "k:*": 500, "k:a": 500}
#: From which states each action takes a job.
ACTIONS = {
    "cancel": ("waiting", "blocked", "delayed", "active"), "run_now": ("delayed",), "requeue": ("dead",), "discard": ("dead",),
    "remove": ("waiting", "blocked", "delayed", "dead", "finished"),
}  # fmt: skip


class Users(Side):
    """Those who put jobs in and administer the queue."""

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
