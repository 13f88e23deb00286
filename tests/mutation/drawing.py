"""Which edits a seed draws: from each area of the sources in turn, so that none goes without because another is larger."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from tests.mutation import lua_edits, python_edits
from tests.mutation.edits import ROOT, Edit, changed, edits_of, in_order, in_turns

#: A script of others, which the engine is held against.
_LEFT_ALONE = "/published/"
SCRIPTS = "scripts"
#: By name, with which it may be asked for alone. A file belongs to the first area that has it.
AREAS: dict[str, tuple[str, ...]] = {
    "shards": ("lua/shards/**/*.lua", "engine/**/*shard*.py"),
    **{"drivers": ("engine/redis/*.py",), "http": ("engine/http/**/*.py",), "record": ("record/*.py",)},
    **{"reports": ("reports/**/*.py",), SCRIPTS: ("lua/**/*.lua",), "engine": ("engine/**/*.py",)},
}


def files_by_area() -> dict[str, list[str]]:
    """The files of each area."""
    taken: set[str] = set()
    found: dict[str, list[str]] = {}
    for area, patterns in AREAS.items():
        names = {str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)}
        found[area] = sorted(name for name in names - taken if _LEFT_ALONE not in name)
        taken |= names
    return found


def draw(seed: int, count: int, sources: Sequence[str], loading: lua_edits.Loading) -> list[Edit]:
    """`count` edits, or as many as there are: of areas and files that are named, half in Lua and half in Python where they have
    both; else half in the scripts, and the other half in all other areas in turn."""

    def valid(edit: Edit) -> bool:
        return loading.accepts(edit) if edit.lua else _compiles(edit)

    def drawn(names: Sequence[str]) -> Iterator[Edit]:
        return filter(valid, in_order(seed, _edits(names)))

    if sources:
        names = sorted({name for source in sources for name in _named(source)})
        halves = [drawn([name for name in names if name.endswith(suffix)]) for suffix in (".lua", ".py")]
    else:
        areas = files_by_area()
        halves = [drawn(areas.pop(SCRIPTS)), in_turns(map(drawn, areas.values()))]
    return list(islice(in_turns(halves), count))


def _named(source: str) -> list[str]:
    if source in AREAS:
        return files_by_area()[source]
    path = ROOT / source
    paths = [path] if path.is_file() else path.rglob("*")
    names = [str(path.relative_to(ROOT)) for path in paths if path.suffix in (".lua", ".py")]
    return [name for name in names if _LEFT_ALONE not in name]


def _edits(names: Iterable[str]) -> Iterator[Edit]:
    for name in names:
        find = lua_edits.find if name.endswith(".lua") else python_edits.find
        yield from edits_of(name, (ROOT / name).read_text(), find)


def _compiles(edit: Edit) -> bool:
    return python_edits.valid(changed((ROOT / edit.changes[0].file).read_text(), edit.changes))
