"""Invariants of bytes: a claim brings the payload that its enqueue sent, a result is what the handler returned, and whoever reads
it is told just that."""

from __future__ import annotations

import json
from collections.abc import Sequence

from chaos.simulate.book import Book
from chaos.simulate.server import Delivery
from chaos.simulate.world import Found
from engine.ops.admin import Administered, Alter, Clean, Forget
from engine.ops.claims import Claimed, Finish, FinishedAndClaimed, LeasedJob, Sweep, Value
from engine.ops.jobs import Enqueue, EnqueueMany
from engine.ops.looks import Look, Seen
from engine.ops.schedules import PutSchedule, Tick
from engine.queue.results import result_of

#: What a result lives longer while it is kept for a child (release_results, lua/children/modules/children.lua).
_KEPT_MS = 2**48


def check_payloads(delivery: Delivery, fresh: Sequence[str], book: Book) -> None:
    """What a claim brings is what was sent for that job, and no envelope of a live job is ever rewritten."""
    operation, reply, after = delivery.operation, delivery.reply, delivery.after
    match operation:
        case Enqueue():
            book.asked[(operation.job, operation.nonce)] = operation
        case EnqueueMany():
            book.asked.update({(job.job, job.nonce): job for job in operation.jobs})
        case PutSchedule() if isinstance(reply, Administered) and reply.result == "done":
            book.schedules[operation.schedule] = operation
        case Tick():
            _ticked(delivery, operation, book)
        case _:
            pass
    for job in fresh:
        envelope = after.job(job)
        if envelope is not None and envelope.kind == "J":
            book.leases[(job, after.run(job).token)] = (job, envelope.nonce)
    for name in after.changed:
        if name.startswith("job:"):
            old, new = delivery.before.job(name[4:]), after.job(name[4:])
            if old is not None and new is not None and old.kind == new.kind == "J" and old.nonce == new.nonce:
                raise Found("payload", f"the envelope of {name[4:]}, which lives, is rewritten", (name[4:],))
    claimed = reply.claimed if isinstance(reply, FinishedAndClaimed) else reply
    if isinstance(claimed, Claimed):
        for job in claimed.jobs:
            _brought(job, book)


def _ticked(delivery: Delivery, tick: Tick, book: Book) -> None:
    put = book.schedules.get(tick.schedule)
    for tick_ms in tick.ticks_ms:
        job = f"cron:{tick.schedule}:{tick_ms}"
        if delivery.before.job(job) is None and (made := delivery.after.job(job)) is not None:
            # After a failover it is not known which definition has made it; the one before may have made it, too, and was lost.
            book.asked.pop((job, made.nonce), None)
            if put is not None:
                book.asked[(job, made.nonce)] = put.job


def _brought(job: LeasedJob, book: Book) -> None:
    name = job.lease.job
    birth = book.leases.get((name, f"{job.lease.fence}:{job.lease.nonce}"))
    asked = book.asked.get(birth) if birth is not None else None
    if asked is None:
        return
    if job.payload != asked.payload:
        raise Found(
            "payload", f"{name} was enqueued with {_shown(asked.payload)} and is claimed with {_shown(job.payload)}", (name,)
        )
    if job.name != asked.name:
        raise Found("payload", f"{name} was enqueued as {asked.name} and is claimed as {job.name}", (name,))


def check_values(delivery: Delivery, accepted: dict[str, int], book: Book) -> None:
    """A stored result is what its finish sent, for as long as it said. `accepted`: jobs that this call has finished, with their
    fences."""
    operation, before, after = delivery.operation, delivery.before, delivery.after
    if isinstance(operation, Finish) and accepted:
        for value in operation.values:
            lease = operation.leases[value.item]
            if accepted.get(lease.job) == lease.fence and value.ttl_ms:
                book.values[lease.job] = (lease.fence, value)
                _stored(delivery, lease.job, value)
    for name in after.changed:
        if name.startswith("result:") and name in before.views and name not in after.views:
            # By hand, with its job, or with the error of one that was dead.
            ok = '{"ok":true' in before.views[name][0]
            if ok and not isinstance(operation, Alter | Clean | Forget | Sweep):
                raise Found("result bytes", f"the result of {name[7:]} is gone before its time", (name[7:],))


def _stored(delivery: Delivery, job: str, value: Value) -> None:
    view = delivery.after.views.get("result:" + job)
    if view is None:
        return
    text, expires_ms = view
    if not text.endswith(f',"took_ms":{value.took_ms},"value":{value.data.decode()}}}'):
        raise Found("result bytes", f"the handler of {job} returned {_shown(value.data)}, and {text[-60:]} is stored", (job,))
    left_ms = (expires_ms - delivery.now_ms) % _KEPT_MS
    if left_ms != value.ttl_ms:
        raise Found(
            "result bytes", f"the result of {job} is to be kept for {value.ttl_ms} ms, and expires in {left_ms} ms", (job,)
        )


def check_look(delivery: Delivery, book: Book) -> None:
    """Who reads a result is told what the keys say, and the value that the finish of this fence sent."""
    look, seen, after = delivery.operation, delivery.reply, delivery.after
    if not isinstance(look, Look) or not isinstance(seen, Seen):
        return
    job = look.job
    view = after.views.get("result:" + job)
    if seen.state != "pending" and seen.record.decode() != (view[0] if view is not None else ""):
        raise Found("result read", f"the reader of {job} is given another record than is stored", (job,))
    lives = (envelope := after.job(job)) is not None and envelope.kind == "J" and job not in after.zset("dead")
    if lives != (seen.state == "pending") and (envelope is None or envelope.kind != "?"):
        raise Found("result read", f"{job} lives: {lives}, and its reader is told {seen.state}", (job,))
    read, (fence, value) = result_of(job, seen), book.values.get(job, (0, None))
    if value is None or read is None or view is None or seen.state != "finished" or seen.fence != fence:
        return
    if read.value != json.loads(value.data):
        raise Found("result read", f"the handler of {job} returned {_shown(value.data)}, its reader is told {read.value}", (job,))


def _shown(data: bytes) -> str:
    return repr(data[:60])[1:]
