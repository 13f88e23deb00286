"""Search of history files for names, such as a job id: each file is read once, in blocks, and only lines with a hit are parsed.

The values of a few keys are picked out by a regular expression and looked up among the names, so that one name or two hundred
take the same time: about two seconds for 1 GB.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Bytes that are read at a time.
BLOCK_BYTES = 4 * 2**20

#: A name with more hits than this is common: it says nothing about a single violation, and is not searched for any further.
HITS_MAX = 500


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


def search(files: Sequence[Path], names: Iterable[str], keys: Sequence[str]) -> dict[str, Found]:
    """Name -> the rows in which it is the value of one of these keys, in the row itself or in an item. Raises OSError."""
    found = {name: Found() for name in names}
    wanted = texts_of(found)
    for file in files:
        for before, block in blocks(file):
            if not wanted:
                return found
            for line, text, named in lines_with(block, wanted, keys, before + 1):
                row = parsed(text)
                if row is not None:
                    enter(found, {wanted[one] for one in named}, Hit(file.name, line, row))
            wanted = {text: name for text, name in wanted.items() if not found[name].common}
    return found


def enter(found: dict[str, Found], names: Iterable[str], hit: Hit) -> None:
    """Add a hit to the names that it has, unless they are common by now."""
    for name in names:
        one = found[name]
        one.common = len(one.hits) >= HITS_MAX
        if not one.common:
            one.hits.append(hit)


def texts_of(names: Iterable[str]) -> dict[bytes, str]:
    """The names as JSON writes them, without quotes. Python's recorder escapes what is not ASCII, that of Node does not."""
    forms = ((json.dumps(name, ensure_ascii=escaped)[1:-1], name) for name in names for escaped in (True, False))
    return {text.encode("utf-8", "replace"): name for text, name in forms}


def blocks(file: Path) -> Iterator[tuple[int, bytes]]:
    """The file as blocks of complete lines, each with the number of lines before it. A torn last line is left out."""
    before = 0
    with file.open("rb") as opened:
        while block := opened.read(BLOCK_BYTES):
            if not block.endswith(b"\n"):
                block += opened.readline()
                block = block[: block.rfind(b"\n") + 1] if not block.endswith(b"\n") else block
            yield before, block
            before += block.count(b"\n")


def lines_with(
    block: bytes, texts: Collection[bytes], keys: Iterable[str], first: int
) -> Iterator[tuple[int, bytes, set[bytes]]]:
    """The lines of a block in which a key has one of the texts as its value: number, content and texts of each.

    `first`: the number of the first line.
    """
    starts: dict[int, set[bytes]] = {}
    # A pass for each key: a pattern that begins with a fixed text is searched for several times as fast as one with a choice.
    for key in keys:
        for match in re.finditer(b'"%b": ?"([^"\\\\]*(?:\\\\.[^"\\\\]*)*)"' % key.encode(), block):
            if match[1] in texts:
                starts.setdefault(block.rfind(b"\n", 0, match.start()) + 1, set()).add(match[1])
    counted = 0
    for start, named in sorted(starts.items()):
        first += block.count(b"\n", counted, start)
        counted = start
        yield first, block[start : block.index(b"\n", start)], named


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
        kept += ((before + number, line) for number, line in enumerate(lines[-count:], 1 + max(0, len(lines) - count)))
        kept = kept[-count:]
    rows = [(number, parsed(line)) for number, line in kept]
    return [Hit(file.name, number, row) for number, row in rows if row is not None]
