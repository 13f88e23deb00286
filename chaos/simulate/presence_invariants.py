"""Invariants of presence (rule 39): whose leases are reaped because a connection is gone, and that they are reaped soon."""

from __future__ import annotations

from chaos.simulate.book import Book
from chaos.simulate.member_invariants import taken_of
from chaos.simulate.presence import Clients
from chaos.simulate.server import Delivery
from chaos.simulate.state import State
from chaos.simulate.world import MS, Found
from engine.ops.claims import ReapLost, Sweep, Swept
from engine.worker.machine.sweeping import AGAIN_MS, PROMPT_MS

#: Two looks are no closer, on the server's clock.
_LOOKS_MS = 900


def check_presence(delivery: Delivery, book: Book, clients: Clients, now_ns: int, *, clock_runs: bool) -> None:
    """What a sweep may hand out, and what a reap for closed connections may take."""
    operation, reply = delivery.operation, delivery.reply
    if isinstance(operation, Sweep) and isinstance(reply, Swept) and reply.watched:
        looked_ms = int(delivery.before.table("sweep").get("looked_ms", 0))
        if clock_runs and delivery.now_ms - looked_ms < _LOOKS_MS:
            raise Found("looks", f"a look is handed out {delivery.now_ms - looked_ms} ms after the one before")
    if isinstance(operation, ReapLost):
        for job in taken_of(delivery):
            _lost(delivery, operation, job, clients, now_ns)
        book.orphaned.update((job, delivery.before.run(job).token) for job in taken_of(delivery))


def _lost(delivery: Delivery, operation: ReapLost, job: str, clients: Clients, now_ns: int) -> None:
    """The worker has named the connection that is gone, and no other; it was looked for twice; and most others were there."""
    incarnation = delivery.before.run(job).token.split(":")[1]
    named = delivery.before.table("connections").get(incarnation, "")
    asked = {worker.incarnation: f"{worker.client_id} {operation.run_id}" for worker in operation.lost}
    if named != asked.get(incarnation):
        text = f"the lease of {job} is taken for {asked.get(incarnation)}, and {incarnation} has named {named or 'none'}"
        raise Found("registration", text, (job,))
    if clients.lists(named):
        raise Found("connected", f"the lease of {job} is taken, and the connection {named} of {incarnation} is there", (job,))
    if delivery.now_ms > operation.not_after_ms:
        raise Found("late reap", f"the lease of {job} is taken {delivery.now_ms - operation.not_after_ms} ms too late", (job,))
    gone_ms = (now_ns - clients.ended_ns.get(named, 0)) // MS
    if gone_ms < AGAIN_MS:
        raise Found("seen once", f"the lease of {job} is taken {gone_ms} ms after its worker's connection has ended", (job,))
    look = clients.answers[delivery.message.line.process.name]
    if 2 * look.missing > look.asked:
        text = f"the lease of {job} is taken, and {look.missing} of {look.asked} connections were gone"
        raise Found("most gone", text, (job,))
    if look.took_ns > (PROMPT_MS + 1) * MS:
        raise Found("slow look", f"the lease of {job} is taken after a look of {look.took_ns // MS} ms", (job,))


def unnoticed(state: State, clients: Clients, incarnation: str, *, unnamed: bool) -> bool:
    """Whether everybody can see that the connection of a worker is gone, and most others are there. `unnamed`: everybody who may
    look is behind a proxy, and counts as one that is there."""
    named = set(state.table("connections").values())
    there = [registration for registration in named if clients.lists(registration)]
    mine = state.table("connections").get(incarnation, "")
    most = 2 * len(there) >= len(named) - unnamed
    return mine.endswith(f" {clients.run_id}") and not clients.lists(mine) and most
