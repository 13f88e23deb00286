"""Invariants of revivals (rule 25): who was buried with a parent comes back once, with all its attempts, and runs when the
parents that it lacked have ended."""

from __future__ import annotations

from chaos.simulate.book import Book
from chaos.simulate.children_invariants import fate
from chaos.simulate.server import Delivery
from chaos.simulate.world import Found
from engine.ops.admin import Alter, Altered, AlteredJobs, Revive


def check_revivals(delivery: Delivery, book: Book, *, exact: bool) -> None:
    """What a call revives, and when what was revived is leased."""
    operation, reply, after = delivery.operation, delivery.reply, delivery.after
    if isinstance(reply, AlteredJobs) and reply.result == "done":
        for item in reply.items:
            if isinstance(operation, Revive):
                _told(delivery, item, book, exact=exact)
            elif isinstance(operation, Alter) and item.done:
                for birth in [birth for birth in book.revived if birth[0] == item.job]:
                    del book.revived[birth]
    for birth, parents in list(book.revived.items()):
        job, nonce = birth
        envelope = after.job(job)
        if envelope is None or envelope.kind != "J" or envelope.nonce != nonce or job in after.zset("dead"):
            del book.revived[birth]
        elif after.run(job).token and job in after.zset("active"):
            del book.revived[birth]
            for parent, its_nonce in parents.items():
                if (parent, its_nonce) not in book.ended:
                    raise Found("parent open", f"{job} was revived, and runs before {parent} has ended", (job, parent))


def _told(delivery: Delivery, item: Altered, book: Book, *, exact: bool) -> None:
    before, after, job = delivery.before, delivery.after, item.job
    places = after.places.get(job, [])
    if not item.done:
        if exact and before.places.get(job, []) != places:
            raise Found("by hand", f"{job} is told not to be revived, and has moved", (job,))
        if len(places) > 1 and after.zset("dead").get(job, 1e99) < after.run(job).requeued_ms:
            raise Found("one place", f"{job} came back before, and a revival leaves it among the dead", (job,))
        return
    if "dead" in places:
        raise Found("one place", f"{job} is told to be revived, and stands in {' and '.join(places)}", (job,))
    envelope = before.job(job)
    if before.places.get(job) != ["dead"] or envelope is None:
        # A revival that was cut off is completed.
        return
    if before.run(job).fence:
        raise Found("by hand", f"{job} has run and died by itself, and is revived as a child", (job,))
    asked = book.asked.get((job, envelope.nonce))
    needed = asked.options.needs if asked is not None else ()
    noted = before.members("lacks:" + job)
    lacked = [parent for parent in noted if parent] if noted else needed
    lost = [parent for parent in lacked if fate(after, parent) in ("lost", "")]
    if lost:
        raise Found("parent lost", f"{job} comes back, and its parent {lost[0]} is lost", (job, lost[0]))
    waits = {parent for parent in lacked if fate(after, parent) == "open"}
    needs = set(after.members("needs:" + job))
    if waits != needs if exact else not waits <= needs:
        held, wanted = (", ".join(sorted(each)) or "nobody" for each in (needs, waits))
        raise Found("parent open", f"{job} comes back and waits for {held}, not for {wanted}", (job,))
    if after.run(job).failures or after.run(job).crashes:
        raise Found("charge", f"{job} comes back and does not have all its chances", (job,))
    parents = {parent: known.nonce for parent in sorted(waits) if (known := after.job(parent)) is not None and known.kind == "J"}
    book.revived[(job, envelope.nonce)] = parents
    left = {parent for parent in needed if fate(after, parent) != "open" and "result:" + parent in before.views}
    book.heirs.setdefault((job, envelope.nonce), set()).update(left)
