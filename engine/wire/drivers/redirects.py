"""Calls of one piece that are for several nodes of a cluster, or that ASK sends on: which node gets which, and their replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis.exceptions import AskError, MovedError

from engine.wire.drivers.in_flight import InFlightCall
from engine.wire.drivers.routes import slot_of

#: Where in a piece some calls stand.
Places = list[int]


def slots_of(in_flight: Sequence[InFlightCall], home: int) -> Callable[[int], int]:
    """The slot of the call at a place: that of its first key, `home` for a call without keys."""

    def slot(at: int) -> int:
        keys = in_flight[at].call.keys
        return slot_of(keys[0]) if keys else home

    return slot


def grouped(places: Iterable[int], slot: Callable[[int], int]) -> dict[int, Places]:
    """Places by slot, in their order."""
    found: dict[int, Places] = {}
    for at in places:
        found.setdefault(slot(at), []).append(at)
    return found


class Replies:
    """The replies to the calls of a piece, put in their places from exchanges of some of them."""

    def __init__(self, count: int) -> None:
        self.all: list[Any] = [None] * count

    def put(self, places: Places, replies: Sequence[Any]) -> None:
        """Take the replies of the calls at these places; a failure of the connection ends them early."""
        for at, place in enumerate(places):
            self.all[place] = replies[min(at, len(replies) - 1)]

    def asked(self, places: Places) -> dict[str, tuple[AskError, Places]]:
        """Those of these calls that are sent on, by the address of the node that imports their slot."""
        found: dict[str, tuple[AskError, Places]] = {}
        for place in places:
            error = self.all[place]
            if isinstance(error, AskError) and not isinstance(error, MovedError):
                found.setdefault(str(error).rsplit(" ", 1)[-1], (error, []))[1].append(place)
        return found


def asking(commands: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The commands, each let in by a node that imports their slot."""
    return [word for command in commands for word in (("ASKING",), command)]


def without_asking(replies: Sequence[Any]) -> list[Any]:
    """The replies to commands that `asking` has let in; the failure of a connection may have ended them anywhere."""
    return [*replies[1::2], *(replies[-1:] if len(replies) % 2 else ())]
