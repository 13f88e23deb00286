"""A copy of the scripts in which each place that works through a list in pieces notes when it goes on to a second one.

A place is named by its script, or its function of a module, and its list, as `finish_jobs #dated`. With pieces of 4 words a few
items cross all of them.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import redis

from engine.redis.scripts import scripts_folder

#: So small are pieces where they are to be crossed.
SMALL = 4
#: The set of the places that took a second piece. It is in no queue's keyspace.
CROSSED = "crossed"

_NOTE = " if {condition} then redis.pcall('SADD', '" + CROSSED + "', '{place}') end"
#: The lines that know the size of a piece: the list, and what is true when a second piece is begun or needed.
_LOOP = re.compile(r"for (?P<at>\w+) = 1, (?P<list>[^,]+), PIECE(?: / 2)? do(?= |$)")
_MORE = "redis.call('SCARD', prefix .. 'feeding') > #feeding"
_OTHERS = {
    "local feeding = redis.call('SRANDMEMBER', prefix .. 'feeding', PIECE)": ("feeding", _MORE),
    "local seen = take(from, PIECE)": ("take", "from > 0"),
    "if #words == PIECE or at == #clocks then": ("#clocks", "at > #words / 2"),
}
#: Lines that belong to a place above them: the end of its piece.
_REST = re.compile(r"math\.min\(\w+ \+ PIECE(?: / 2)? - 1, |until seen < PIECE ")


def places() -> set[str]:
    """All places of all scripts. A line that knows the size of a piece and belongs to none is an AssertionError."""
    found: set[str] = set()
    for path in _files(scripts_folder()):
        text = path.read_text()
        found.update(_marked(path, text)[1])
        for line in text.split("\n"):
            rest = _REST.sub("", _LOOP.sub("", "" if line.strip() in _OTHERS else line))
            assert not re.search(r"\bPIECE\b", rest.partition("--")[0]), f"{path.name}: no place is known by {line.strip()!r}"
    return found


def marked_copy(folder: Path) -> Path:
    """The folder with the marked scripts. Those that only read may write here, to say where they were."""
    shutil.copytree(scripts_folder(), folder)
    for path in _files(folder):
        text, _ = _marked(path, path.read_text())
        path.write_text(text.replace("#!lua flags=no-writes\n", "#!lua\n"))
    return folder


def crossed(client: redis.Redis) -> set[str]:
    """The places that have taken a second piece since this was asked last."""
    found = {place.decode() for place in client.smembers(CROSSED)}  # type: ignore[union-attr]
    client.delete(CROSSED)
    return found


def _files(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.rglob("*.lua")))


def _marked(path: Path, text: str) -> tuple[str, list[str]]:
    found, where = list[str](), path.stem

    def note(listed: str, condition: str) -> str:
        found.append(f"{where} {listed}")
        return _NOTE.format(condition=condition, place=found[-1].replace("'", ""))

    lines = text.split("\n")
    for number, line in enumerate(lines):
        if path.parent.name == "modules" and line.startswith("local function "):
            where = line.removeprefix("local function ").partition("(")[0]
        lines[number] = _LOOP.sub(lambda loop: loop[0] + note(loop["list"], f"{loop['at']} > 1"), line)
        if other := _OTHERS.get(line.strip()):
            lines[number] = line + note(*other)
    return "\n".join(lines), found
