"""Deliberately bad acknowledgements that must be refused: how each kind is forged, and the record of its answer.

They give evidence that receipts are checked: under a load with only valid receipts, a channel that accepts any receipt looks
the same as one that checks them.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Literal

import engine
from engine.channel import replies
from engine.models.dsps import clock_after, clock_ahead
from record.channels import ChannelRecorder

#: tampered: another clock with the checksum of this one. truncated: cut off. foreign: another subscriber's receipt for the same
#: clock. old: already acknowledged. beyond: a clock that the channel has not reached.
Misuse = Literal["tampered", "truncated", "foreign", "old", "beyond"]
KINDS: tuple[Misuse, ...] = ("tampered", "truncated", "foreign", "old", "beyond")

#: More messages than any run publishes, and far less than half the circle of clocks.
_BEYOND = 2**40


class Accepted(Exception):
    """A receipt that must be refused was accepted."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A receipt of a fetch, its era, and the number of clocks from the subscriber's cursor to it."""

    receipt: str
    era: int
    covers: int

    @property
    def storage(self) -> str:
        """The first storage in the receipt."""
        return next(iter(replies.read_outer(self.receipt)))

    def at(self, channel: str, subscriber: str) -> int:
        """The clock in the receipt for that storage."""
        return replies.read_inner(channel, subscriber, replies.read_outer(self.receipt)[self.storage])


def forged(kind: Misuse, channel: str, subscriber: str, handed: Handed, old: Handed | None) -> tuple[str, int] | None:
    """The bad receipt to use instead of the good one, and the clock that it names; None when none can be made yet."""
    at = handed.at(channel, subscriber)
    if kind == "old":
        if old is None or old.era != handed.era:
            # A receipt of an earlier era may name a clock that has been reached a second time, and then it is valid.
            return None
        named = old.at(channel, subscriber)
        # A restored server may have a cursor from before its acknowledgement: then the receipt is valid again.
        return None if clock_after(named, clock_ahead(at, -handed.covers)) else (old.receipt, named)
    if kind == "truncated":
        return handed.receipt[: len(handed.receipt) // 2], at
    if kind == "tampered":
        named = clock_ahead(at, 1)
        part = f'{{"clk":{named},"xs":"{replies.checksum(channel, subscriber, at)}"}}'
    elif kind == "foreign":
        named = at
        part = replies.inner(channel, f"{subscriber}-other", at)
    else:
        named = clock_ahead(at, _BEYOND)
        part = replies.inner(channel, subscriber, named)
    return replies.outer({handed.storage: part}), named


def attempt(
    channel: engine.Channel, subscriber: str, kind: Misuse, forgery: tuple[str, int], recorder: ChannelRecorder | None
) -> str:
    """Acknowledge with it and record the answer. Return the result; an EngineError counts as a result."""
    receipt, named = forgery
    first_send_ns = time.monotonic_ns()
    try:
        result: str = channel.acknowledge(subscriber, receipt).result
    except engine.Malformed:
        result = "malformed"
    except LookupError:
        result = "not-found"
    except engine.EngineError:
        result = "unknown"
    if recorder is not None:
        recorder.misused(subscriber, kind, clock=named, result=result, first_send_ns=first_send_ns, done_ns=time.monotonic_ns())
    return result


def drawn(rng: random.Random, share: float) -> Misuse | None:
    """With probability `share` a random kind, else None."""
    draw = rng.random()
    return KINDS[int(draw / share * len(KINDS))] if draw < share else None
