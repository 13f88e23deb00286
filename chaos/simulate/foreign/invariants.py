"""Invariants of one delivery with a foreign model: what a call may do to the keys, and what it must answer."""

from __future__ import annotations

import json
from collections.abc import Sequence

from chaos.simulate.call_invariants import token_of
from chaos.simulate.foreign.book import ForeignBook, birth_of
from chaos.simulate.foreign.state import ForeignState, Format
from chaos.simulate.server import Delivery
from chaos.simulate.world import Found
from engine.ops.claims import Bury, Claim, Claimed, Ended, Extend, Extended, Finish, FinishedAndClaimed, Release, Retry, Swept
from engine.ops.jobs import Enqueue, Enqueued, EnqueuedMany, EnqueueMany, Lease

#: Where the format has no bound for crashes.
_CRASHES_MAX = 3
ForeignDelivery = Delivery[ForeignState]


def text_of(payload: bytes) -> str:
    """What a payload says of its job, which no other job's does."""
    return json.loads(payload)["of"]


def check_delivery(delivery: ForeignDelivery, book: ForeignBook, form: Format, *, exact: bool) -> None:
    """All of them; those of whole scripts only where none is cut off."""
    check_births(delivery, book)
    _leases(delivery, book)
    operation, reply = delivery.operation, delivery.reply
    match operation, reply:
        case Enqueue(), Enqueued():
            _enqueued(delivery, (operation,), (reply,), book)
        case EnqueueMany(), EnqueuedMany():
            _enqueued(delivery, operation.jobs, reply.items, book)
        case Finish(claim=Claim()), FinishedAndClaimed():
            _ended(delivery, operation.leases, reply.finished, book, exact=exact)
            _claimed(delivery, reply.claimed, book, exact=exact)
        case Claim(), Claimed():
            _claimed(delivery, reply, book, exact=exact)
        case Finish() | Release(), Ended():
            _ended(delivery, operation.leases, reply, book, exact=exact)
        case Retry() | Bury(), Ended():
            _ended(delivery, tuple(failure.lease for failure in operation.failures), reply, book, exact=exact)
        case Extend(), Extended():
            _extended(delivery, operation, reply)
        case _, Swept():
            _swept(delivery, reply, book)
        case _:
            pass
    if exact:
        _placed(delivery, book, form)
        form.check(delivery.after)


def note_ends(delivery: ForeignDelivery, book: ForeignBook) -> None:
    """Where scripts are cut off, a lease may have ended and nobody is told: the engine's own key of the job says how."""
    after = delivery.after
    for name in after.changed:
        id = name.removeprefix(after.prefix + "run:")
        if id != name and not after.run(id).token and after.run(id).outcome in ("finished", "buried"):
            book.ends.setdefault(book.job(id), "finished" if after.run(id).outcome == "finished" else "dead")


#: What a call has made is on record for so long after the call is void (engine/models/foreign/foreign.py).
_RECORDED_MS = 20_000


def check_births(delivery: ForeignDelivery, book: ForeignBook) -> None:
    """Rule 3: a job is made once, by its own call and in time."""
    operation = delivery.operation
    asked = (operation,) if isinstance(operation, Enqueue) else operation.jobs if isinstance(operation, EnqueueMany) else ()
    sent = {birth_of(text_of(job.payload)): job for job in asked}
    for id, job in delivery.after.jobs.items():
        birth = birth_of(job.text)
        if book.ids.get(birth) == id and book.births.get(id) == birth and id in delivery.before.jobs:
            continue
        if birth in book.created:
            raise Found("undead", f"{job.text} is made a second time, now as {id}", (id,))
        if birth not in sent:
            raise Found("undead", f"{job.text} is made as {id} by a call that does not name it", (id,))
        if birth in book.nothing:
            raise Found(
                "told nothing", f"the producer of {job.text} was told that nothing was applied, and now it is {id}", (id,)
            )
        late_ms = delivery.now_ms - sent[birth].not_after_ms
        if late_ms > 0:
            raise Found("late enqueue", f"{id} is made {late_ms} ms after its call was void", (id,))
        book.created.add(birth)
        book.sent[birth], book.ids[birth], book.births[id] = sent[birth], id, birth
        wait_ms = sent[birth].options.wait_ms
        book.due_ms[birth] = delivery.now_ms + wait_ms if wait_ms > 0 else -wait_ms


def _enqueued(delivery: ForeignDelivery, jobs: Sequence[Enqueue], items: Sequence[Enqueued], book: ForeignBook) -> None:
    """Rule 3: what an enqueue answers is true."""
    for job, item in zip(jobs, items, strict=True):
        birth = birth_of(text_of(job.payload))
        made, own = birth in book.created, book.ids.get(birth)
        if made and item.result in ("refused", "duplicate") and delivery.now_ms > job.not_after_ms + _RECORDED_MS:
            # Nobody knows any more that this very call has made it; its caller has given up long ago.
            continue
        wanted = ("created", "repeated") if made else ("duplicate", "refused")
        if item.result not in wanted or (made and item.job != own):
            raise Found(
                "enqueue reply", f"{birth[0]} is {own or 'not there'}, and its call is told {item.result} {item.job}", (item.job,)
            )
        if item.result == "refused" and delivery.now_ms <= job.not_after_ms:
            raise Found("enqueue reply", f"{birth[0]} is refused before its call is void", (item.job,))


def _leases(delivery: ForeignDelivery, book: ForeignBook) -> None:
    """Rules 4 and 6: a claim leases once and in time; a lease takes nobody's place; its fence is the highest there was."""
    before, after, operation = delivery.before, delivery.after, delivery.operation
    claim = operation.claim if isinstance(operation, Finish) else operation
    nonce = f"{claim.incarnation}:{claim.counter}" if isinstance(claim, Claim) else ""
    fresh: list[str] = []
    for name in after.changed:
        if not name.startswith(after.prefix + "run:"):
            continue
        id = name.removeprefix(after.prefix + "run:")
        was, now = before.run(id), after.run(id)
        if not now.token or now.token == was.token or id not in after.zset("active"):
            continue
        birth = book.job(id)
        if not nonce or now.token.partition(":")[2] != nonce:
            raise Found("claim reply", f"{id} is leased under {now.token}, which no claim has asked for", (id,))
        # Where a claim was cut off before it took the job on the wire, the job waits there, and the token has no effect.
        if was.token and id in before.zset("active") and id not in _ends(operation) and "active" in before.places[id]:
            raise Found("two holders", f"{id} is leased to {now.token} while {was.token} holds it", (id,))
        if birth in book.ends:
            raise Found("undead", f"{id} is {book.ends[birth]}, and is leased again", (id,))
        if now.fence <= book.fences.get(birth, -1):
            raise Found("fence", f"the fence of {id} was {book.fences[birth]} and is now {now.fence}", (id,))
        book.fences[birth] = now.fence
        fresh.append(id)
    if not fresh:
        return
    assert isinstance(claim, Claim)
    if nonce in book.claims:
        raise Found("claim twice", f"{', '.join(fresh)} leased by a second copy of claim {nonce}", tuple(fresh))
    if delivery.now_ms > claim.not_after_ms:
        raise Found("late claim", f"{', '.join(fresh)} leased after the claim was void", tuple(fresh))
    if not delivery.error:
        book.claims.add(nonce)


def _ends(operation: object) -> set[str]:
    return {lease.job for lease in operation.leases} if isinstance(operation, Finish) else set()


def _claimed(delivery: ForeignDelivery, reply: Claimed, book: ForeignBook, *, exact: bool) -> None:
    """What a claim brings is what was enqueued, and held under its token."""
    for job in reply.jobs:
        id, run = job.lease.job, delivery.after.run(job.lease.job)
        birth = book.job(id)
        if run.token != token_of(job.lease) or id not in delivery.after.zset("active"):
            raise Found(
                "claim reply", f"{id} is brought under {token_of(job.lease)}, and {run.token or 'nobody'} holds it", (id,)
            )
        if text_of(job.payload) != birth[0]:
            raise Found("payload", f"{id} is {birth[0]}, and is brought as {text_of(job.payload)}", (id,))
        if exact and job.failures != book.failures.get(birth, 0):
            raise Found("attempts", f"{id} has failed {book.failures.get(birth, 0)} times, its claim says {job.failures}", (id,))


def _ended(delivery: ForeignDelivery, leases: Sequence[Lease], reply: Ended, book: ForeignBook, *, exact: bool) -> None:
    """Rules 5 and 6: a lease ends once and by its own token; a repeat is told what the first one was."""
    before, operation = delivery.before, delivery.operation
    for at, (lease, (result, outcome)) in enumerate(zip(leases, reply.items, strict=True)):
        id, token = lease.job, token_of(lease)
        birth, run = book.job(id), delivery.before.run(lease.job)
        held = run.token == token and id in before.zset("active")
        known = book.outcomes.get((id, token))
        if result == "ok":
            if not held:
                raise Found("stale end", f"{token} ends {id}, which {run.token or 'nobody'} holds", (id,))
            if known is not None:
                raise Found("one finish", f"{token} ends {id} a second time", (id,))
            book.outcomes[id, token] = outcome
            _outcome(delivery, birth, at, outcome, book, exact=exact)
        elif result == "repeated":
            if known != outcome and exact:
                raise Found("repeat", f"{token} had {known or 'not'} ended {id}, and is told {outcome}", (id,))
        elif held or (run.ended == token and exact):
            raise Found("repeat", f"{token} {'holds' if held else 'has ended'} {id}, and is told {result}", (id,))
        if isinstance(operation, Finish) and result == "ok" and outcome != "finished":
            raise Found("repeat", f"{id} is finished, and is told {outcome}", (id,))


def _outcome(
    delivery: ForeignDelivery, birth: tuple[str, bytes], at: int, outcome: str, book: ForeignBook, *, exact: bool
) -> None:
    operation, id = delivery.operation, book.ids[birth]
    if birth in book.ends:
        raise Found("one finish", f"{id} was {book.ends[birth]}, and is {outcome} now", (id,))
    if outcome in ("finished", "buried"):
        book.ends[birth] = "finished" if outcome == "finished" else "dead"
        book.ended.add(birth)
    if isinstance(operation, Retry | Bury):
        failure = operation.failures[at]
        charged = isinstance(operation, Retry) and failure.charge
        failures = book.failures[birth] = book.failures.get(birth, 0) + charged
        attempts = book.sent[birth].options.attempts
        if exact and isinstance(operation, Retry) and (outcome == "buried") != (charged and failures >= attempts):
            raise Found("attempts", f"{id} has failed {failures} of {attempts} times, and is {outcome}", (id,))
        book.due_ms[birth] = delivery.now_ms + failure.delay_ms if outcome == "retried" else 0


def _extended(delivery: ForeignDelivery, operation: Extend, reply: Extended) -> None:
    """Rule 9: a renewal arms the lease of its own token alone, and none that comes too late."""
    for lease, (result, until_ms) in zip(operation.leases, reply.items, strict=True):
        id, run = lease.job, delivery.before.run(lease.job)
        held = run.token == token_of(lease) and id in delivery.before.zset("active")
        deadline_ms = delivery.after.zset("active").get(id, 0)
        if (result in ("ok", "repeated", "void")) != held:
            raise Found("stale renewal", f"{token_of(lease)} renews {id}, which {run.token or 'nobody'} holds: {result}", (id,))
        was_ms = delivery.before.zset("active").get(id, 0)
        if result == "ok" and (
            delivery.now_ms > operation.not_after_ms or deadline_ms > max(was_ms, delivery.now_ms + operation.lease_ms)
        ):
            raise Found("late renewal", f"the lease of {id} is renewed until {deadline_ms:.0f}", (id,))
        if result in ("void", "repeated") and deadline_ms != was_ms:
            raise Found("late renewal", f"the lease of {id} moves to {deadline_ms:.0f}, and its renewal is {result}", (id,))
        if result == "ok" and until_ms != deadline_ms:
            raise Found("late renewal", f"the lease of {id} ends at {deadline_ms:.0f}, and its holder is told {until_ms}", (id,))


def _swept(delivery: ForeignDelivery, reply: Swept, book: ForeignBook) -> None:
    """Rules 11 and 12: a lease is reaped when it is over, and charged as a crash when it has to be."""
    for lease, crashes in reply.leases:
        id = lease.job
        birth, run = book.job(id), delivery.before.run(id)
        over_ms = delivery.before.zset("active").get(id)
        if run.token != token_of(lease):
            # A copy of the sweep is told what the first one did.
            continue
        if over_ms is not None and over_ms >= delivery.now_ms:
            raise Found("reaped early", f"the lease of {id} is taken {over_ms - delivery.now_ms:.0f} ms before its end", (id,))
        charged = run.crashes == 0 or run.marked == run.token
        if crashes != run.crashes + charged:
            raise Found("charge", f"{id} had {run.crashes} crashes and now has {crashes}", (id,))
        book.crashes[birth] = crashes
        buried, most = id in reply.buried, crashes_max(birth, book)
        if buried != (crashes >= most):
            raise Found("charge", f"{id} has crashed {crashes} times of {most}, and is {'' if buried else 'not '}buried", (id,))
        if buried:
            book.ends[birth] = "dead"
            book.ended.add(birth)


def crashes_max(birth: tuple[str, bytes], book: ForeignBook) -> int:
    """How many crashes bury a job: of its own, where the format has room for it."""
    return book.sent[birth].options.crashes_max if birth in book.sent else _CRASHES_MAX


def _placed(delivery: ForeignDelivery, book: ForeignBook, form: Format) -> None:
    """Each job stands in one place, and one that is active is leased."""
    state, leases = delivery.after, delivery.after.zset("active")
    for birth in book.alive():
        id = book.ids[birth]
        places = state.places.get(id, [])
        if id not in state.jobs:
            raise Found("lost", f"{birth[0]} was {id}, which is gone", (id,))
        if len(places) != 1 or places[0] not in ("waiting", "active", "delayed"):
            raise Found("one place", f"{id} has not ended, and stands in {', '.join(places) or 'no place'}", (id,))
        if state.jobs[id].failures != book.failures.get(birth, 0):
            raise Found(
                "attempts", f"{id} has failed {book.failures.get(birth, 0)} times, its job says {state.jobs[id].failures}", (id,)
            )
        if (places[0] == "active") != (id in leases) or (id in leases) != bool(state.run(id).token):
            raise Found("lease", f"{id} is {places[0]}, and {state.run(id).token or 'nobody'} holds it", (id,))
        due_ms = -(-book.due_ms[birth] // form.due_unit_ms) * form.due_unit_ms
        if places[0] == "delayed":
            _delayed(state, id, due_ms, form)
        elif due_ms > delivery.now_ms and not {"waiting", "active"} & set(delivery.before.places.get(id, ())):
            # Once it waits, the clock may step back.
            raise Found("early", f"{id} may be claimed {due_ms - delivery.now_ms} ms before it is due", (id,))
    for id, places in state.places.items():
        end = book.ends.get(book.job(id))
        if end is not None and any(place != ("dead" if end == "dead" else "done") for place in places):
            raise Found("undead", f"{id} is {end}, and stands in {', '.join(places)}", (id,))
        if end is None and id not in state.jobs:
            raise Found("one place", f"{id} stands in {', '.join(places)}, and there is no job", (id,))
    for id in leases:
        if book.job(id) in book.ends or id not in book.births:
            raise Found("lease", f"{id} is leased, and has ended", (id,))


def _delayed(state: ForeignState, id: str, due_ms: int, form: Format) -> None:
    for name, key in state.raw.items():
        if form.place(name) == "delayed" and form.scored_ms(key.value[id]) != due_ms:
            raise Found("early", f"{id} is due at {due_ms}, and its score says {form.scored_ms(key.value[id])}", (id,))
