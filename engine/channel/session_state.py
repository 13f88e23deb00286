"""A channel object's memory of one storage between calls: the latest clock that it was told, the era of the
channel that each subscriber knows, and the proofs of its receipts. It makes the operations that carry this
along, and learns from their replies. No I/O; safe from threads, which at worst tell less."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from engine.errors import logger
from engine.models.dsps import clock_after, latest_clock
from engine.ops.channels import (
    Acknowledge,
    AcknowledgeReply,
    AskOld,
    Fetch,
    FetchReply,
    NewMessage,
    OldReply,
    Proof,
    Publish,
    Subscribe,
    Unsubscribe,
)
from engine.redis.endpoint import DEADLINE_MS
from engine.redis.exchange import Sent

#: Subscribers of whom the era of the channel that they know is kept; more than that are those of a service
#: that makes names up.
_ERAS_MAX = 100_000
#: Receipts of one subscriber whose proofs are kept: handed in are the last one, and few that are older.
_PROOFS_MAX = 4
_MARGIN_MS = 1_000
#: Times of servers and whole seconds differ by less; two different expiries by more.
_UNEQUAL_MS = 1_500

log = logger("ironclaim.channel")


class SessionState:
    """The state that is kept about one storage. `ttl_s`: the life of this channel's keys; `channel`: its
    name, for the log."""

    def __init__(self, ttl_s: int, now_ns: Callable[[], int] = time.monotonic_ns, channel: str = "") -> None:
        self._channel = channel
        self._told_of_expiry = False
        #: In whole seconds.
        self.ttl_s = ttl_s
        # A copy of a call may arrive until its deadline. By then the channel may have expired by itself, and
        # a lower clock says nothing new.
        self._trusted_ns = (ttl_s * 1000 - DEADLINE_MS - _MARGIN_MS) * 1_000_000
        self._now_ns = now_ns
        self._latest: int | None = None
        self._era = 0
        self._renewed_ns = 0
        self._eras: dict[str, int] = {}
        #: For each subscriber: clock of a receipt, and its proof.
        self._proofs: dict[str, tuple[tuple[int, Proof], ...]] = {}

    @property
    def seen(self) -> int | None:
        """The latest known clock, while the channel cannot have expired since."""
        return self._latest if self._now_ns() - self._renewed_ns < self._trusted_ns else None

    def publish(self, messages: tuple[NewMessage, ...]) -> Publish:
        """A publish, to be stamped by the storage."""
        return Publish(messages, self.ttl_s, self.seen)

    def subscribe(self, subscriber: str, nonce: str) -> Subscribe:
        """A subscribe, to be stamped by the storage."""
        return Subscribe(subscriber, nonce, self.ttl_s, self.seen)

    def unsubscribe(self, subscriber: str, nonce: str) -> Unsubscribe:
        """An unsubscribe, to be stamped by the storage."""
        return Unsubscribe(subscriber, nonce)

    def fetch(self, subscriber: str, most: int, waited_ms: int = 0) -> Fetch:
        """The next fetch of this subscriber."""
        return Fetch(subscriber, most, self.ttl_s, self.seen, waited_ms)

    def acknowledge(self, subscriber: str, at: int) -> Acknowledge:
        """The acknowledgement of a clock, with the proof of the fetch that gave the receipt. Its era is that
        of the subscriber's last fetch here, if there was one."""
        seen = self.seen
        # The channel may have expired and begun anew.
        proof = dict(self._proofs.get(subscriber, ())).get(at) if seen is not None else None
        return Acknowledge(subscriber, at, self.ttl_s, self._eras.get(subscriber), seen, proof)

    def ask_old(self, subscriber: str, messages: tuple[str, ...]) -> AskOld:
        """The question whether this subscriber will not be given these messages any more."""
        return AskOld(subscriber, messages)

    def learn(self, sent: Sent) -> bool:
        """Learn the clock of a reply. Returns whether that has gone back since the last one, as far as its
        era tells."""
        reply: Any = sent.reply
        if getattr(reply, "clock", None) is None or isinstance(reply, OldReply):
            return False
        fresh = sent.first_send_ns - self._renewed_ns < self._trusted_ns
        changed = fresh and self._latest is not None and reply.era != self._era
        self._latest = latest_clock(reply.clock, self._latest if fresh else None)
        self._era = reply.era
        if not fresh:
            self._proofs.clear()
        if not (isinstance(reply, AcknowledgeReply) and reply.result == "stale"):
            self._renewed_ns = max(self._renewed_ns, sent.first_send_ns)
        return changed

    def fetched(self, subscriber: str, reply: FetchReply) -> int | None:
        """Learn the era from a fetch of this subscriber. Returns that of the fetch before it."""
        self._compare_expiry(reply)
        before = self._eras.get(subscriber)
        if len(self._eras) >= _ERAS_MAX:
            self._eras.clear()
            self._proofs.clear()
        self._eras[subscriber] = reply.era
        return before

    def _compare_expiry(self, reply: FetchReply) -> None:
        """Warn once that another service, such as a DSPS server, keeps this channel for another time. Where
        that is shorter, the clock may end before the cursors of the engine, and the subscriptions are
        gone."""
        later_ms = reply.proof_ms - reply.srv_us // 1000 - self.ttl_s * 1000
        if self._told_of_expiry or max(reply.early_ms, later_ms) <= _UNEQUAL_MS:
            return
        self._told_of_expiry = True
        what, by_ms = ("shorter", reply.early_ms) if reply.early_ms > _UNEQUAL_MS else ("longer", later_ms)
        log.warning(
            "channel %s: another service keeps its keys for a time that is %s by about %s s; give "
            "both the same expire, or"
            " subscriptions end before their time",
            *(self._channel, what, by_ms // 1000),
        )

    def gave(self, subscriber: str, at: int, proof: Proof | None) -> None:
        """Take what the receipt stands for that this subscriber is given: all up to a clock, that of the
        proof or one before."""
        if proof is not None:
            others = [one for one in self._proofs.get(subscriber, ()) if one[0] != at]
            self._proofs[subscriber] = (*others[1 - _PROOFS_MAX :], (at, proof))

    def acknowledged(self, operation: Acknowledge, reply: AcknowledgeReply) -> None:
        """Take what came of an acknowledgement. What it was about is over. A receipt that is refused because
        of a proof and comes once more is another object's, which was given another message with that
        clock."""
        given = self._proofs.pop(operation.subscriber, ())
        done = reply.cursor if reply.result == "OK" else None
        left = [
            one for one in given if one[0] != operation.clock and (done is None or clock_after(one[0], done))
        ]
        if left:
            self._proofs[operation.subscriber] = tuple(left)


# -- Suspect cursors: those of subscribers that a storage had lost and that were created in it again. What
# it reports about their older messages is not trusted. No I/O.
#
# Such a subscriber begins at the clock that the storage has at that moment. So everything published before
# counts as old there, also what nobody has fetched yet. Other storages still deliver that, and would be told
# not to. Which messages these are is known only in this process: another one that takes the subscriber over
# within seconds believes the storage.

#: A publish that one storage has may be on its way to another for so long.
_UNDERWAY_NS = (DEADLINE_MS + 5_000) * 1_000_000
_SUSPECTS_MAX = 100_000


class _Suspicion:
    """A cursor that is suspect since `since_ns`. `until`: the clocks of the other storages when everything
    underway had arrived; None before."""

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self.until: Mapping[str, int] | None = None


class SuspectCursors:
    """The suspect cursors of one channel."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._suspects: dict[tuple[str, str], _Suspicion] = {}

    def began(self, subscriber: str, storage: str) -> None:
        """Suspect the cursor of this subscriber, which was created there now."""
        if len(self._suspects) >= _SUSPECTS_MAX:
            self._suspects.clear()
        self._suspects[subscriber, storage] = _Suspicion(self._now_ns())

    def learn(self, subscriber: str, storage: str, clocks_of: Mapping[str, tuple[int, int]]) -> None:
        """Take the clocks of the storages, and of the subscriber in them. Its cursor is suspect no more when
        it has acknowledged all that was there."""
        suspicion = self._suspects.get((subscriber, storage))
        others = {id: at for id, at in clocks_of.items() if id != storage}
        if suspicion is None or not others:
            return
        if suspicion.until is None:
            if self._now_ns() - suspicion.since_ns > _UNDERWAY_NS:
                suspicion.until = {id: clock for id, (clock, _) in others.items()}
        elif all(
            id in others and not clock_after(until, others[id][1]) for id, until in suspicion.until.items()
        ):
            del self._suspects[subscriber, storage]

    def believed(self, subscriber: str, storage: str, clocks_of: Mapping[str, int]) -> bool:
        """Whether to trust this storage that a message is old, which other storages have at these clocks."""
        suspicion = self._suspects.get((subscriber, storage))
        if suspicion is None:
            return True
        until = suspicion.until
        return until is not None and all(
            id in until and clock_after(clock, until[id]) for id, clock in clocks_of.items()
        )
