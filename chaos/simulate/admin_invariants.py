"""Invariants of the administration (rule 7), of what it does to jobs (rule 26), and of results."""

from __future__ import annotations

import json

from chaos.simulate.book import Book
from chaos.simulate.bytes_invariants import check_values
from chaos.simulate.server import Delivery
from chaos.simulate.state import CANCELLED, EXPIRED, State
from chaos.simulate.world import Found
from engine.ops.admin import Alter, AlteredJobs, Revive
from engine.ops.base import Operation
from engine.ops.claims import Ended, Extended, Finish, FinishedAndClaimed
from engine.ops.jobs import Lease

OUTCOMES = {1: "finished", 2: "discarded", 5: "skipped", 6: "rerouted", CANCELLED: "cancelled", EXPIRED: "expired"}
#: What a result lives longer while it is kept (release_results, lua/children/modules/children.lua).
_KEPT_MS = 2**48


def check_administration(delivery: Delivery, book: Book) -> None:
    """Rule 7: an administration call is done once, and not after its time; a copy that is not done changes nothing."""
    operation = delivery.operation
    op_id = getattr(operation, "op_id", "")
    if not op_id:
        return
    what = operation.action if isinstance(operation, Alter) else type(operation).__name__.lower()
    busy = getattr(delivery.reply, "busy", False)
    if getattr(delivery.reply, "result", "") == "done" and not busy:
        if op_id in book.operations or delivery.now_ms > getattr(operation, "not_after_ms", 0):
            raise Found("operation", f"a late copy of {what} is carried out", _jobs(operation))
        book.operations.add(op_id)
    elif changed := [name for name in delivery.after.changed if name != "sweep" and not (busy and name == "op:" + op_id)]:
        raise Found("operation", f"a {what} that is not done changes {changed[0]}", _jobs(operation))
    if busy:
        # Its caller has given up: no later copy may begin it.
        book.operations.add(op_id)
    if isinstance(operation, Alter) and isinstance(delivery.reply, AlteredJobs) and delivery.reply.result == "done":
        for item in delivery.reply.items:
            _altered(delivery, operation, item.job, done=item.done)
            token = delivery.before.run(item.job).token
            if item.done and token and operation.action == "cancel":
                book.cancelled.add((item.job, token))


def _jobs(operation: Operation) -> tuple[str, ...]:
    return operation.jobs if isinstance(operation, Alter | Revive) else ()


def _altered(delivery: Delivery, operation: Alter, job: str, *, done: bool) -> None:
    before, after, action = delivery.before, delivery.after, operation.action
    seen = state_of(before, job)
    if not done:
        if any(name in after.changed for name in ("job:" + job, "run:" + job)) or before.places.get(job) != after.places.get(job):
            raise Found("by hand", f"{job} was {seen}, is not to be touched by {action}, and is changed", (job,))
        return
    if seen != operation.state:
        raise Found("by hand", f"a {action} of {job}, which was seen {operation.state}, is done while it is {seen}", (job,))
    envelope, places = after.job(job), after.places.get(job, [])
    if action in ("cancel", "remove", "discard"):
        left = places or after.run(job).token or (seen != "finished" and (envelope is None or envelope.kind != "T"))
        if left:
            rule = "cancel" if action == "cancel" else "by hand"
            raise Found(rule, f"{job} is told to be ended by {action}, and something of it lives on", (job,))
    elif not places or not places[0].startswith("lane:"):
        raise Found("by hand", f"{job} is to run again by {action}, and stands in {places}", (job,))
    elif action == "requeue" and (after.run(job).failures or after.run(job).crashes):
        raise Found("charge", f"{job} runs again by a requeue and does not have all its chances", (job,))


def state_of(state: State, job: str) -> str:
    """The state of a job as an administration call names it."""
    envelope = state.job(job)
    if envelope is not None and envelope.kind == "T":
        return OUTCOMES.get(envelope.outcome, "")
    if envelope is None or envelope.kind == "R":
        done_ms = state.zset("done").get(job)
        # Half a millisecond is that of a skipped job.
        return "gone" if done_ms is None else "skipped" if done_ms % 1 else "finished"
    places = state.places.get(job, [])
    for place, name in (("active", "active"), ("dead", "dead"), ("due", "delayed"), ("blocked", "blocked")):
        if place in places:
            return name
    return "waiting"


def check_cancellation_reported(delivery: Delivery, leases: tuple[Lease, ...], reply: Extended, book: Book) -> None:
    """Rule 26: who renews the lease of a cancelled job is told so."""
    for lease, (result, _) in zip(leases, reply.items, strict=True):
        tombstone = delivery.before.job(lease.job)
        if (lease.job, f"{lease.fence}:{lease.nonce}") not in book.cancelled or tombstone is None:
            continue
        if tombstone.kind == "T" and tombstone.outcome == CANCELLED and result != "cancelled":
            raise Found("cancel", f"{lease.job} is cancelled, and its holder is told {result}", (lease.job,))


def check_results(delivery: Delivery, book: Book) -> None:
    """A result comes with an accepted finish of its token and fence, an error with a burial or skip; none stays for ever."""
    before, after = delivery.before, delivery.after
    accepted = _accepted(delivery)
    check_values(delivery, accepted, book)
    for name in after.changed:
        if not name.startswith("result:") or name not in after.views:
            continue
        job, (text, expires_ms) = name[7:], after.views[name]
        known = before.views.get(name)
        if known and known[0] == text and abs(known[1] - expires_ms) == _KEPT_MS:
            # Kept from now on for a job that needs this one, or let go.
            continue
        record = json.loads(text)
        if expires_ms <= 0:
            raise Found("leak", f"the result of {job} never expires", (job,))
        if record["ok"] and (job not in accepted or record["fence"] != accepted[job]):
            raise Found("result", f"{job} has a result, and no finish of that token was accepted", (job,))
        place = "done" if record.get("skipped") else "dead"
        if not record["ok"] and after.zset(place).get(job) in (None, before.zset(place).get(job)):
            raise Found("result", f"{job} has the result of a job that is {place}, and is none", (job,))
    operation = delivery.operation
    if isinstance(operation, Finish):
        for value in operation.values:
            job = operation.leases[value.item].job
            if job in accepted and value.ttl_ms and "result:" + job not in after.views:
                raise Found("result", f"{job} has ended, and what it returned is lost", (job,))


def _accepted(delivery: Delivery) -> dict[str, int]:
    operation, reply = delivery.operation, delivery.reply
    ended = reply.finished if isinstance(reply, FinishedAndClaimed) else reply
    if not isinstance(operation, Finish) or not isinstance(ended, Ended):
        return {}
    pairs = zip(operation.leases, ended.items, strict=True)
    return {lease.job: lease.fence for lease, (result, _) in pairs if result == "ok"}
