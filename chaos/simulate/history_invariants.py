"""Invariants of the history: while it is on, it tells the end of each job once, with each death before, and of nothing else, and
forgets none; the sweeps keep it within its bounds."""

from __future__ import annotations

from typing import NamedTuple

from chaos.simulate.admin_invariants import OUTCOMES
from chaos.simulate.book import Book
from chaos.simulate.limits_invariants import name_of
from chaos.simulate.server import Delivery
from chaos.simulate.state import Envelope, State
from chaos.simulate.world import Found
from engine.ops.admin import Forget, HistoryRule, SetHistory
from engine.ops.claims import Sweep

#: Entries that a sweep removes at most.
_TRIMMED_MAX = 5_000


class _Entry(NamedTuple):
    member: str
    job: str
    fence: int
    outcome: str
    enqueued_ms: int


def check_history(delivery: Delivery, book: Book, *, exact: bool) -> int:
    """All of them. How many ends of this delivery it has found there."""
    before, after = delivery.before, delivery.after
    for job, envelope in _deaths(before, after):
        book.deaths.add((job, envelope.enqueued_ms, after.run(job).fence))
    setting = after.table("stats").get("history", "")
    rule = HistoryRule.read(setting)
    if rule is None or before.table("stats").get("history", "") != setting:
        return 0
    _bounded(delivery, rule)
    ends = [(job, envelope) for job, envelope in _ends(before, after) if _meant(envelope, rule)]
    deaths = [(job, envelope) for job, envelope in _deaths(before, after) if _meant(envelope, rule)]
    if exact and not delivery.error:
        _stays(delivery)
        _told_only(delivery, {job for job, _ in (*_ends(before, after), *_deaths(before, after))})
    if isinstance(delivery.operation, Sweep) and (rule.age_ms or len(after.zset("history")) >= rule.keep):
        # It may have trimmed what it has written.
        return 0
    for job, envelope in ends:
        tombstone = after.job(job)
        said = [entry.outcome for entry in _of(after, job, envelope) if entry.outcome != "dead"]
        wanted = OUTCOMES.get(tombstone.outcome, "") if tombstone is not None else ""
        if said != [wanted]:
            raise Found("history", f"{job} is {wanted}, and its history says {' and '.join(said) or 'nothing'}", (job,))
    for job, envelope in deaths:
        said = [entry.outcome for entry in _of(after, job, envelope) if entry.fence == after.run(job).fence]
        # One that never ran may have died for want of one parent and then of another.
        if not said or {*said} != {"dead"} or (len(said) > 1 and after.run(job).fence):
            raise Found("history", f"{job} has died, and its history says {' and '.join(said) or 'nothing'}", (job,))
    for job, envelope in (*ends, *deaths):
        for entry in _of(after, job, envelope):
            # A sweep may bury a job and discard it at once.
            fresh = isinstance(delivery.operation, Sweep) and entry.member not in before.zset("history")
            if entry.outcome == "dead" and not fresh and (job, entry.enqueued_ms, entry.fence) not in book.deaths:
                raise Found("history", f"{job} never died with fence {entry.fence}, and its history says so", (job,))
    return len(ends) + len(deaths)


def _ends(before: State, after: State) -> list[tuple[str, Envelope]]:
    """The jobs that have ended, as they were before."""
    found: list[tuple[str, Envelope]] = []
    for name in after.changed:
        if name.startswith("job:"):
            was, now = before.job(name[4:]), after.job(name[4:])
            if was is not None and was.kind == "J" and now is not None and now.kind == "T":
                found.append((name[4:], was))
    return found


def _deaths(before: State, after: State) -> list[tuple[str, Envelope]]:
    """The jobs that have died: an older entry of one that came back since was left over."""
    found: list[tuple[str, Envelope]] = []
    was = before.zset("dead")
    for job, at_ms in after.zset("dead").items() if "dead" in after.changed else ():
        left_over = job in was and was[job] < before.run(job).requeued_ms and at_ms >= before.run(job).requeued_ms
        envelope = after.job(job)
        if (job not in was or left_over) and envelope is not None and envelope.kind == "J":
            found.append((job, envelope))
    return found


def _meant(envelope: Envelope, rule: HistoryRule) -> bool:
    return not rule.names or name_of(envelope.class_name) in rule.names


def _entries(state: State) -> list[_Entry]:
    known: list[_Entry] | None = state.memo.get("history")
    if known is None:
        words = ((member, member.split("\0")) for member in state.zset("history"))
        known = state.memo["history"] = [
            _Entry(member, each[0], int(each[1]), each[2], int(each[7].split()[0])) for member, each in words
        ]
    return known


def _of(state: State, job: str, envelope: Envelope) -> list[_Entry]:
    """The entries of this life of a job."""
    return [entry for entry in _entries(state) if entry.job == job and entry.enqueued_ms == envelope.enqueued_ms]


def _told_only(delivery: Delivery, ended: set[str]) -> None:
    """Nothing is told of a job that goes on."""
    known = delivery.before.zset("history")
    for entry in _entries(delivery.after):
        # Of one that nobody can read nothing is known but that it is dead.
        if entry.member not in known and entry.job not in ended and entry.enqueued_ms:
            raise Found("history", f"{entry.job} has not ended, and its history says {entry.outcome}", (entry.job,))


def _stays(delivery: Delivery) -> None:
    """Only a sweep removes what is told, or who removes all."""
    after = delivery.after.zset("history")
    if isinstance(delivery.operation, Sweep | SetHistory | Forget):
        return
    for entry in _entries(delivery.before) if "history" in delivery.after.changed else ():
        if entry.member not in after:
            raise Found("history", f"that {entry.job} was {entry.outcome} is told no more", (entry.job,))


def _bounded(delivery: Delivery, rule: HistoryRule) -> None:
    """After a sweep it is within its bounds."""
    operation, before, after = delivery.operation, delivery.before, delivery.after
    if not isinstance(operation, Sweep) or operation.orphans or delivery.error:
        return
    if operation.counter <= before.swept(operation.incarnation) or len(before.zset("history")) > _TRIMMED_MAX:
        return
    entries = after.zset("history")
    if len(entries) > rule.keep:
        raise Found("kept", f"the history has {len(entries)} ends, {rule.keep} may be kept")
    if rule.age_ms and any(at_ms < delivery.now_ms - rule.age_ms for at_ms in entries.values()):
        raise Found("kept", f"the history has an end that is older than {rule.age_ms} ms")
