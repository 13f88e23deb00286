"""Acknowledgements that must not work, on purpose: what each kind hands in, and what came of it.

Only so is there evidence that receipts are checked: in a load that is well behaved throughout, a channel that takes everything
looks like one that looks at what it is given.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Literal

import engine
from engine.channel import clock, receipts
from engine.channel.recorder import ChannelRecorder

#: tampered: another clock under the checksum of this one. truncated: cut off. foreign: that of another subscriber for the same
#: clock. old: acknowledged before. beyond: a clock that the channel has not reached.
Misuse = Literal["tampered", "truncated", "foreign", "old", "beyond"]
KINDS: tuple[Misuse, ...] = ("tampered", "truncated", "foreign", "old", "beyond")

#: Further than any run publishes, and far less than half the circle.
_BEYOND = 2**40


class Accepted(Exception):
    """A receipt that must be refused was taken."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A receipt that a fetch gave, the era that it was given in, and how many clocks lead to it from the subscriber's cursor."""

    receipt: str
    era: int
    covers: int

    @property
    def storage(self) -> str:
        """The first storage that it speaks of."""
        return next(iter(receipts.read_outer(self.receipt)))

    def at(self, channel: str, subscriber: str) -> int:
        """Its clock there."""
        return receipts.read_inner(channel, subscriber, receipts.read_outer(self.receipt)[self.storage])


def forged(kind: Misuse, channel: str, subscriber: str, handed: Handed, old: Handed | None) -> tuple[str, int] | None:
    """The receipt of this kind to hand in instead of the good one, and the clock that it names; None when there is none yet."""
    at = handed.at(channel, subscriber)
    if kind == "old":
        if old is None or old.era != handed.era:
            # Of an earlier era it may stand for a clock that has been reached a second time.
            return None
        named = old.at(channel, subscriber)
        # A restored server may have a cursor from before it was acknowledged: then it is good again.
        return None if clock.after(named, clock.ahead(at, -handed.covers)) else (old.receipt, named)
    if kind == "truncated":
        return handed.receipt[: len(handed.receipt) // 2], at
    if kind == "tampered":
        named = clock.ahead(at, 1)
        part = f'{{"clk":{named},"xs":"{receipts.checksum(channel, subscriber, at)}"}}'
    elif kind == "foreign":
        named = at
        part = receipts.inner(channel, f"{subscriber}-other", at)
    else:
        named = clock.ahead(at, _BEYOND)
        part = receipts.inner(channel, subscriber, named)
    return receipts.outer({handed.storage: part}), named


def attempt(
    channel: engine.Channel, subscriber: str, kind: Misuse, forgery: tuple[str, int], recorder: ChannelRecorder | None
) -> str:
    """Hand it in and record what came of it. Returns the result; EngineErrors count as results."""
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
    """One of the kinds in so many of all cases."""
    draw = rng.random()
    return KINDS[int(draw / share * len(KINDS))] if draw < share else None
