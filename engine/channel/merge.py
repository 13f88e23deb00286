"""Merges the replies of several storages into one batch: each message once, in the order of the storages where they agree. Pure
functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.channel import clock as clocks
from engine.channel.replies import Batch
from engine.channel.values import Message


class Part(NamedTuple):
    """The reply of one storage: a batch, and where the subscriber and the channel are in it."""

    batch: Batch
    cursor: int
    clock: int


class Merged(NamedTuple):
    """`upto`: for each storage the clock that the receipt stands for; all up to it is delivered, lost, or old elsewhere.
    `dropped`: how many messages were left out because they are old somewhere."""

    messages: tuple[Message, ...]
    upto: dict[str, int]
    more: bool
    lost: int
    corrupt: int
    dropped: int


def holders(parts: Mapping[str, Part]) -> dict[str, dict[str, int]]:
    """Message id -> the storages that brought it, with its clock in each."""
    found: dict[str, dict[str, int]] = {}
    for storage, part in parts.items():
        for message in part.batch.messages:
            found.setdefault(message.id, {})[storage] = message.clock
    return found


def merge(parts: Mapping[str, Part], old: set[str], most: int) -> Merged:
    """Merge at most `most` messages. Each has the clock of the first storage that brought it."""
    order: list[Message] = []
    for part in parts.values():
        order = _woven(order, part.batch.messages)
    fresh = [message for message in order if message.id not in old]
    delivered = {message.id for message in fresh[:most]}
    upto: dict[str, int] = {}
    lost = 0
    for storage, part in parts.items():
        reached = _reached(part, delivered | old)
        if reached is None:
            continue
        upto[storage] = reached
        own = [message for message in part.batch.messages if not clocks.after(message.clock, reached)]
        gone = clocks.distance(part.cursor, reached) - len(own) - part.batch.corrupt
        # What another storage delivers is not lost.
        lost = max(lost, gone - len(delivered - {message.id for message in own}))
    return Merged(
        tuple(fresh[:most]),
        upto,
        len(fresh) > most or any(part.batch.more for part in parts.values()),
        lost,
        max((part.batch.corrupt for part in parts.values()), default=0),
        len(order) - len(fresh),
    )


def _woven(first: Sequence[Message], second: Sequence[Message]) -> list[Message]:
    """Both, each message once: what only the second has stands where it has it, behind what only the first has there."""
    places = {message.id: at for at, message in enumerate(first)}
    woven: list[Message] = []
    pending: list[Message] = []
    taken = 0
    for message in second:
        at = places.get(message.id)
        if at is None:
            pending.append(message)
        elif at >= taken:
            woven += [*first[taken:at], *pending, first[at]]
            pending, taken = [], at + 1
    return [*woven, *first[taken:], *pending]


def _reached(part: Part, done: set[str]) -> int | None:
    """The clock up to which everything that this storage brought is done; None where that is nothing."""
    before: int | None = None
    for message in part.batch.messages:
        if message.id not in done:
            return before
        before = message.clock
    return part.batch.upto
