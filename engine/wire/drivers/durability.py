"""Durability "replica" (rule 8): a call that writes counts as answered when a replica has what it wrote. No socket: the drivers
send the words of `after` behind their calls, on the same connection, and let `judge` look at what came.

A call that a replica has not confirmed is sent again by its identity, and its outcome is unknown in the end. Such a repeat may
find nothing left to write, and WAIT on a new connection then says 1 with the replica frozen; so each send writes one key as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.wire.call import Call
from engine.wire.drivers.client_errors import message_of
from engine.wire.drivers.in_flight import InFlightCall


class NotReplicated(Exception):
    """Stands for the reply of a call that no replica has confirmed: a failover would decide whether it was applied."""


class Durability:
    """`witness` writes one key whenever it is sent; `wait_ms`: how long each send waits for a replica."""

    def __init__(self, witness: Call[Any], wait_ms: int) -> None:
        self.wait_ms = wait_ms
        self._words: tuple[tuple[object, ...], ...] = (witness.words(), ("WAIT", 1, wait_ms))

    def after(self, in_flight: Sequence[InFlightCall]) -> tuple[tuple[object, ...], ...]:
        """The commands to send behind these calls."""
        return self._words if any(_writes(in_flight_call.call) for in_flight_call in in_flight) else ()

    def judge(self, in_flight: Sequence[InFlightCall], replies: Sequence[Any]) -> Sequence[Any]:
        """The replies of the calls, with NotReplicated in place of each that a replica has not confirmed. A failure of the
        connection ends the replies early, as it did without this."""
        if not self.after(in_flight):
            return replies
        own, more = replies[: len(in_flight)], replies[len(in_flight) :]
        if len(more) == len(self._words) and isinstance(more[-1], int) and more[-1] > 0:
            return own
        errors = [message_of(reply) for reply in more if isinstance(reply, Exception)]
        doubt = NotReplicated(errors[0] if errors else f"no replica within {self.wait_ms} ms")
        return [
            doubt if not isinstance(reply, Exception) and _writes(in_flight_call.call) else reply
            for in_flight_call, reply in zip(in_flight, own, strict=False)
        ]


def _writes(call: Call[Any]) -> bool:
    return call.script is not None and call.script.writes
