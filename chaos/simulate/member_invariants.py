"""Invariants of the workers' beats: who lives is listed, who has left is not, one leads; and only the leases of those that have
stopped beating are taken before they run out (rules 9 to 11)."""

from __future__ import annotations

from chaos.simulate.book import Book
from chaos.simulate.server import Delivery
from chaos.simulate.state import State
from chaos.simulate.world import Found
from engine.ops.claims import Sweep
from engine.ops.workers import Beat, Beaten, ReportRunTimes


def check_members(delivery: Delivery, book: Book, *, beats_for_ms: int, lease_ms: int, clock_runs: bool) -> None:
    """What a beat and a look for orphans may do. `beats_for_ms`: how long a beat counts."""
    operation, reply = delivery.operation, delivery.reply
    if isinstance(operation, Beat) and isinstance(reply, Beaten):
        _beat(delivery, operation, reply, book, clock_runs)
    elif isinstance(operation, Sweep) and operation.orphans:
        _orphans(delivery, beats_for_ms, lease_ms, clock_runs)
        book.orphaned.update((job, delivery.before.run(job).token) for job in taken_of(delivery))
    elif isinstance(operation, ReportRunTimes):
        _times(delivery, operation)


def _beat(delivery: Delivery, beat: Beat, reply: Beaten, book: Book, clock_runs: bool) -> None:
    before, after, incarnation = delivery.before, delivery.after, beat.incarnation
    listed, leader = after.zset("workers"), after.views.get("leader", "")
    if reply.leads != (leader == incarnation):
        raise Found("leader", f"{incarnation} is told leading {reply.leads}, and the leader is {leader or 'nobody'}")
    if leader and leader not in listed and clock_runs:
        raise Found("leader", f"{leader} leads and is no member")
    late = beat.counter <= book.beats.get(incarnation, 0)
    book.beats[incarnation] = max(beat.counter, book.beats.get(incarnation, 0))
    if late:
        # Where the clock is set right, by more than a worker's last beat is remembered for, a copy cannot be known as one.
        if clock_runs and listed.get(incarnation, 0) > before.zset("workers").get(incarnation, 0):
            raise Found("member", f"a late copy of a beat has listed {incarnation} anew")
        return
    if not beat.until_ms and incarnation in listed:
        raise Found("member", f"{incarnation} has left and is still listed")
    if beat.until_ms and beat.until_ms > delivery.now_ms and incarnation not in listed:
        raise Found("member", f"{incarnation} beats and is not listed")
    if beat.until_ms and beat.until_ms <= delivery.now_ms and incarnation in listed and incarnation not in before.zset("workers"):
        raise Found("member", f"a beat of {incarnation} that counts no more has listed it")
    if listed.get(incarnation, 0) > max(delivery.now_ms + beat.ttl_ms, before.zset("workers").get(incarnation, 0)):
        raise Found("member", f"{incarnation} is listed for longer than its beat counts")


def _orphans(delivery: Delivery, beats_for_ms: int, lease_ms: int, clock_runs: bool) -> None:
    """The leases that are taken are those of workers whose beats have run out, and no renewal says that they live."""
    before, now_ms = delivery.before, delivery.now_ms
    for job in taken_of(delivery):
        run, deadline_ms = before.run(job), before.zset("active")[job]
        incarnation = run.token.split(":")[1] if ":" in run.token else ""
        until_ms = before.zset("workers").get(incarnation)
        if until_ms is None or until_ms >= now_ms:
            raise Found("live member", f"the lease of {job} is taken as an orphan, and {incarnation} beats", (job,))
        if now_ms < int(float(before.table("sweep").get("no_orphans_before_ms", 0))):
            raise Found("live member", f"the lease of {job} is taken before its worker could be heard again", (job,))
        renewed_ms = deadline_ms - lease_ms
        if clock_runs and not run.marked and now_ms - renewed_ms <= beats_for_ms:
            ago_ms = now_ms - renewed_ms
            raise Found("live member", f"the lease of {job} is taken, which was renewed {ago_ms:.0f} ms ago", (job,))


def _times(delivery: Delivery, report: ReportRunTimes) -> None:
    """What a report says is added once, and all of it."""
    before, after = delivery.before, delivery.after
    told = int(before.views.get("told:" + report.incarnation, "0"))
    counts = told < report.counter and delivery.now_ms <= report.not_after_ms
    for item in report.items:
        field, name = f"{item.outcome}:total_us", "took:" + item.name
        added = int(after.table(name).get(field, 0)) - int(before.table(name).get(field, 0))
        if added != (item.total_us if counts else 0):
            raise Found("times", f"report {report.counter} of {item.total_us} us of {item.name} adds {added} us")


def taken_of(delivery: Delivery) -> list[str]:
    """Jobs whose leases a sweep has taken."""
    active = delivery.after.zset("active")
    return [job for job in delivery.before.zset("active") if job not in active]


def orphaned(state: State, incarnation: str, now_ms: int) -> bool:
    """Whether everybody can know that a worker has stopped."""
    until_ms = state.zset("workers").get(incarnation)
    return until_ms is not None and until_ms < now_ms
