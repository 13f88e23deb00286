"""Invariants of jobs that need others (rule 25): who waits does so for parents that are open, who goes on has none left, and what
joins parents and children leads from each to the other. What a parent has left stays for as long as a child may read it."""

from __future__ import annotations

from chaos.simulate.book import Book
from chaos.simulate.server import Delivery
from chaos.simulate.state import CANCELLED, EXPIRED, IGNORES, State
from chaos.simulate.world import Found
from engine.ops.admin import Alter, Clean, Revive
from engine.ops.claims import Sweep
from engine.ops.jobs import Enqueue

#: Outcomes of tombstones: finished; discarded, skipped, rerouted, cancelled and expired.
_DONE, _LOST = (1,), (2, 5, 6, CANCELLED, EXPIRED)


def fate(state: State, job: str) -> str:
    """What became of a parent: open, done, lost, or '' where nothing is known of it."""
    envelope = state.job(job)
    dead = job in state.zset("dead")
    if envelope is not None and envelope.kind in "J?":
        return "lost" if dead else "open"
    if envelope is not None and envelope.outcome in _DONE:
        return "done"
    if envelope is not None and envelope.outcome in _LOST:
        return "lost"
    done_ms = state.zset("done").get(job)
    if done_ms is not None:
        # Half a millisecond is that of a skipped job.
        return "lost" if done_ms % 1 else "done"
    return "lost" if dead else ""


def freed(state: State) -> list[str]:
    """Jobs that are blocked by nothing any more."""
    blocked = state.zset("blocked")
    return [job for job in blocked if not any(fate(state, parent) == "open" for parent in state.members("needs:" + job))]


def check_children_keys(state: State) -> None:
    """Who needs parents is blocked and nowhere else; who is blocked needs some, and they know it."""
    for name in state.names("needs:"):
        job = name[6:]
        if state.places.get(job) != ["blocked"]:
            raise Found("parent open", f"{job} needs {', '.join(state.members(name))} and is not blocked", (job,))
    for job in state.zset("blocked"):
        parents = state.members("needs:" + job)
        if not parents:
            raise Found("children", f"{job} is blocked and needs nobody", (job,))
        for parent in parents:
            if job not in state.members("feeds:" + parent) or parent not in state.members("feeding"):
                raise Found("children", f"{job} needs {parent}, whose end nobody would tell it", (job, parent))


def check_children(delivery: Delivery) -> None:
    """A parent is struck off when it has ended, and where it was lost only for those that go on without it."""
    before, after = delivery.before, delivery.after
    for name in after.changed:
        if not name.startswith("needs:"):
            continue
        job = name[6:]
        envelope = after.job(job)
        buried = job in after.zset("dead") and job in before.zset("blocked")
        if buried and not {fate(after, parent) for parent in before.members(name)} & {"lost", ""}:
            raise Found("parent lost", f"{job} is buried, and none of its parents is lost", (job,))
        if envelope is None or envelope.kind != "J" or job in after.zset("dead"):
            continue
        for parent in set(before.members(name)) - set(after.members(name)):
            became = fate(after, parent)
            if became == "open":
                raise Found("parent open", f"{job} does not wait for {parent} any more, which has not ended", (job, parent))
            if became == "lost" and not envelope.flags & IGNORES:
                raise Found("parent lost", f"{job} goes on without {parent}, which is lost", (job, parent))
    operation = delivery.operation
    if isinstance(operation, Enqueue) and operation.options.needs and getattr(delivery.reply, "result", "") == "created":
        _born(operation, after)


def _born(operation: Enqueue, after: State) -> None:
    job, bury = operation.job, operation.options.on_parent_failure == "bury"
    waits = {parent for parent in operation.options.needs if fate(after, parent) in ("open", *(("lost",) if bury else ()))}
    if waits != set(after.members("needs:" + job)):
        held = ", ".join(after.members("needs:" + job)) or "nobody"
        raise Found("parent open", f"{job} is made and waits for {held}, not for {', '.join(sorted(waits)) or 'nobody'}", (job,))


def check_dependents(delivery: Delivery, book: Book) -> None:
    """While a child lives, what its parents have left is there: what it found when it was made, and what came while it waited."""
    before, after, operation = delivery.before, delivery.after, delivery.operation
    if isinstance(operation, Enqueue) and operation.options.needs and getattr(delivery.reply, "result", "") == "created":
        left = {
            parent for parent in operation.options.needs if fate(before, parent) != "open" and "result:" + parent in before.views
        }
        book.heirs.setdefault((operation.job, operation.nonce), set()).update(left)
    for name in after.changed:
        if not name.startswith("result:"):
            continue
        parent = name[7:]
        if name not in after.views:
            # Whoever lets a dead job run again, or removes it by hand, takes what it has left away.
            if isinstance(operation, Alter | Clean | Sweep | Revive):
                for parents in book.heirs.values():
                    parents.discard(parent)
            continue
        if name in before.views and before.views[name][0] == after.views[name][0]:
            continue
        for child in before.members("feeds:" + parent):
            envelope = after.job(child)
            if parent in before.members("needs:" + child) and envelope is not None and envelope.kind == "J":
                book.heirs.setdefault((child, envelope.nonce), set()).add(parent)
    for (child, nonce), parents in list(book.heirs.items()):
        envelope = after.job(child)
        if envelope is None or envelope.kind != "J" or envelope.nonce != nonce or child in after.zset("dead"):
            del book.heirs[(child, nonce)]
            continue
        for parent in parents:
            if "result:" + parent not in after.views:
                raise Found("heir", f"{child} lives and may read what {parent} returned, and that is gone", (child, parent))
