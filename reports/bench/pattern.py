"""Lines of history as one template: a format string, and for each number in it a value that grows linearly from copy to copy.

A copy of a million rows is then one `%` of a bytes object, which takes about 2 us a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Moves(IntEnum):
    """What moves a number from one copy to the next: the place in the vector of offsets."""

    SEQ = 0
    NS = 1
    US = 2
    MS = 3
    #: The counter of claims of an incarnation.
    CLAIM = 4
    #: The number of the copy itself.
    COPY = 5


#: Name of a column -> what moves it.
COLUMNS = {
    b"seq": Moves.SEQ,
    b"counter": Moves.CLAIM,
    **dict.fromkeys((b"t_ns", b"first_send_ns", b"last_send_ns", b"done_ns", b"intended_ns", b"wall_ns"), Moves.NS),
    **dict.fromkeys((b"srv_us", b"srv_from_us"), Moves.US),
    **dict.fromkeys((b"fence", b"due_ms", b"enqueued_ms", b"deadline_ms", b"run_at_ms", b"tick_ms"), Moves.MS),
}

#: A number of a column that moves, or the beginning of a text that a copy needs for itself alone: ids of jobs and calls. A quote
#: inside a text is escaped, so no text can look like a column.
FIELDS = re.compile(
    rb'"(?P<column>' + b"|".join(COLUMNS) + rb')":(?P<number>\d+)'
    rb'|"nonce":"(?P<incarnation>[^":]*):(?P<claim>\d+)"'
    rb'|"(?P<text>job|holder|op|call)":"(?:cron:(?P<schedule>[^":]*):(?P<tick>\d+)")?'
    rb'|"needs":\[(?P<needs>[^\]]*)\]'
)

#: Ids of one copy begin with this, which no drill gives to a job.
PREFIX = b"copy%d."


@dataclass(frozen=True)
class Pattern:
    """A template of `rows` lines. `base`: the numbers in their order; `moves`: what moves each."""

    text: bytes
    base: np.ndarray
    moves: np.ndarray
    rows: int

    def render(self, offsets: np.ndarray) -> bytes:
        """The lines with every number moved by its offset."""
        return self.text % tuple((self.base + offsets[self.moves]).tolist())


def compiled(lines: Iterable[bytes], *, copies: bool, since_ms: int = 0) -> Pattern:
    """The template of some lines. `copies`: ids get the prefix of a copy. Ids of ticks before `since_ms` stay as they are: a
    row of the end may be about a job of the beginning, which does not move."""
    text: list[bytes] = []
    base: list[int] = []
    moves: list[int] = []
    rows = 0

    def put(number: bytes | int, by: Moves) -> bytes:
        base.append(int(number))
        moves.append(by)
        return b"%d"

    def prefix() -> bytes:
        return PREFIX.replace(b"%d", put(0, Moves.COPY)) if copies else b""

    def replaced(match: re.Match[bytes]) -> bytes:
        if column := match["column"]:
            # A due time of 0 means at once.
            return b'"%b":' % column + (
                put(match["number"], COLUMNS[column]) if match["number"] != b"0" or column == b"seq" else b"0"
            )
        if match["claim"]:
            return b'"nonce":"%b:' % escaped(match["incarnation"]) + put(match["claim"], Moves.CLAIM) + b'"'
        if match["needs"] is not None:
            ids = re.findall(rb'"([^"]*)"', match["needs"])
            return b'"needs":[' + b",".join(b'"' + prefix() + escaped(one) + b'"' for one in ids) + b"]"
        if match["tick"]:
            tick = match["tick"] if int(match["tick"]) < since_ms else put(match["tick"], Moves.MS)
            return b'"%b":"cron:%b:' % (match["text"], escaped(match["schedule"])) + tick + b'"'
        return b'"%b":"' % match["text"] + prefix()

    for line in lines:
        rows += 1
        at = 0
        for match in FIELDS.finditer(line):
            text.append(escaped(line[at : match.start()]))
            text.append(replaced(match))
            at = match.end()
        text.append(escaped(line[at:]))
    return numbered(Pattern(b"".join(text), np.array(base, dtype=np.int64), np.array(moves, dtype=np.int64), rows))


def numbered(pattern: Pattern) -> Pattern:
    """The template with its rows numbered from 0."""
    base = pattern.base.copy()
    base[pattern.moves == Moves.SEQ] = np.arange(pattern.rows)
    return Pattern(pattern.text, base, pattern.moves, pattern.rows)


def joined(patterns: Sequence[Pattern]) -> Pattern:
    """One template of several, in their order."""
    base, moves = (np.concatenate([getattr(one, name) for one in patterns]) for name in ("base", "moves"))
    return numbered(Pattern(b"".join(one.text for one in patterns), base, moves, sum(one.rows for one in patterns)))


def escaped(text: bytes) -> bytes:
    """The text as a part of a format string."""
    return text.replace(b"%", b"%%")
