"""The script loader: reads `lua/<model>/*.lua`, resolves includes, and holds each script to its header.

A script's header is its signature. It lists every KEYS and ARGV slot by name, in order; the loader puts a local of that name for
each of them before the body, a number where the description begins with `number:`. It refuses a script that does not use one of
them, or uses a name that nobody declares. A name with a count stands for a repeated group of slots
(`items  2 for each item: ...`); groups come last, in their order.

An include (`-- @include name`) is one local function named like its file, with everything passed in and no includes of its own.
The `wire` of a foreign model alone may be cut into several of them: it names includes of its own folder.

A comment `anchor: name` marks what the code there guarantees, for tests that plant defects. The server does not get it.

A list that may be long goes to the server in pieces; the word PIECE in a script is their size.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from engine.errors import ScriptFault

_SLOT = re.compile(r"^--   (\w+)\s+(?:(\d+) for each \w+|(number: )?\S)", re.MULTILINE)
_HEADER = re.compile(r"(?:[#-].*\n)+")
_INCLUDE = re.compile(r"^-- @include (\w+)\n", re.MULTILINE)
_ANCHOR = re.compile(r"^ *-- anchor: .*\n| +-- anchor: .*", re.MULTILINE)
_COMMENT = re.compile(r"--.*")
_COMMENT_OR_STRING = re.compile(r"""'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|--.*""")
#: A name that is read: not a field of something else, not one that is assigned or the key of a table, not a part of a number.
_NAME = re.compile(r"(?<!\w)(?<![^.][.:])[A-Za-z_]\w*\b(?! =(?!=))")
_DECLARED = re.compile(r"\blocal (?!function)(\w+(?:,\s+\w+)*)|\bfunction *([\w.]*)\(([^)]*)\)|\bfor ([\w, ]+?) (?:=|in\b)")
#: The words of Lua, and what the server provides.
_KNOWN = frozenset(
    re.findall(
        r"\w+",
        "and break do else elseif end false for function if in local nil not or repeat return then true until while KEYS ARGV "
        "PIECE redis struct math string table bit cjson ipairs pairs next pcall error select tonumber tostring type unpack",
    )
)
#: The include that may have includes of its own.
_WIRE = "wire"
_PIECE = re.compile(r"\bPIECE\b")
#: How many words of a list go into one command, or entries of one into one reply: Lua's stack has room for some 8,000. A multiple
#: of 4, so that no item is parted: the largest, a job with its unique key, has 4 words. Tests set it to 4, to cross each loop.
PIECE_WORDS = 1000
_SHEBANG = re.compile(r"^#!lua(?: flags=[a-z,-]+)?\n")


@dataclass(frozen=True, slots=True)
class Script:
    """One loaded script: its name, complete text, digest for EVALSHA, and the slots that its header declares.

    `key_groups` and `argument_groups` are the repeated groups that follow them: how many slots each member of a group adds.
    """

    name: str
    text: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    key_groups: tuple[int, ...] = ()
    argument_groups: tuple[int, ...] = ()
    digest: str = field(init=False)
    #: Whether it may change anything.
    writes: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())
        object.__setattr__(self, "writes", "no-writes" not in self.text.partition("\n")[0])

    def check_groups(self, key_groups: Sequence[Sequence[object]], argument_groups: Sequence[Sequence[object]]) -> None:
        """Raise ScriptFault unless these are the groups that the header declares, each with whole members."""
        for table, groups, sizes in (("KEYS", key_groups, self.key_groups), ("ARGV", argument_groups, self.argument_groups)):
            if len(groups) != len(sizes) or any(len(group) % size for group, size in zip(groups, sizes, strict=True)):
                given = [len(group) for group in groups]
                raise ScriptFault(f"script {self.name}: {table} wants groups of {sizes}, got {given}")


def scripts_folder() -> Path:
    """Where the scripts are: inside the package in a wheel, beside it in the source tree."""
    packaged = Path(__file__).parent / "lua"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "lua"


def load_folder(folder: Path) -> Mapping[str, Script]:
    """Every script of one model's folder by name. Raises ScriptFault naming the file and what is wrong with it."""
    return _load_folder(folder, PIECE_WORDS)


def load_foreign(lua: Path, model: str, reused: Iterable[str]) -> Mapping[str, Script]:
    """The scripts of a foreign model by name: those that all foreign models share, the model's own, which come first, and those
    of Lanes that it uses as they are. Includes are looked for in the folders of the model, of all foreign ones, and of Lanes."""
    return _load_foreign(lua, model, tuple(reused), PIECE_WORDS)


# A process reads a folder once: a service may have many queues, and all of them run the scripts that its first one did, also
# while a newer release is being installed below it. Other scripts are another folder. What failed to load is read again.
@lru_cache(maxsize=16)
def _load_folder(folder: Path, piece_words: int) -> Mapping[str, Script]:
    _check_folders(folder)
    return _load(sorted(folder.glob("*.lua")), (), piece_words)


@lru_cache(maxsize=16)
def _load_foreign(lua: Path, model: str, reused: tuple[str, ...], piece_words: int) -> Mapping[str, Script]:
    own, shared, lanes = lua / model, lua / "foreign", lua / "lanes"
    _check_folders(own, shared, lanes)
    paths = {name: lanes / f"{name}.lua" for name in reused}
    for folder in (shared, own):
        paths |= {path.stem: path for path in sorted(folder.glob("*.lua"))}
    where = tuple(folder / "include" for folder in (own, shared, lanes))
    return _load([paths[name] for name in sorted(paths)], where, piece_words)


def _check_folders(*folders: Path) -> None:
    for folder in folders:
        if not folder.is_dir():
            raise ScriptFault(f"no folder of scripts at {folder}")


def _load(paths: Iterable[Path], where: tuple[Path, ...], piece_words: int) -> Mapping[str, Script]:
    return MappingProxyType({path.stem: load_script(path, where, piece_words) for path in paths})


def load_script(path: Path, where: Sequence[Path] = (), piece_words: int = PIECE_WORDS) -> Script:
    """One script with its includes resolved and its header checked. `where`: folders of includes, else the one beside it."""
    source = _ANCHOR.sub("", path.read_text())
    shebang = _SHEBANG.match(source)
    if not shebang:
        raise ScriptFault(f"script {path.name}: the first line is not #!lua with flags")
    header = source[: source.index("-- REPLY")] if "-- REPLY" in source else ""
    if "-- KEYS\n" not in header or "-- ARGV\n" not in header:
        raise ScriptFault(f"script {path.name}: the header lacks KEYS, ARGV or REPLY")
    key_lines, argument_lines = header[header.index("-- KEYS\n") :].split("-- ARGV\n")
    bindings: list[str] = []
    slots: list[tuple[str, ...]] = []
    groups: list[tuple[int, ...]] = []
    for table, lines in (("KEYS", key_lines), ("ARGV", argument_lines)):
        found = _SLOT.findall(lines)
        sizes = [size for _, size, _ in found if size]
        names = [name for name, size, _ in found if not size]
        if "items" in names or any(size for _, size, _ in found[: len(names)]):
            raise ScriptFault(f"script {path.name}: items in {table} come last and say how many slots each item has")
        slots.append(tuple(names))
        groups.append(tuple(map(int, sizes)))
        for place, (name, _, number) in enumerate(found[: len(names)], 1):
            slot = f"{table}[{place}]"
            bindings.append(f"local {name} = tonumber({slot})\n" if number else f"local {name} = {slot}\n")
    for name in slots[0]:
        if name in slots[1]:
            raise ScriptFault(f"script {path.name}: {name} is declared in KEYS and in ARGV")
    header = _HEADER.match(source)
    assert header
    body = source[header.end() :]
    source = header[0] + "".join(bindings) + body
    folders = where or (path.parent / "include",)
    text = _INCLUDE.sub(lambda found: _include(path, found.group(1), folders), source)
    _check_names(path.name, body, (*slots[0], *slots[1]), _INCLUDE.findall(header[0]))
    text = _PIECE.sub(str(piece_words), text)
    return Script(path.stem, text, slots[0], slots[1], groups[0], groups[1])


def _check_names(file_name: str, body: str, slots: Sequence[str], includes: Iterable[str]) -> None:
    code = _COMMENT_OR_STRING.sub("''", body)
    used = set(_NAME.findall(code))
    for slot in slots:
        if slot not in used:
            raise ScriptFault(f"script {file_name}: {slot} is declared and never used")
    declared = {name for found in _DECLARED.findall(code) for name in re.findall(r"\w+", " ".join(found))}
    for name in sorted(used - _KNOWN - declared - {*slots, *includes}):
        raise ScriptFault(f"script {file_name}: {name} is used and declared nowhere")
    for slot in sorted(set(slots) & set(re.findall(r"^local (\w+) = ", code, re.MULTILINE))):
        raise ScriptFault(f"script {file_name}: the header declares {slot}, the body declares it again")


def _include(script: Path, name: str, folders: Sequence[Path]) -> str:
    path = next((path for folder in folders if (path := folder / f"{name}.lua").is_file()), None)
    if path is None:
        raise ScriptFault(f"script {script.name}: no include {name}")
    text, parts = _ANCHOR.sub("", path.read_text()), ""
    if name == _WIRE:
        parts = "".join(_include(script, part, (path.parent,)) for part in _INCLUDE.findall(text))
        text = _INCLUDE.sub("", text)
    outer = [line for line in _COMMENT.sub("", text).splitlines() if line.strip() and not line.startswith(" ")]
    if len(outer) != 2 or not outer[0].startswith(f"local function {name}(") or outer[1] != "end" or "@include" in text:
        raise ScriptFault(f"include {path.name}: it must be exactly one local function {name}, without includes")
    return parts + text
