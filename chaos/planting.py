"""Plants defects at named anchors, the one way in which scripts and the engine are changed to see whether a check notices.

An anchor is a comment, `anchor: fence-checked`, and its name says what the code there guarantees. At the end of a line it stands
for that line. On a line of its own it stands for the next line, or with `, 2 lines` behind the name for so many.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import engine
from chaos.errors import HarnessError
from engine.redis.scripts import (
    RARELY,
    USES,
    Layer,
    declared_rare,
    declared_uses,
    layers_of,
    names_of,
    scripts_folder,
)

ENGINE = Path(engine.__file__).parent
_ANCHOR = re.compile(r"(?:--|#) anchor: ([a-z0-9-]+)(?:, (\d+) lines)?$")


@dataclass(frozen=True, slots=True)
class Edit:
    """The lines of one anchor replaced by others, which are given without the indentation of the first; empty: by none."""

    anchor: str
    new: str


def planted(edits: Iterable[Edit], lua: Path | None = None) -> dict[Path, str]:
    """The changed text of each file that the edits change. `lua`: the folder of the scripts, else that of the engine.

    Raises HarnessError when an anchor does not exist exactly once.
    """
    files = anchors(lua or scripts_folder())
    texts: dict[Path, str] = {}
    for edit in edits:
        found = files.get(edit.anchor, ())
        if len(found) != 1:
            raise HarnessError(f"anchor {edit.anchor!r} occurs {len(found)} times, it must occur exactly once")
        (path,) = found
        texts[path] = _replaced(texts.get(path) or path.read_text(), edit)
    return {path: without_unused(text) if path.suffix == ".lua" else text for path, text in texts.items()}


def without_unused(text: str) -> str:
    """The text of a script or a module without the functions in its `USES` and `RARELY` that an edit has left unused."""
    used, declared, rare = names_of(text)[0], declared_uses(text), declared_rare(text)
    if not used >= rare:
        text = RARELY.sub(f"-- RARELY {', '.join(sorted(rare & used))}\n" if rare & used else "", text, count=1)
    if used >= {*declared}:
        return text
    kept = "".join(f"-- USES {module}: {name}\n" for name, module in declared.items() if name in used)
    return USES.sub(lambda _: kept, text, count=1)


def layers_around(path: Path, lua: Path) -> tuple[Layer, ...]:
    """The layers that a script or a module sees; those of one foreign model where all share it."""
    folder, *below = path.relative_to(lua).parts
    if folder != "foreign":
        return layers_of(lua, "dsps" if folder == "dsps" else "lanes")
    return layers_of(lua, "bull" if below[0].endswith(".lua") or below[0] == "modules" else below[0])


@lru_cache(maxsize=4)
def anchors(lua: Path) -> Mapping[str, tuple[Path, ...]]:
    """The names of all anchors in the engine and in that folder of scripts, each with the file of every occurrence."""
    found: dict[str, tuple[Path, ...]] = {}
    for path in (*sorted(ENGINE.rglob("*.py")), *sorted(lua.rglob("*.lua"))):
        for line in path.read_text().split("\n"):
            if match := _ANCHOR.search(line):
                found[match[1]] = (*found.get(match[1], ()), path)
    return found


def _replaced(text: str, edit: Edit) -> str:
    lines = text.split("\n")
    for number, line in enumerate(lines):
        match = _ANCHOR.search(line)
        if match and match[1] == edit.anchor:
            alone = not line[: match.start()].strip()
            first = number + alone
            indentation = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
            new = textwrap.indent(edit.new, indentation).split("\n") if edit.new else []
            lines[first : first + int(match[2] or 1)] = new
            break
    return "\n".join(lines)
