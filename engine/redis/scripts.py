"""The script loader: reads a model's folders of `lua/`, holds each script to its header, and links the
functions that it uses.

A script's header is its signature. It lists every KEYS and ARGV slot by name, in order. The loader puts a
local of that name for each of them before the body, a number where the description begins with `number:`. It
refuses a script that does not use one of them, or uses a name that nobody declares. A name with a count
stands for a repeated group of slots (`items  2 for each item: ...`); groups come last, in their order.
`-- HEAD core/call` stands for the head in `lua/core/modules/call.lua`: its slots come first, and so
does its statement `FIRST`, unless the script calls that function itself.

Functions that several scripts use are in modules, `modules/*.lua` of each folder. A script gets those whose
names it uses, and those that these use, each behind what it needs. A foreign model's scripts see its own
modules, those that all foreign models share, and those of Lanes (`layers_of`); no name occurs twice there.

`USES` in the header of a script or a module says where each function is that it uses from other modules:
`-- USES core/lease: end_lease, bury_job` for `lua/core/modules/lease.lua`, and `<format>` for the modules of
whichever foreign format. The loader refuses a file that uses another function, or names one that it does
not use. The server does not get these lines; `.ci/lua_uses` writes them.

`lua/foreign/modules/format.lua` lists the functions that each foreign format has. The loader refuses a format
that lacks one, and for an optional one links a function that returns nil.

Each call of a script creates its functions anew, which costs more than a short command each. `RARELY` in the
header of a file names functions that it needs in rare cases alone: `-- RARELY free_slots, bury_job`. Those
that a script reaches in no other way are created together, when the first of them is needed. The loader puts
them into one function, `rarely`, and `rarely().bury_job` in the place of their name elsewhere.

A comment `anchor: name` marks what the code there guarantees, for tests that plant defects. The server does
not get it.

A wheel brings the linked scripts (`linked.json`); where a file was changed since, they are linked anew.

Numbers that several scripts need, and defaults of the engine's options, stand in scripts as words
(`CONSTANTS`). A list that may be long goes to the server in pieces; the word PIECE is their size."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from engine.errors import ScriptFault
from engine.ops.jobs import Options

_SLOT = re.compile(r"^--   (\w+)\s+(?:(\d+) for each \w+|(number: )?\S)", re.MULTILINE)
_HEADER = re.compile(r"(?:[#-].*\n)+")
#: Where a header names a head, with its own keys; the slots of a head.
_NAMED_HEAD = re.compile(r"^-- HEAD (\w+)/(\w+)\n-- KEYS\n((?:--   .*\n)*)-- ARGV\n", re.MULTILINE)
_HEAD = re.compile(
    r"^-- HEAD .*\n-- KEYS\n((?:--   .*\n)*)-- ARGV\n((?:--   .*\n)*)(?:-- FIRST ((\w+)\(.*\n))?",
    re.MULTILINE,
)
_ANCHOR = re.compile(r"^ *-- anchor: .*\n| +-- anchor: .*", re.MULTILINE)
USES = re.compile(r"^-- USES (.*\n(?:--      .*\n)*)", re.MULTILINE)
RARELY = re.compile(r"^-- RARELY (.*\n(?:--        .*\n)*)", re.MULTILINE)
_COMMENT_OR_STRING = re.compile(r"""'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|--.*""")
#: A comment, a string, or a name that is no field of something else.
_WORD = re.compile(rf"{_COMMENT_OR_STRING.pattern}|(?<![\w.:])[A-Za-z_]\w*")
#: A name that is read: not a field of something else, not one that is assigned or the key of a table, not a
#: part of a number.
_NAME = re.compile(r"(?<!\w)(?<![^.][.:])[A-Za-z_]\w*\b(?! =(?!=))")
_DECLARED = re.compile(
    r"\blocal (?!function)(\w+(?:,\s+\w+)*)|\bfunction *(?:[\w.:]*[.:]\w+|(\w*))\(([^)]*)\)"
    r"|\bfor ([\w, ]+?) (?:=|in\b)"
)
#: A function of a module, with the comment that stands before it.
_FUNCTION = re.compile(r"((?:^--.*\n)*^local function (\w+)\(.*\n(?:(?: .*)?\n)*?end\n)", re.MULTILINE)
#: A function in the list of what formats have.
_OF_FORMATS = re.compile(r"^--   (wire_\w+) +(optional: )?", re.MULTILINE)
_LINE_OF_CODE = re.compile(r"^(?!--)\S.*", re.MULTILINE)
#: How many words of a list go into one command, or entries of one into one reply: Lua's stack has room for
#: some 8,000. A multiple of 4, so that no item is parted: the largest, a job with its unique key, has 4
#: words. Tests set it to 4, to cross each loop.
PIECE_WORDS = 1000
#: How long after its deadline a copy of a call may still come: records of calls and tombstones are kept so
#: much longer.
LATE_COPY_MS = 20_000
#: A reply ends before it carries more than this, but never before its first item.
REPLY_BYTES = 1_048_576
_DEFAULTS = Options()
#: The numbers that stand in scripts as words.
CONSTANTS: Mapping[str, int] = {
    #: What an envelope without settings means, so these defaults are part of the format.
    "ATTEMPTS": _DEFAULTS.attempts,
    "CRASHES_MAX": _DEFAULTS.crashes_max,
    "ERROR_TTL_MS": _DEFAULTS.error_ttl_ms,
    #: The width of a priority's band of scores, half of it for LIFO and half for FIFO (rule 16).
    "BAND": 1 << 49,
    #: The greatest whole number that a double, which is Lua's number, tells from its neighbours.
    "EXACT_MAX": (1 << 53) - 1,
    #: How long a foreign job's own record is kept while foreign clients may run the job.
    "FOREIGN_RUN_MS": 7 * 86_400_000,
    #: The last byte that an envelope's head can have: everything before its options and payload.
    "HEAD_LAST": 700,
    #: What is added to the expiry of a result while children may read it (rule 25).
    "KEPT_MS": 1 << 48,
    "LATE_COPY_MS": LATE_COPY_MS,
    "REPLY_BYTES": REPLY_BYTES,
    #: The greatest number that six bytes hold: of a sequence (rule 16), a time, a counter.
    "U48_MAX": (1 << 48) - 1,
}
_CONSTANT = re.compile(rf"\b(?:PIECE|{'|'.join(CONSTANTS)})\b")
#: Of pieces of scripts that are kept while others are linked: all models together have some 1,200. A
#: process may load changed folders again and again.
_PIECES_MAX = 2_048
#: The words of Lua, what the server provides, and the constants.
_KNOWN = frozenset(
    re.findall(
        r"\w+",
        "and break do else elseif end false for function if in local nil not or repeat return then "
        "true until while KEYS ARGV "
        "redis struct math string table bit cjson ipairs pairs next pcall error select tonumber "
        "tostring type unpack",
    )
) | {"PIECE", *CONSTANTS}
#: The fields of a script that say which slots its header declares.
_SLOT_FIELDS = ("keys", "arguments", "key_groups", "argument_groups")
_SHEBANG = re.compile(r"^#!lua(?: flags=[a-z,-]+)?\n")


@dataclass(frozen=True, slots=True)
class Script:
    """One loaded script: its name, complete text, digest for EVALSHA, and the slots that its header declares.

    `key_groups` and `argument_groups` are the repeated groups that follow them: how many slots each member of
    a group adds.
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
        object.__setattr__(
            self, "digest", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        )
        object.__setattr__(self, "writes", "no-writes" not in self.text.partition("\n")[0])

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Script:
        """The script that has these `fields()`, which have been through JSON."""
        return cls(fields["name"], fields["text"], *(tuple(fields[name]) for name in _SLOT_FIELDS))

    def fields(self) -> Mapping[str, Any]:
        """What `from_fields` makes it of."""
        return {name: getattr(self, name) for name in ("name", "text", *_SLOT_FIELDS)}

    def check_groups(
        self, key_groups: Sequence[Sequence[object]], argument_groups: Sequence[Sequence[object]]
    ) -> None:
        """Raise ScriptFault unless these are the groups that the header declares, each with whole members."""
        for table, groups, sizes in (
            ("KEYS", key_groups, self.key_groups),
            ("ARGV", argument_groups, self.argument_groups),
        ):
            if len(groups) != len(sizes) or any(
                len(group) % size for group, size in zip(groups, sizes, strict=True)
            ):
                given = [len(group) for group in groups]
                raise ScriptFault(f"script {self.name}: {table} wants groups of {sizes}, got {given}")


class Function(NamedTuple):
    """A function of a module, with the comment before it."""

    name: str
    module: str
    text: str
    #: The names that it uses and does not declare: other functions.
    uses: frozenset[str]
    #: Those of them that it needs in rare cases alone.
    rare: frozenset[str]


class Module(NamedTuple):
    """A file of functions."""

    #: `core/lease` for `core/modules/lease.lua`.
    name: str
    functions: tuple[Function, ...]
    #: The functions of other modules that it uses.
    uses: frozenset[str]
    #: What its header says of them: function -> module.
    declared: Mapping[str, str]


def scripts_folder() -> Path:
    """Where the scripts are: inside the package in a wheel, beside it in the source tree."""
    packaged = Path(__file__).parents[1] / "lua"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "lua"


#: The folders of `lua/` that hold the scripts and modules of a model; one that is not here is foreign and has
#: `foreign/<model>`.
FOLDERS: Mapping[str, tuple[str, ...]] = {
    "lanes": ("core", "admin", "looks", "schedules", "children", "shards", "backup"),
    "dsps": ("dsps",),
}
#: Folders in which no name of a script or of a function occurs twice.
Layer = tuple[Path, ...]


def layers_of(lua: Path, model: str) -> tuple[Layer, ...]:
    """The folders whose scripts and modules a model sees. Of those that have one name it gets that of the
    first layer."""
    lanes = tuple(lua / name for name in FOLDERS["lanes"])
    if model in FOLDERS:
        return (tuple(lua / name for name in FOLDERS[model]),)
    return ((lua / "foreign" / model,), (lua / "foreign",), lanes)


def all_models(lua: Path) -> Sequence[str]:
    """The names of the models that have scripts there."""
    formats = (path.name for path in (lua / "foreign").iterdir() if path.is_dir() and path.name != "modules")
    return [*FOLDERS, *sorted(formats)]


def load_model(lua: Path, model: str, reused: Iterable[str] = ()) -> Mapping[str, Script]:
    """The scripts of a model by name. A foreign model has its own, those that all foreign models share, and
    those of Lanes that are `reused` as they are. Raises ScriptFault naming the file and what is wrong with
    it."""
    return _load(lua, model, tuple(reused), PIECE_WORDS)


# A process reads a folder once. A service may have many queues, and all of them run the scripts that its
# first one did, also while a newer release is being installed below it. Other scripts are another folder.
# What failed to load is read again.
@lru_cache
def _load(lua: Path, model: str, reused: tuple[str, ...], piece_words: int) -> Mapping[str, Script]:
    paths, layers = _files(lua, model, reused)
    linked = read_linked(layers[0][0], _digest(paths, layers, piece_words))
    scripts = (
        _link_all(paths, layers, piece_words)
        if linked is None
        else (Script.from_fields(fields) for fields in linked)
    )
    return MappingProxyType({script.name: script for script in scripts})


def _files(lua: Path, model: str, reused: Iterable[str]) -> tuple[Sequence[Path], tuple[Layer, ...]]:
    """The files of a model's scripts, and its layers."""
    layers = layers_of(lua, model)
    for folder in (folder for layer in layers for folder in layer):
        if not folder.is_dir():
            raise ScriptFault(f"no folder of scripts at {folder}")
    paths = _scripts(layers[0])
    if len(layers) > 1:
        _, shared, lanes = map(_scripts, layers)
        paths = {name: lanes[name] for name in reused} | shared | paths
    return [paths[name] for name in sorted(paths)], layers


def _scripts(layer: Layer) -> dict[str, Path]:
    """The files of a layer's scripts by name."""
    found: dict[str, Path] = {}
    for path in (path for folder in layer for path in sorted(folder.glob("*.lua"))):
        if path.stem in found:
            raise ScriptFault(
                f"script {path.name}: {found[path.stem].parent.name} and {path.parent.name} have one"
            )
        found[path.stem] = path
    return found


def _link_all(paths: Iterable[Path], layers: Iterable[Layer], piece_words: int) -> Sequence[Script]:
    layers = [*layers]
    functions = _functions(layers)
    return [_script(path, functions, layers, piece_words) for path in paths]


def _digest(paths: Iterable[Path], layers: Iterable[Layer], piece_words: int) -> str:
    modules = (
        module
        for layer in layers
        for folder in layer
        for module in sorted((folder / "modules").glob("*.lua"))
    )
    return sources_digest((*paths, *modules), piece_words)


def linked_model(lua: Path, model: str, reused: Iterable[str]) -> str:
    """The contents of a model's `linked.json`; the arguments are those of `load_model`. Raises
    ScriptFault."""
    paths, layers = _files(lua, model, reused)
    scripts = _link_all(paths, layers, PIECE_WORDS)
    return linked_text((script.fields() for script in scripts), _digest(paths, layers, PIECE_WORDS))


def load_script(path: Path, layers: Sequence[Layer] = (), piece_words: int = PIECE_WORDS) -> Script:
    """One script with its functions linked and its header checked. `layers`: whose modules it sees, else
    those of its folder."""
    layers = layers or ((path.parent,),)
    return _script(path, _functions(layers), layers, piece_words)


def _script(
    path: Path, functions: Mapping[str, Function], layers: Sequence[Layer], piece_words: int
) -> Script:
    source = _ANCHOR.sub("", with_head(path, layers))
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
            raise ScriptFault(
                f"script {path.name}: items in {table} come last and say how many slots each item has"
            )
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
    used = _check_slots(path, body, (*slots[0], *slots[1]))
    _check_uses(f"script {path.name}", path.parent.name, used, declared_uses(header[0]), functions, layers)
    linked: dict[str, str] = {}
    for name in sorted(used):
        _link(f"script {path.name}", name, functions, linked, ())
    rare = declared_rare(header[0])
    _check_rare(f"script {path.name}", rare, used)
    often = _often(used - rare, functions)
    if len(often) < len(linked):
        code = (*_parted(linked, often, used, functions), _with_rare(body, frozenset(used - often)))
    else:
        code = (*linked.values(), body)
    parts = (RARELY.sub("", USES.sub("", header[0])), *bindings, *code)
    return Script(
        path.stem,
        "".join(_with_constants(part, piece_words) for part in parts),
        slots[0],
        slots[1],
        groups[0],
        groups[1],
    )


def with_head(path: Path, layers: Iterable[Layer]) -> str:
    """The text of a script, with the slots and the first statement of the head that it names before its own.
    Raises ScriptFault."""
    source = path.read_text()
    named = _NAMED_HEAD.search(source)
    if not named:
        return source
    room, module, keys = named.groups()
    folders = [folder for layer in layers for folder in layer if folder.name == room]
    for file in (folder / "modules" / f"{module}.lua" for folder in folders):
        if file.exists() and (head := _HEAD.search(file.read_text())):
            key_lines, argument_lines, statement, function = head.groups()
            slots = f"-- KEYS\n{key_lines}{keys}-- ARGV\n{argument_lines}"
            before, after = source[: named.start()] + slots, source[named.end() :]
            if not statement or function in names_of(after)[0]:
                return before + after
            header = _HEADER.match(after)
            end = header.end() if header else 0
            return f"{before}{after[:end]}-- USES {room}/{module}: {function}\n{statement}{after[end:]}"
    raise ScriptFault(f"script {path.name}: {room}/{module} has no HEAD")


def _often(names: Iterable[str], functions: Mapping[str, Function]) -> set[str]:
    """These functions, and all that they use in other than rare cases."""
    found, left = set[str](), [*names]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += functions[name].uses - functions[name].rare
    return found


def _parted(
    linked: Iterable[str], often: Set[str], named: Set[str], functions: Mapping[str, Function]
) -> Iterable[str]:
    """The functions of a script, those that it needs in rare cases inside of `rarely`. `named`: what the
    script itself uses."""
    seldom, named = [name for name in linked if name not in often], {*named}
    yield "local rarely, rare\n"
    for name in linked:
        if name in often:
            yield _with_rare(functions[name].text, functions[name].uses - often)
            named |= functions[name].uses
    yield "-- Created when one of them is needed, because each costs as much as a short command.\n"
    yield "function rarely()\n  if rare then return rare end\n"
    yield from (functions[name].text for name in seldom)
    yield f"  rare = {{ {', '.join(f'{name} = {name}' for name in seldom if name in named)} }}\n"
    yield "  return rare\nend\n"


# Most scripts link the same functions, and know the same of them as rare.
@lru_cache(_PIECES_MAX)
def _with_rare(code: str, names: frozenset[str]) -> str:
    """Code outside of `rarely`, with the way to these functions inside."""
    if not names:
        return code
    return _WORD.sub(lambda found: f"rarely().{found[0]}" if found[0] in names else found[0], code)


def functions_of_formats(shared: Path) -> Mapping[str, bool]:
    """The functions that each foreign format has, as `modules/format.lua` of the folder that they share lists
    them: name -> whether a format may lack it. Empty where there is no such list."""
    path = shared / "modules" / "format.lua"
    listed = path.read_text().partition("-- WIRE\n")[2].partition("\n\n")[0] if path.exists() else ""
    return {name: bool(optional) for name, optional in _OF_FORMATS.findall(listed)}


def linked_functions(names: Iterable[str], layers: Iterable[Layer]) -> str:
    """The text of these functions of modules, behind that of all that they use. Raises ScriptFault."""
    functions, linked = _functions(layers), dict[str, str]()
    for name in names:
        _link("caller", name, functions, linked, ())
    return "".join(_with_constants(text, PIECE_WORDS) for text in linked.values())


# Most scripts link the same functions.
@lru_cache(_PIECES_MAX)
def _with_constants(text: str, piece_words: int) -> str:
    """A piece of a script, with the numbers for its words."""
    constants = {**CONSTANTS, "PIECE": piece_words}
    return _CONSTANT.sub(lambda word: str(constants[word[0]]), text)


def names_of(code: str) -> tuple[set[str], set[str]]:
    """The names that code reads, and those that it declares."""
    code = _COMMENT_OR_STRING.sub("''", code)
    declared = {name for found in _DECLARED.findall(code) for name in re.findall(r"\w+", " ".join(found))}
    return set(_NAME.findall(code)) - _KNOWN, declared


def _check_slots(path: Path, body: str, slots: Sequence[str]) -> set[str]:
    """The names that a script uses and does not declare. Raises ScriptFault for slots that are not used or
    declared twice."""
    used, declared = names_of(body)
    for slot in slots:
        if slot not in used:
            raise ScriptFault(f"script {path.name}: {slot} is declared and never used")
    for slot in sorted(set(slots) & set(re.findall(r"^local (\w+) = ", body, re.MULTILINE))):
        raise ScriptFault(f"script {path.name}: the header declares {slot}, the body declares it again")
    return used - declared - {*slots}


def _functions(layers: Iterable[Layer]) -> Mapping[str, Function]:
    """The functions of the layers' modules by name."""
    layers, found, modules = [*layers], dict[str, Function](), list[Module]()
    for path in (
        path for layer in layers for folder in layer for path in sorted((folder / "modules").glob("*.lua"))
    ):
        module = _module(f"{path.parents[1].name}/{path.stem}", path.read_text())
        modules.append(module)
        for function in module.functions:
            if function.name in found:
                raise ScriptFault(
                    f"module {path.name}: {found[function.name].module} has a function {function.name}, too"
                )
            found[function.name] = function
    model, *shared = layers
    for name, optional in functions_of_formats(shared[0][0]).items() if shared else ():
        if name not in found and not optional:
            raise ScriptFault(f"model {model[0].name}: its wire lacks {name}")
        absent = f"local function {name}() end\n"
        found.setdefault(name, Function(name, f"{model[0].name}/wire", absent, frozenset(), frozenset()))
    for module in modules:
        folder, _, name = module.name.partition("/")
        _check_uses(f"module {name}.lua", folder, module.uses, module.declared, found, layers)
    return found


# Several models use the modules of Lanes, and a test that changes one script leaves its modules as they are.
@lru_cache
def _module(name: str, source: str) -> Module:
    """Raises ScriptFault for code outside of the functions: it would run in every script that uses one."""
    source = _ANCHOR.sub("", source)
    file = f"{name.partition('/')[2]}.lua"
    for line in _LINE_OF_CODE.findall(_FUNCTION.sub("", source)):
        raise ScriptFault(f"module {file}: {line!r} is not inside a function")
    header = source.partition("\n\n")[0] + "\n"
    rare = declared_rare(header)
    functions: list[Function] = []
    for text, function in _FUNCTION.findall(source):
        used, declared = names_of(text)
        uses = frozenset(used - declared - {function})
        functions.append(Function(function, name, text, uses, uses & rare))
    own = {function.name for function in functions}
    uses = frozenset(used for function in functions for used in function.uses) - own
    _check_rare(f"module {file}", rare, uses | own)
    return Module(name, tuple(functions), uses, declared_uses(header))


def declared_rare(source: str) -> frozenset[str]:
    """The functions that `RARELY` names."""
    return frozenset(re.findall(r"\w+", " ".join(RARELY.findall(source))))


def _check_rare(user: str, rare: Iterable[str], used: Iterable[str]) -> None:
    """Raise ScriptFault where a file's `RARELY` names what it does not use."""
    for name in sorted({*rare} - {*used}):
        raise ScriptFault(f"{user}: RARELY names {name}, which it does not use")


def declared_uses(source: str) -> Mapping[str, str]:
    """What `USES` says: function -> module."""
    declared: dict[str, str] = {}
    module = ""
    for words in USES.findall(source):
        for word in words.split():
            if word.endswith(":"):
                module = word[:-1]
            elif word != "--":
                declared[word.rstrip(",")] = module
    return declared


def _check_uses(
    user: str,
    folder: str,
    used: Iterable[str],
    declared: Mapping[str, str],
    functions: Mapping[str, Function],
    layers: Sequence[Layer],
) -> None:
    """Raise ScriptFault unless the `USES` of a file in this folder says what it uses, and where that is."""
    for name in sorted(used):
        if name not in functions:
            raise ScriptFault(f"{user}: {name} is used and declared nowhere")
    for name in sorted(declared):
        if name not in used:
            raise ScriptFault(f"{user}: USES names {name}, which it does not use")
    own, *others = layers
    for name in sorted(used):
        module = functions[name].module
        home = module.partition("/")[0]
        if others and home == own[0].name and folder != home:
            module = "<format>"
        if name not in declared:
            raise ScriptFault(f"{user}: USES lacks {module}: {name}")
        if declared[name] != module:
            raise ScriptFault(f"{user}: USES says {declared[name]}: {name}, but it is in {module}")


def _link(
    user: str, name: str, functions: Mapping[str, Function], linked: dict[str, str], users: tuple[str, ...]
) -> None:
    """Add a function to those that are linked, behind those that it uses."""
    if name in linked:
        return
    if name in users:
        raise ScriptFault(f"functions use each other in a circle: {' -> '.join((*users, name))}")
    function = functions.get(name)
    if function is None:
        raise ScriptFault(f"{user}: {name} is used and declared nowhere")
    for needed in sorted(function.uses):
        _link(f"module {function.module.partition('/')[2]}.lua", needed, functions, linked, (*users, name))
    linked[name] = function.text


# -- The linked scripts of a model as the wheel brings them: a process that starts need not link them
# again, which takes 40 ms.
#
# They are in `linked.json` in the first folder of the model, with a digest of the files that they were linked
# from: where a file was changed since, nothing there counts. `.ci/linked_scripts.py` writes it when a wheel
# is built; the source tree has none.

FILE = "linked.json"


def sources_digest(files: Iterable[Path], piece_words: int) -> str:
    """The digest of what scripts are linked from: the files, by name and text, the size of a piece and the
    other constants."""
    digest = hashlib.sha256(f"{piece_words} {CONSTANTS}".encode())
    for file in files:
        text = file.read_bytes()
        digest.update(b"\n%s/%s %d\n" % (file.parent.name.encode(), file.name.encode(), len(text)))
        digest.update(text)
    return digest.hexdigest()


def read_linked(folder: Path, digest: str) -> Iterable[Mapping[str, Any]] | None:
    """The fields of each script, or None where the folder has none that were linked from sources with this
    digest."""
    try:
        found = json.loads((folder / FILE).read_bytes())
    except FileNotFoundError:
        return None
    return found["scripts"] if found["sources"] == digest else None


def linked_text(scripts: Iterable[Mapping[str, Any]], digest: str) -> str:
    """The contents of `linked.json`."""
    return json.dumps({"sources": digest, "scripts": [*scripts]})
