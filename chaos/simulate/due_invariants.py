"""Invariants of due times (rules 13 and 18): nothing is claimed before its time, and a failed job waits as long as was said."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.simulate.book import Book
from chaos.simulate.server import Delivery
from chaos.simulate.state import EXPIRED
from chaos.simulate.world import Found
from engine.ops.admin import Alter, AlteredJobs, Revive
from engine.ops.claims import Claim, Ended, Retry, Sweep
from engine.ops.jobs import Enqueue, Enqueued, EnqueuedMany, EnqueueMany, Lease, Options

#: The wait of a policy after its n-th failed run, counted from 0, in units of `backoff_ms`.
_GROWTH = {"fixed": lambda n: 1, "exponential": lambda n: 2**n, "linear": lambda n: n + 1, "geometric": lambda n: (n + 1) ** 2}


def check_due(delivery: Delivery, fresh: Sequence[str], book: Book, *, clock_runs: bool) -> None:
    """What was leased was due, what left `due` or `rest` had waited long enough, and what failed waits for its whole back-off."""
    now_ms = delivery.now_ms
    for job in fresh:
        early_ms = book.not_before_ms.get(job, 0) - now_ms
        if clock_runs and early_ms > 0:
            raise Found("early", f"{job} is leased {early_ms} ms before it is due", (job,))
        late_ms = now_ms - book.not_after_ms.pop(job, now_ms + 1)
        if late_ms >= 0:
            raise Found("expiry", f"{job} is started, and has expired {late_ms} ms ago", (job,))
    _promoted(delivery)
    _expired(delivery)
    operation, reply = delivery.operation, delivery.reply
    match operation:
        case Enqueue() if isinstance(reply, Enqueued):
            _asked((operation,), (reply,), now_ms, book)
        case EnqueueMany() if isinstance(reply, EnqueuedMany):
            _asked(operation.jobs, reply.items, now_ms, book)
        case Retry() if isinstance(reply, Ended):
            _retried(delivery, operation, reply, book)
        case Alter() if isinstance(reply, AlteredJobs) and operation.action in ("run_now", "requeue"):
            for item in reply.items:
                if item.done:
                    book.not_before_ms.pop(item.job, None)
                    if operation.action == "requeue":
                        book.not_after_ms.pop(item.job, None)
        case Revive() if isinstance(reply, AlteredJobs):
            # Who was dead does not expire any more, and waits for its own time as before.
            for item in reply.items:
                if item.done:
                    book.not_after_ms.pop(item.job, None)
        case _:
            pass


def _asked(jobs: Sequence[Enqueue], replies: Sequence[Enqueued], now_ms: int, book: Book) -> None:
    for job, reply in zip(jobs, replies, strict=True):
        if reply.result == "created":
            book.not_before_ms[job.job] = now_ms + job.options.delay_ms
            book.not_after_ms.pop(job.job, None)
            if job.options.expires_ms:
                book.not_after_ms[job.job] = now_ms + job.options.expires_ms


def _retried(delivery: Delivery, retry: Retry, reply: Ended, book: Book) -> None:
    due = delivery.after.zset("due")
    places = {member[10:]: due_ms for member, due_ms in due.items()} if due else {}
    for failure, (result, outcome) in zip(retry.failures, reply.items, strict=True):
        if (result, outcome) != ("ok", "retried"):
            continue
        job, due_ms = failure.lease.job, delivery.now_ms + failure.delay_ms
        if places.get(job) != due_ms:
            stands = f"is due in {places[job] - delivery.now_ms:.0f} ms" if job in places else "is not among the delayed jobs"
            raise Found("retry delay", f"{job} has failed, is to wait for {failure.delay_ms} ms, and {stands}", (job,))
        book.not_before_ms[job] = due_ms


def _expired(delivery: Delivery) -> None:
    """Rule 38: who expires has waited long enough and was never started; a sweep leaves few that should have."""
    before, after, now_ms = delivery.before, delivery.after, delivery.now_ms
    if isinstance(delivery.operation, Sweep) and not delivery.operation.orphans and "sweep" in after.changed:
        overdue = [member[10:] for member, at_ms in after.zset("expiring").items() if at_ms <= now_ms]
        if overdue and not delivery.cut and len(overdue) < delivery.operation.limit // 5:
            raise Found("expiry", f"{overdue[0]} has expired, and a sweep leaves it", tuple(overdue))
    for name in after.changed:
        was, envelope = before.job(name[4:]), after.job(name[4:])
        if not name.startswith("job:") or was is None or was.kind != "J" or envelope is None or envelope.outcome != EXPIRED:
            continue
        job, run = name[4:], before.run(name[4:])
        entries = [at_ms for member, at_ms in before.zset("expiring").items() if member[10:] == job]
        if run.token or run.failures or run.crashes or job in before.zset("dead"):
            raise Found("expiry", f"{job} expires, and was started", (job,))
        if not entries or max(entries) > now_ms:
            raise Found("expiry", f"{job} expires before its time", (job,))


def _promoted(delivery: Delivery) -> None:
    """By the scores themselves, so that it holds for clocks that step as well."""
    before, after, now_ms = delivery.before, delivery.after, delivery.now_ms
    if isinstance(delivery.operation, Alter):
        return
    if "due" in after.changed:
        due = after.zset("due")
        for member, due_ms in before.zset("due").items():
            place = (after.places.get(member[10:]) or [""])[0]
            if due_ms > now_ms and member not in due and (place == "active" or place.startswith("lane:")):
                raise Found("early", f"{member[10:]} may be claimed {due_ms - now_ms:.0f} ms before it is due", (member[10:],))
    # A sweep ends the rests that a changed limit, or a clock that stepped back, has left behind.
    kept = before.table("sweep")
    mends = "rests_from_ms" in kept or float(kept.get("last_sweep_ms", 0)) > now_ms
    if isinstance(delivery.operation, Claim | Sweep) and "rest" in after.changed and not mends:
        rest = after.zset("rest")
        for member, until_ms in before.zset("rest").items():
            if until_ms > now_ms and member not in rest and "lane:" + member[2:] in after.views:
                raise Found("early", f"lane {member[2:]} is brought back {until_ms - now_ms:.0f} ms before its rest is over")


def check_back_off(lease: Lease, options: Options, failures: int, delay_ms: int) -> None:
    """What a worker sends as the wait of a failed run is what the job asks for. `failures`: failed runs before this one."""
    if options.backoff == "custom":
        whole_ms = options.backoff_delays_ms[min(failures, len(options.backoff_delays_ms) - 1)]
    else:
        whole_ms = options.backoff_ms * _GROWTH[options.backoff](failures)
    whole_ms = min(whole_ms, options.backoff_max_ms or whole_ms)
    share = options.jitter if options.jitter is not None else 0.5 if options.backoff == "exponential" else 0.0
    if not int(whole_ms * (1 - share)) <= delay_ms <= whole_ms:
        text = f"{lease.job} has failed {failures + 1} times and is to wait for {delay_ms} ms, its policy says {whole_ms} ms"
        raise Found("retry delay", text, (lease.job,))
