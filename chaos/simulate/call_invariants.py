"""Invariants of one delivery: what a call may do to the keys, and what it must answer."""

from __future__ import annotations

from typing import TypeGuard

from chaos.simulate.admin_invariants import OUTCOMES, check_administration, check_cancellation_reported, check_results
from chaos.simulate.book import Book
from chaos.simulate.bytes_invariants import check_look, check_payloads
from chaos.simulate.children_invariants import check_children, check_dependents
from chaos.simulate.clear_invariants import check_clears, check_kept
from chaos.simulate.cron_invariants import check_cron
from chaos.simulate.due_invariants import check_due
from chaos.simulate.enqueue_invariants import check_windows, wanted_results
from chaos.simulate.life_invariants import check_life
from chaos.simulate.limits_invariants import check_limits, check_turns, claimable, most_cost
from chaos.simulate.lock_invariants import check_locks
from chaos.simulate.member_invariants import check_members
from chaos.simulate.profile import Profile
from chaos.simulate.server import Delivery
from chaos.simulate.state import State
from chaos.simulate.world import Found
from engine.ops.admin import Forget
from engine.ops.base import Operation
from engine.ops.claims import (
    Bury,
    Claim,
    Claimed,
    Drop,
    Ended,
    Extend,
    Extended,
    Finish,
    FinishedAndClaimed,
    Mark,
    ReapLost,
    Release,
    Retry,
    Sweep,
)
from engine.ops.jobs import Enqueue, Enqueued, EnqueuedMany, EnqueueMany, Lease

CLAIM_BYTES_MAX = 1 << 20


def check_call(delivery: Delivery, book: Book, profile: Profile) -> None:
    """All of them, on one delivery that was carried out as a whole."""
    clock_runs = profile.clock_runs
    check_life(delivery, book)
    fresh = _leases(delivery, book, clock_runs)
    check_payloads(delivery, fresh, book)
    check_due(delivery, fresh, book, clock_runs=clock_runs)
    check_limits(delivery, fresh, book, clock_runs=clock_runs)
    check_turns(delivery, fresh)
    check_administration(delivery, book)
    check_children(delivery)
    check_dependents(delivery, book)
    check_cron(delivery, book, clock_runs=clock_runs)
    check_results(delivery, book)
    check_look(delivery, book)
    check_locks(delivery, book, clock_runs=clock_runs)
    check_clears(delivery, book)
    check_kept(delivery, clock_runs=clock_runs)
    check_members(delivery, book, beats_for_ms=profile.beats_for_ms, lease_ms=profile.lease_ms, clock_runs=clock_runs)
    operation, reply = delivery.operation, delivery.reply
    match operation:
        case Claim() if isinstance(reply, Claimed):
            _claimed(delivery, operation, reply)
        case Finish(claim=Claim() as claim) if isinstance(reply, FinishedAndClaimed):
            _ended(delivery, operation.leases, reply.finished, book)
            _claimed(delivery, claim, reply.claimed)
        case Drop() if isinstance(reply, Ended):
            _ended(delivery, operation.leases, reply, book)
            _dropped(delivery, operation, reply, book)
        case Finish() | Release() if isinstance(reply, Ended):
            _ended(delivery, operation.leases, reply, book)
        case Retry() | Bury() if isinstance(reply, Ended):
            _ended(delivery, tuple(failure.lease for failure in operation.failures), reply, book)
        case Extend() if isinstance(reply, Extended):
            _extended(delivery, operation, reply)
            check_cancellation_reported(delivery, operation.leases, reply, book)
        case Enqueue() if isinstance(reply, Enqueued):
            _enqueued(delivery, (reply,), book, clock_runs)
        case EnqueueMany() if isinstance(reply, EnqueuedMany):
            _enqueued(delivery, reply.items, book, clock_runs)
        case _:
            pass
    _markers(delivery)
    if isinstance(operation, Sweep | ReapLost):
        _reaped(delivery, orphans=isinstance(operation, ReapLost) or operation.orphans)


def token_of(lease: Lease) -> str:
    """The token as the scripts write it."""
    return f"{lease.fence}:{lease.nonce}"


def _leases(delivery: Delivery, book: Book, clock_runs: bool) -> list[str]:
    """Rules 4 and 6: a claim leases once and in time; a lease takes nobody's place; its fence is the highest there was."""
    before, after = delivery.before, delivery.after
    operation = delivery.operation
    claim = operation.claim if isinstance(operation, Finish) else operation
    nonce = f"{claim.incarnation}:{claim.counter}" if isinstance(claim, Claim) else ""
    fresh: list[str] = []
    for name in after.changed:
        if not name.startswith("run:"):
            continue
        job, old, new = name[4:], before.run(name[4:]), after.run(name[4:])
        if not new.token or new.token == old.token:
            continue
        if not isinstance(claim, Claim) or new.token.split(":", 1)[1] != nonce:
            raise Found("lease", f"{job} has a new token that no claim asked for", (job,))
        if old.token and job in before.zset("active"):
            raise Found("one token", f"{job} is leased under {old.token} and again under {new.token}", (job,))
        if nonce in book.claims:
            raise Found("claim twice", f"a second copy of claim {claim.counter} has leased {job} as well", (job,))
        envelope = after.job(job)
        if envelope is not None and envelope.kind == "J" and envelope.class_name not in claim.classes:
            raise Found("class", f"{job} is leased and is of class {envelope.class_name}, which was not asked for", (job,))
        if delivery.now_ms > claim.not_after_ms:
            raise Found(
                "late claim", f"{job} is leased {delivery.now_ms - claim.not_after_ms} ms after the claim was void", (job,)
            )
        known = book.fences_ever.get(job, 0)
        # After a failover the fence before may be lost, and it falls by no more than the clock has (rule 6).
        if new.fence <= known - delivery.behind_ms or new.fence <= old.fence:
            raise Found("fence", f"{job} is leased with fence {new.fence}, it has had {known}", (job,))
        book.fences_ever[job] = max(known, new.fence)
        book.leased_ns[(job, new.token)] = delivery.message.line.process.world.now_ns
        fresh.append(job)
    if fresh and isinstance(claim, Claim):
        book.claims.add(nonce)
        _order(delivery, claim, fresh)
    return fresh


def _order(delivery: Delivery, claim: Claim, fresh: list[str]) -> None:
    """Rule 19: FIFO per lane and priority. Rule 12: at most so many with a crash behind them, and only those are passed by."""
    after = delivery.after
    crashed = [job for job in fresh if delivery.before.run(job).crashes]
    if len(crashed) > claim.crashed_max:
        raise Found(
            "poison pair",
            f"one claim leases {len(crashed)} jobs with a crash behind them, {claim.crashed_max} asked for",
            tuple(crashed),
        )
    for name in after.names("lane:"):
        for job, score in after.zset(name).items():
            if after.run(job).crashes:
                continue
            for other in fresh:
                envelope = after.job(other)
                if envelope is None or "lane:" + envelope.lane != name:
                    continue
                middle = (10 - envelope.priority) * (1 << 49) + (1 << 48)
                place = middle - envelope.sequence if envelope.lifo else middle + envelope.sequence
                if place > score:
                    raise Found("order", f"{other} is leased, and {job}, before it in the same lane, is not", (job, other))


def _claimed(delivery: Delivery, claim: Claim, reply: Claimed) -> None:
    """A repeat tells the leases that still live, all of them; a claim brings at most 1 MiB (rules 4 and 17)."""
    after = delivery.after
    nonce = f"{claim.incarnation}:{claim.counter}"
    told = {job.lease.job for job in reply.jobs} | {failure.lease.job for failure in reply.unreadable}
    if reply.result in ("leased", "repeated"):
        held = {job for job in after.zset("active") if after.run(job).token.endswith(":" + nonce)}
        if told != held:
            odd = tuple(sorted(told ^ held))
            raise Found("claim reply", f"claim {claim.counter} was told {sorted(told)} and holds {sorted(held)}", odd)
    size = sum(len(job.payload) for job in reply.jobs)
    if len(reply.jobs) > 1 and size > CLAIM_BYTES_MAX and reply.result == "leased":
        raise Found("claim size", f"one claim brings {size} bytes of payload in {len(reply.jobs)} jobs")
    if len(told) > claim.most:
        raise Found("claim size", f"a claim of {claim.most} brings {len(told)} jobs")


def _ended(delivery: Delivery, leases: tuple[Lease, ...], reply: Ended, book: Book) -> None:
    """Rules 5 and 11: a live token is accepted however late, once; a repeat returns what the first one returned."""
    before, after = delivery.before, delivery.after
    for lease, (result, outcome) in zip(leases, reply.items, strict=True):
        job, token = lease.job, token_of(lease)
        old, key = before.run(job), (lease.job, token_of(lease))
        tombstone = before.job(job)
        live = old.token == token and job in before.zset("active")
        known = old.ended == token or (tombstone is not None and tombstone.kind == "T" and tombstone.token == token)
        if result == "ok":
            if not live:
                raise Found("zombie", f"{token} of {job} has ended, and a {_what(delivery)} under it is accepted", (job,))
            book.outcomes[key] = outcome
            if isinstance(delivery.operation, Finish) and job not in after.zset("done"):
                raise Found("finished", f"{job} has finished, and is not among the finished jobs", (job,))
            _charged(delivery, job, old.failures, old.crashes, after, outcome)
        elif live:
            raise Found("live refused", f"the {_what(delivery)} of the live token {token} of {job} is {result}", (job,))
        elif result == "stale" and known:
            raise Found("repeat", f"{job} was ended under {token}; a repeat of that {_what(delivery)} is told stale", (job,))
        elif result == "repeated" and book.outcomes.get(key, outcome) != outcome:
            raise Found("repeat", f"{job}: the first {_what(delivery)} was told {book.outcomes[key]}, a repeat {outcome}", (job,))


def _dropped(delivery: Delivery, operation: Drop, reply: Ended, book: Book) -> None:
    """A lease ends as it was asked to; what is skipped is listed as finished, what goes on elsewhere is there (rule 27)."""
    before, after = delivery.before, delivery.after
    for lease, asked, (result, outcome) in zip(operation.leases, operation.outcomes, reply.items, strict=True):
        if result != "ok":
            continue
        tombstone = after.job(lease.job)
        if outcome != asked or tombstone is None or OUTCOMES.get(tombstone.outcome) != asked:
            raise Found("drop", f"{lease.job} is to be {asked}, and is not", (lease.job,))
        if (asked == "skipped") != (lease.job in after.zset("done")) and lease.job not in before.zset("done"):
            raise Found("drop", f"{lease.job} is {asked}; that it is among the finished ones says otherwise", (lease.job,))
        there = f"{lease.job}>reroute"
        if asked == "rerouted" and not any(job == there for job, _ in book.created | book.taken_back):
            raise Found("drop", f"{lease.job} goes on elsewhere, and there is nothing", (lease.job,))


def _what(delivery: Delivery) -> str:
    return type(delivery.operation).__name__.lower()


def _charged(delivery: Delivery, job: str, failures: int, crashes: int, after: State, outcome: str) -> None:
    """A release costs nothing, a failed run one attempt, and attempts are bounded."""
    run, envelope = after.run(job), after.job(job)
    if outcome == "released" and (run.failures, run.crashes) != (failures, crashes):
        raise Found("charge", f"giving {job} back unstarted has charged it", (job,))
    if outcome in ("retried", "buried") and isinstance(delivery.operation, Retry) and envelope is not None:
        if run.failures != failures + 1:
            raise Found("charge", f"{job} failed once and is charged from {failures} to {run.failures}", (job,))
        if (outcome == "buried") != (run.failures >= envelope.attempts):
            raise Found("charge", f"{job} is {outcome} after {run.failures} of {envelope.attempts} runs", (job,))


def _extended(delivery: Delivery, operation: Extend, reply: Extended) -> None:
    """Rules 9 and 11: a live token is renewed, but not by a call that comes too late."""
    before, after = delivery.before, delivery.after
    for lease, (result, _) in zip(operation.leases, reply.items, strict=True):
        job = lease.job
        live = before.run(job).token == token_of(lease) and job in before.zset("active")
        if live and result == "stale":
            raise Found("live refused", f"a renewal of the live token of {job} is told stale", (job,))
        if not live and result in ("ok", "repeated"):
            raise Found("zombie", f"a renewal of {job} under a token that has ended is told {result}", (job,))
        if live and after.zset("active").get(job, 0) > before.zset("active")[job] and delivery.now_ms > operation.not_after_ms:
            late_ms = delivery.now_ms - operation.not_after_ms
            raise Found("late renewal", f"a copy of a renewal arms the lease of {job} {late_ms} ms after it was void", (job,))


def _enqueued(delivery: Delivery, replies: tuple[Enqueued, ...], book: Book, clock_runs: bool) -> None:
    """Rules 3 and 23: what the caller is told is what the keys say."""
    for reply, (job, wanted) in zip(replies, wanted_results(delivery, book), strict=True):
        if wanted and reply.result != wanted:
            raise Found("enqueue reply", f"the enqueue of {job} is told {reply.result} and is {wanted}", (job,))
    operation = delivery.operation
    jobs = operation.jobs if isinstance(operation, EnqueueMany) else (operation,) if isinstance(operation, Enqueue) else ()
    created = [job for job, reply in zip(jobs, replies, strict=True) if reply.result == "created"]
    check_windows(delivery, created, book, clock_runs=clock_runs)


def _markers(delivery: Delivery) -> None:
    """Rule 22: what makes work claimable leaves a marker; so does a claim that leaves work, and a sweep that finds some."""
    before, after, operation, reply = delivery.before, delivery.after, delivery.operation, delivery.reply
    _due_marker(delivery)
    claimed = reply.claimed if isinstance(reply, FinishedAndClaimed) else reply
    claim = operation.claim if isinstance(operation, Finish) else operation
    for name in after.names("ready:"):
        class_name = name[6:]
        if after.number("wake:" + class_name):
            continue
        jobs = claimable(after, class_name, delivery.now_ms)
        if not jobs:
            continue
        # A lane that was ready and whose key had no slot has had its marker: whoever took it claims soon, and may park it. So had
        # a lane behind the costliest job, which this call may have removed.
        known = claimable(before, class_name, delivery.now_ms, keys=False, cost=most_cost(after))
        gained = [job for job in jobs if job not in known]
        if isinstance(operation, Enqueue):
            # So had a lane that was ready, which a job joins.
            joined = {job for lane in before.zset(name) for job in after.zset("lane:" + lane)}
            gained = [job for job in gained if job not in joined]
        # What has come while a queue was obliterated waits for the next sweep.
        if gained and not (isinstance(claim, Claim) and class_name in claim.classes) and not isinstance(operation, Forget):
            raise Found("marker", f"{gained[0]} became claimable and no marker says so", (gained[0],))
        if (
            isinstance(claim, Claim)
            and class_name in claim.classes
            and isinstance(claimed, Claimed)
            and claimed.result == "leased"
        ):
            passed = any(after.run(job).crashes for lane in after.zset(name) for job in after.zset("lane:" + lane))
            if not passed:
                raise Found("marker", f"a claim has left {jobs[0]} of class {class_name} and no marker", (jobs[0],))
        if _sweeps(operation) and operation.counter > before.swept(operation.incarnation):
            raise Found("marker", f"a sweep has found {jobs[0]} in class {class_name} and left no marker", (jobs[0],))


def _sweeps(operation: Operation) -> TypeGuard[Sweep]:
    """Whether it looks after all classes: the look for orphans does not."""
    return isinstance(operation, Sweep) and not operation.orphans


def _due_marker(delivery: Delivery) -> None:
    before, after = delivery.before, delivery.after
    head = next(iter(after.zset("due")), "")
    if head and head not in before.zset("due") and isinstance(delivery.operation, Enqueue | EnqueueMany | Retry):
        envelope = after.job(head[10:])
        if envelope is not None and envelope.kind == "J" and not after.number("wake:" + envelope.class_name):
            raise Found("marker", f"{head[10:]} is the first to be due now and no marker says so", (head[10:],))


def _reaped(delivery: Delivery, *, orphans: bool) -> None:
    """Leases are reaped when they have run out; crashes are charged by rule 12; a clock that stepped back is mended (rule 10)."""
    before, after = delivery.before, delivery.after
    for job, deadline_ms in before.zset("active").items():
        if job in after.zset("active"):
            continue
        old, new = before.run(job), after.run(job)
        if deadline_ms >= delivery.now_ms and not orphans:
            raise Found(
                "early reap", f"the lease of {job} is taken {deadline_ms - delivery.now_ms:.0f} ms before its end", (job,)
            )
        charged = old.crashes == 0 or old.marked == old.token
        envelope = after.job(job)
        if envelope is not None and envelope.kind == "J" and new.crashes != old.crashes + charged:
            raise Found("charge", f"{job} had {old.crashes} crashes, marked {charged}, and has {new.crashes}", (job,))
        buried = job in after.zset("dead")
        if envelope is not None and envelope.kind == "J" and buried != (new.crashes >= envelope.crashes_max):
            raise Found("charge", f"{job} with {new.crashes} of {envelope.crashes_max} crashes is buried: {buried}", (job,))


def check_mark(delivery: Delivery) -> None:
    """A mark that was accepted is kept with the token that it names."""
    operation = delivery.operation
    kept = not isinstance(operation, Mark) or delivery.after.run(operation.lease.job).marked == token_of(operation.lease)
    if isinstance(operation, Mark) and not kept and getattr(delivery.reply, "result", "") == "ok":
        raise Found("mark", f"the mark of {operation.lease.job} is not kept", (operation.lease.job,))
