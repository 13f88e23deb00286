"""Invariants of the life of a job: it is born once, by its own call and in time; it ends once, by its token or by hand; it never
comes back and never vanishes (rules 3 and 34)."""

from __future__ import annotations

from chaos.simulate.book import Book
from chaos.simulate.server import Delivery
from chaos.simulate.state import Envelope
from chaos.simulate.world import Found
from engine.ops.admin import Alter, Clean
from engine.ops.claims import Claim, Drop, Finish, Sweep
from engine.ops.jobs import Enqueue, EnqueueMany
from engine.ops.schedules import Tick

#: What a job that nobody could read has left of its nonce.
_UNKNOWN = bytes(8)


def check_life(delivery: Delivery, book: Book) -> None:
    """All of them."""
    before, after = delivery.before, delivery.after
    for name in after.changed:
        if not name.startswith("job:"):
            continue
        job, old, new = name[4:], before.job(name[4:]), after.job(name[4:])
        if old is not None and old.kind == "J" and new is None:
            raise Found("lost", f"{job} was a live job and its envelope is gone", (job,))
        if new is None or new.kind in "?R":
            continue
        birth = (job, new.nonce)
        if new.kind == "J" and (old is None or old.kind != "J" or old.nonce != new.nonce):
            _born(delivery, job, new.nonce, book)
        elif new.kind == "T" and (old is None or old.kind != "T"):
            _ended(delivery, job, new, book)
            if birth in book.ended and new.nonce != _UNKNOWN:
                raise Found("one finish", f"{job} has ended for the second time in this era", (job,))
            book.ended.add(birth)


def _ended(delivery: Delivery, job: str, tombstone: Envelope, book: Book) -> None:
    operation, by = delivery.operation, tombstone.token.partition(":")[2]
    match operation:
        case Claim() | Finish() | Sweep() if by == "expired":
            # Whether it may expire is checked with the due times.
            pass
        case Alter():
            if job not in operation.jobs or by != operation.op_id:
                raise Found("by hand", f"{job} is ended by a call that does not name it", (job,))
        case Clean():
            if by != operation.op_id:
                raise Found("clean", f"{job} is removed by another call than its tombstone says", (job,))
        case Sweep():
            if by != "retention":
                raise Found("one finish", f"{job} is ended by a sweep", (job,))
        case _:
            leases = operation.leases if isinstance(operation, Finish | Drop) else ()
            if tombstone.token not in {f"{lease.fence}:{lease.nonce}" for lease in leases if lease.job == job}:
                raise Found("one finish", f"{job} has ended under {tombstone.token}, which no finish named", (job,))
            birth = (job, tombstone.nonce)
            book.finishes[birth] = book.finishes.get(birth, 0) + 1
            if book.finishes[birth] > 1:
                raise Found("one finish", f"{job} is finished for the second time in this era", (job,))


def _born(delivery: Delivery, job: str, nonce: bytes, book: Book) -> None:
    birth = (job, nonce)
    operation = delivery.operation
    if birth in book.ended:
        raise Found("undead", f"{job} has ended, and a late copy of its enqueue has made it a job again", (job,))
    if birth in book.created:
        raise Found("undead", f"{job} is made a second time by the same call", (job,))
    if birth in book.nothing:
        raise Found("told nothing", f"the producer of {job} was told that nothing was applied, and now it is there", (job,))
    not_after_ms = operation.not_after_ms if isinstance(operation, Enqueue) else 0
    if isinstance(operation, EnqueueMany):
        not_after_ms = operation.jobs[0].not_after_ms
    if delivery.now_ms > not_after_ms and not isinstance(operation, Tick):
        late_ms = delivery.now_ms - not_after_ms
        raise Found("late enqueue", f"{job} is made {late_ms} ms after its call was void", (job,))
    book.created.add(birth)
    book.taken_back.discard(birth)
