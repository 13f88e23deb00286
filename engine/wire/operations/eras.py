"""The era of a queue: the time that it spends on one server (docs/guides/acknowledgements.md)."""

from __future__ import annotations

from typing import Any, Literal, get_args

from engine.immutable import immutable
from engine.wire.operations.declaration import Declaration
from engine.wire.operations.raw_replies import one_of, server_us

#: What a server lacks that a process was told of: jobs, by their sequence; a claim; the mark of an era that it has seen.
Missing = Literal["", "sequence", "claim", "marker"]
_MISSING = get_args(Missing)


@immutable
class NoteEra(Declaration, script="note_era", patient=False):
    """Note the server that the queue is on. `replid` is its replication id, `before` and `known` are that of the server that the
    process knew and the entry that it saw there, '' = none; `acknowledged` is the highest sequence that it was acknowledged.
    `claims`: incarnation, counter of the last answered claim, and whether its record must still be there."""

    replid: str
    before: str
    known: str
    acknowledged: int
    claims: tuple[tuple[str, int, bool], ...] = ()

    def parse(self, raw: Any, decode: object) -> EraNoted:
        """The raw reply as a value."""
        return EraNoted(server_us(raw), raw[1].decode(), int(raw[2]), one_of(raw[3], _MISSING))


@immutable
class EraNoted:
    """The entry of this server; `found`: the least sequence at which an era began that the process did not know; what is
    missing."""

    srv_us: int
    entry: str
    found: int
    missing: Missing


ErasOperation = NoteEra
ErasReply = EraNoted
