"""Invariants of what removes many jobs: only what was there when the work began, in the state that was named and old enough; what
runs goes on; and what was to be empty is (rule 7). And those of the bounds of what is kept."""

from __future__ import annotations

from chaos.simulate.admin_invariants import state_of
from chaos.simulate.book import Book
from chaos.simulate.server import Delivery
from chaos.simulate.state import State
from chaos.simulate.world import Found
from engine.ops.admin import Clean, Cleaned, Era, Forget, Forgotten
from engine.ops.claims import Sweep

_TIMED = {"dead": "dead", "finished": "done"}
#: Unless a queue says otherwise.
_DEAD_MAX, _DEAD_AGE_MS = 100_000, 90 * 86_400_000
#: Of the dead one sweep discards so many.
_DISCARDS_MAX = 100


def check_clears(delivery: Delivery, book: Book) -> None:
    """What one call of a clean, a drain or an obliteration does."""
    operation, reply = delivery.operation, delivery.reply
    _moved(delivery, book)
    if isinstance(operation, Clean) and isinstance(reply, Cleaned) and reply.result == "done" and reply.era is not None:
        _cleaned(delivery, operation, reply, reply.era)
        if operation.state == "active":
            # Their holders hear of it at the next renewal, as after a cancel.
            book.cancelled.update((job, delivery.before.run(job).token) for job in delivery.before.zset("active"))
    elif isinstance(operation, Forget) and isinstance(reply, Forgotten) and reply.result == "done" and not reply.busy:
        _forgotten(delivery, operation, reply, book)


def _cleaned(delivery: Delivery, clean: Clean, reply: Cleaned, era: Era) -> None:
    before, after = delivery.before, delivery.after
    there, left = _in_state(before, clean.state), _in_state(after, clean.state)
    gone = [job for job in there if job not in left]
    for job in gone:
        if not _old(before, clean, era, job, delivery.now_ms):
            raise Found("clean", f"{job} is removed, and is too young or came after the {clean.state} were to go", (job,))
        envelope = after.job(job)
        if clean.state != "finished" and envelope is not None and envelope.kind != "T":
            raise Found("clean", f"{job} is removed and lives on", (job,))
    if reply.removed != len(gone):
        raise Found("clean", f"{reply.removed} jobs are told to be removed, {len(gone)} are", tuple(gone))
    others = [job for job, places in before.places.items() if job not in gone and after.places.get(job) != places]
    if others:
        raise Found("clean", f"{others[0]} is not {clean.state}, and a clean of those has moved it", (others[0],))
    whole = clean.offset == 0 and reply.removed + reply.kept < clean.limit and reply.removed < clean.most
    stays = [job for job in left if _old(after, clean, era, job, delivery.now_ms)] if whole else []
    if stays and not (clean.state == "dead" and stays[0] in after.zset("active")):
        raise Found("clean", f"{stays[0]} is {clean.state} and old enough, and stays", (stays[0],))


def _in_state(state: State, name: str) -> list[str]:
    if name == "finished":
        return list(state.zset("done"))
    return [job for job in state.places if state_of(state, job) == name]


def _old(state: State, clean: Clean, era: Era, job: str, now_ms: int) -> bool:
    before_ms = min(now_ms - clean.older_than_ms, era.at_ms)
    zset = _TIMED.get(clean.state)
    envelope = state.job(job)
    # Where any age will do, what a clock that stepped back has left ahead of now goes as well.
    all_ages = clean.older_than_ms == 0
    readable = clean.state == "dead" and envelope is not None and envelope.kind == "J"
    until_ms = now_ms - clean.older_than_ms if readable else before_ms
    if zset is not None and until_ms < state.zset(zset)[job] and not (all_ages and state.zset(zset)[job] > now_ms):
        return False
    if clean.state == "finished" or envelope is None:
        return True
    if envelope.kind != "J":
        return zset is not None or all_ages
    return envelope.sequence <= era.sequence and (zset is not None or all_ages or envelope.enqueued_ms <= before_ms)


def _forgotten(delivery: Delivery, forget: Forget, reply: Forgotten, book: Book) -> None:
    after = delivery.after
    gone = ("cron",) if forget.phase == "begin" else ("paused", "limits", "retention")
    for name in gone:
        if name in after.views:
            raise Found("obliterate", f"{name} is left of an obliterated queue")
    if forget.phase == "begin" and reply.era is not None:
        alive = {
            (job, envelope.nonce): after.places[job][0]
            for job, envelope in after.jobs()
            if envelope.kind in "J?" and job in after.places
        }
        # It begins anew before each state; what counts is the first time.
        book.condemned.setdefault(delivery.message.line.name, alive)
    elif forget.phase == "end" and not after.places and not after.zset("done"):
        left = [name for name in after.raw if name in ("classes", "routed", "parked", "rest", "blocking", "stats")]
        left += after.names("ready:") + after.names("wake:")
        if left:
            raise Found("obliterate", f"{left[0]} is left of an obliterated queue without jobs")


def _moved(delivery: Delivery, book: Book) -> None:
    """Whoever moves while a queue is obliterated may slip through."""
    for alive in book.condemned.values():
        for birth, place in list(alive.items()):
            places = delivery.after.places.get(birth[0])
            if places and places[0] != place:
                del alive[birth]


def check_obliterated(state: State, book: Book, caller: str) -> None:
    """An obliteration was told to be done: of the jobs that stood still none is left."""
    for (job, nonce), place in book.condemned.pop(caller, {}).items():
        envelope = state.job(job)
        if envelope is not None and envelope.nonce == nonce and envelope.kind in "J?" and place in state.places.get(job, []):
            raise Found("obliterate", f"{job} has stood in {place} all the time, and the queue is told to be empty", (job,))


def check_kept(delivery: Delivery, *, clock_runs: bool) -> None:
    """After a sweep the finished and the dead are within their bounds, and the oldest dead have gone first."""
    operation, before, after = delivery.operation, delivery.before, delivery.after
    if not isinstance(operation, Sweep) or operation.orphans or operation.counter <= before.swept(operation.incarnation):
        return
    bounds = after.table("retention")
    done_max, dead_max = int(bounds.get("done_max", operation.done_max)), int(bounds.get("dead_max", _DEAD_MAX))
    done, dead, was = after.zset("done"), after.zset("dead"), before.zset("dead")
    old_ms = delivery.now_ms - int(bounds.get("dead_age_ms", _DEAD_AGE_MS))
    if len(done) > done_max or len(dead) > max(dead_max, len(was) - _DISCARDS_MAX):
        raise Found("kept", f"{len(done)} finished and {len(dead)} dead jobs are kept, {done_max} and {dead_max} may be")
    done_ms = delivery.now_ms - int(bounds["done_age_ms"]) if "done_age_ms" in bounds else 0
    too_old = [job for job, at_ms in done.items() if at_ms < done_ms] + [job for job, at_ms in dead.items() if at_ms < old_ms]
    if too_old and len(was) <= _DISCARDS_MAX:
        raise Found("kept", f"{too_old[0]} is kept for too long", (too_old[0],))
    gone = [job for job in was if job not in dead and job not in after.zset("active")]
    for job in gone:
        if was[job] >= old_ms and len(dead) < dead_max and clock_runs:
            raise Found("kept", f"{job} is discarded and was within the bounds", (job,))
        if any(at_ms < was[job] for at_ms in dead.values()):
            raise Found("kept", f"{job} is discarded before one that died earlier", (job,))
