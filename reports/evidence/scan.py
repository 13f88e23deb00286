"""Search of history files for names, such as a job id: each file is read once, in blocks, and only lines with a hit are parsed.

Ten names in 1 GB take about two seconds. The caller bounds the names; here the hits of each name are bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Bytes that are read at a time.
BLOCK_BYTES = 4 * 2**20

#: A name with more hits than this is common: it says nothing about a single violation, and is not searched for any further.
HITS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Hit:
    """A row of a history file with its place. `line` counts from 1."""

    file: str
    line: int
    row: dict[str, Any]


@dataclass
class Found:
    """The hits of one name, in the order of files and lines. `common`: there are too many, and some are missing."""

    hits: list[Hit] = field(default_factory=list)
    common: bool = False


def search(files: Sequence[Path], names: Sequence[str]) -> dict[str, Found]:
    """Name -> the rows that contain it as a JSON text: as a value, or as part of a list. Raises OSError."""
    found = {name: Found() for name in names}
    for file in files:
        for before, block in blocks(file):
            wanted = [name for name, one in found.items() if not one.common]
            for name, hit in hits_of(file.name, before, block, wanted):
                one = found[name]
                one.common = len(one.hits) >= HITS_MAX
                if not one.common:
                    one.hits.append(hit)
    return found


def blocks(file: Path) -> Iterator[tuple[int, bytes]]:
    """The file as blocks of complete lines, each with the number of lines before it. A torn last line is left out."""
    before, rest = 0, b""
    with file.open("rb") as opened:
        while chunk := opened.read(BLOCK_BYTES):
            end = chunk.rfind(b"\n") + 1
            if not end:
                rest += chunk
                continue
            block, rest = rest + chunk[:end], chunk[end:]
            yield before, block
            before += block.count(b"\n")


def hits_of(file: str, before: int, block: bytes, names: Sequence[str]) -> Iterator[tuple[str, Hit]]:
    """The hits of all names in a block, in the order of its lines."""
    starts: dict[int, list[str]] = {}
    for name in names:
        for start in dict.fromkeys(start for needle in needles(name) for start in lines_with(block, needle)):
            starts.setdefault(start, []).append(name)
    line, counted = before + 1, 0
    for start in sorted(starts):
        line += block.count(b"\n", counted, start)
        counted = start
        row = parsed(block[start : block.index(b"\n", start)])
        if row is not None:
            yield from ((name, Hit(file, line, row)) for name in starts[start])


def lines_with(block: bytes, needle: bytes) -> list[int]:
    """Where the lines start that contain a needle; no more than make a name common."""
    starts: list[int] = []
    at = block.find(needle)
    while at >= 0 and len(starts) <= HITS_MAX:
        starts.append(block.rfind(b"\n", 0, at) + 1)
        at = block.find(needle, block.index(b"\n", at))
    return starts


def needles(name: str) -> list[bytes]:
    """A name as JSON writes it: Python's recorder escapes what is not ASCII, that of Node does not."""
    return list(dict.fromkeys(json.dumps(name, ensure_ascii=ascii).encode("utf-8", "replace") for ascii in (True, False)))


def parsed(line: bytes) -> dict[str, Any] | None:
    """The row on a line; None when it is not a JSON object."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def last_rows(file: Path, count: int) -> list[Hit]:
    """The last rows of a file. Raises OSError."""
    kept: list[tuple[int, bytes]] = []
    for before, block in blocks(file):
        lines = block.splitlines()
        kept = [*kept, *((before + number, line) for number, line in enumerate(lines[-count:], 1 + max(0, len(lines) - count)))]
        kept = kept[-count:]
    rows = [(number, parsed(line)) for number, line in kept]
    return [Hit(file.name, number, row) for number, row in rows if row is not None]
