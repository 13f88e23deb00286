"""Checks each step of an episode of a foreign model."""

from __future__ import annotations

from collections import Counter
from typing import Any

from chaos.simulate.foreign.book import ForeignBook, birth_of
from chaos.simulate.foreign.invariants import ForeignDelivery, check_births, check_delivery, note_ends, text_of
from chaos.simulate.foreign.state import ForeignState, Format
from chaos.simulate.foreign.timely import ForeignTimely
from chaos.simulate.judge import Judge
from chaos.simulate.line import describe_name
from chaos.simulate.server import SimulatedServer
from chaos.simulate.telling import jobs_of, results_of, tell
from chaos.simulate.world import Found, World
from engine.ops.claims import Claimed, FinishedAndClaimed, Swept
from engine.ops.jobs import Enqueue


class ForeignJudge(Judge):
    """What workers hold is judged as with Lanes; what the keys say, by what holds of the foreign formats."""

    def __init__(self, world: World[Any], server: SimulatedServer[ForeignState], counts: Counter[str], form: Format) -> None:
        super().__init__(world, server, counts)
        self.book: ForeignBook = ForeignBook()
        self._form = form
        self._timely = ForeignTimely(world, server, self.book, self._incarnations, form)

    def delivered(self, delivery: ForeignDelivery) -> None:
        """All invariants after one delivery."""
        message = delivery.message
        what = f"{describe_name(message.call)}#{message.number}{' copy' if message.copy else ''}"
        if delivery.error:
            self._refused(delivery, what)
            check_births(delivery, self.book)
        else:
            for result in results_of(delivery):
                self._counts[result] += 1
            self.world.note(message.line.name, what, tell(delivery), jobs_of(delivery))
            check_delivery(delivery, self.book, self._form, exact=self._profile.exact)
        if not self._profile.exact:
            note_ends(delivery, self.book)
        self._leased(delivery)
        if isinstance(delivery.reply, Swept):
            self._live_leases(delivery, delivery.reply, self._profile.lease_ms)
        self._dead_leases(delivery.after)
        self._timely.check(delivery.after)
        self._timely.swept(delivery.after)

    def _leased(self, delivery: ForeignDelivery) -> None:
        reply = delivery.reply
        claimed = reply.claimed if isinstance(reply, FinishedAndClaimed) else reply
        for job in claimed.jobs if isinstance(claimed, Claimed) else ():
            self.book.leased_ns.setdefault((job.lease.job, f"{job.lease.fence}:{job.lease.nonce}"), self.world.now_ns)

    def over(self, state: ForeignState) -> None:
        """All has ended: each job whose producer was told that it is there."""
        for birth in sorted(self.book.acknowledged - set(self.book.ends)):
            text = f"the producer of {birth[0]} was told that it is {self.book.ids.get(birth)}, and it has not ended"
            raise Found("acknowledged", text, (self.book.ids.get(birth, ""),))

    def told(self, draft: Enqueue, nonce: bytes, told: str) -> None:
        """What a producer hears: `created` is true, and after `nothing was applied` nothing ever is."""
        self._counts[f"producer told {told}"] += 1
        birth = birth_of(text_of(draft.payload))
        if told in ("created", "repeated"):
            self.book.acknowledged.add(birth)
            if birth not in self.book.created:
                raise Found("told created", f"the producer of {birth[0]} was told that it is there, and it never was")
        elif told in ("duplicate", "refused", "unavailable"):
            if birth in self.book.created:
                id = self.book.ids[birth]
                raise Found("told nothing", f"the producer of {birth[0]} was told {told}, and its job was made as {id}", (id,))
            self.book.nothing.add(birth)
