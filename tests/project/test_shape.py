"""The engine keeps its shape: rooms, sizes of files, one class in one file, and no more tokens than `tests/shape.toml` allows."""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.ci_scripts import loaded
from tests.project.test_arrows import imports_of, is_in

ROOT = Path(__file__).resolve().parents[2]
SHAPE = tomllib.loads((ROOT / "tests/shape.toml").read_text())

#: What a queue and its worker are made of; everything else is a room that imports these.
CORE = ("engine/*.py", "engine/queue/**/*.py", "engine/ops/*.py", "engine/redis/*.py", "engine/models/*.py")
CORE += ("engine/worker/**/*.py",)
GENERATED = "# Generated from"


@pytest.fixture(scope="module")
def sizes() -> ModuleType:
    return loaded(ROOT / ".ci/sizes")


@cache
def sources() -> dict[str, str]:
    """Path -> text of all modules of the engine that are written by hand."""
    found = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted((ROOT / "engine").rglob("*.py"))}
    return {name: text for name, text in found.items() if not text.startswith(GENERATED)}


def test_a_file_has_80_to_500_lines_of_code_or_a_reason(sizes: ModuleType) -> None:
    lines = {name: len(sizes.read(ROOT / name).code) for name in sources()}
    out = {name for name, count in lines.items() if count and not SHAPE["least"] <= count <= SHAPE["most"]}
    excused: set[str] = {name for names in SHAPE["excused"].values() for name in names}
    assert sorted(out - excused) == [], "merge it with the file of its noun, or give it a reason in tests/shape.toml"
    assert sorted(excused - out) == [], "tests/shape.toml excuses what needs no excuse"


def rooms_that_the_core_imports() -> Iterator[str]:
    rooms = tuple(f"engine.{room}" for room in SHAPE["rooms"])
    of_rooms = tuple(f"engine/{room.replace('.', '/')}" for room in SHAPE["rooms"])
    for name in sorted({path.relative_to(ROOT).as_posix() for pattern in CORE for path in ROOT.glob(pattern)}):
        if not name.removesuffix(".py").startswith(of_rooms):
            package = ".".join(Path(name).parts[:-1])
            for _, found in imports_of((ROOT / name).read_text(), package, types=False):
                if is_in(found, rooms):
                    yield f"{name} imports {found}"


def test_the_core_imports_no_optional_room() -> None:
    assert sorted({line for line in rooms_that_the_core_imports() if line.split()[0] not in SHAPE["doors"]}) == []


def test_each_door_is_used() -> None:
    assert {line.split()[0] for line in rooms_that_the_core_imports()} >= set(SHAPE["doors"])


def bases() -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """(file, class) of each class of the engine that another one inherits directly, and of that one."""
    for name, text in sources().items():
        tree = ast.parse(text)
        homes = {node.name: name for node in tree.body if isinstance(node, ast.ClassDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (module := node.module or "").startswith("engine"):
                homes |= {alias.asname or alias.name: f"{module.replace('.', '/')}.py" for alias in node.names}
        for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            for base in node.bases:
                if isinstance(base, ast.Name) and base.id in homes:
                    yield (homes[base.id], base.id), (name, node.name)


def test_no_class_is_cut_into_several_files() -> None:
    """A base of one single class, in another file, is half of a class."""
    heirs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for base, heir in bases():
        heirs.setdefault(base, []).append(heir)
    halves = {base: found[0] for base, found in heirs.items() if len(found) == 1 and found[0][0] != base[0]}
    assert [f"{half} is half of {heir}" for half, heir in halves.items() if half[1] not in SHAPE["bases"]] == []
    assert sorted(SHAPE["bases"].keys() - {name for _, name in halves}) == [], "tests/shape.toml excuses what needs no excuse"


def test_nothing_but_the_package_itself_exports_what_others_define() -> None:
    def exports(text: str) -> Iterator[str]:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom | ast.Import):
                yield from (alias.name for alias in node.names if alias.asname == alias.name)
            elif isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets):
                yield "__all__"

    inner = {name: text for name, text in sources().items() if name not in ("engine/__init__.py", *SHAPE["faces"])}
    assert [f"{name}: {each}" for name, text in inner.items() for each in exports(text)] == []


def test_rooms_hold_to_their_budgets_of_tokens(sizes: ModuleType) -> None:
    found = sizes.counted(ROOT)
    counts = {key.removesuffix(": tokens"): count for key, count in found.items() if key.endswith(": tokens")}
    counts = {room: count for room, count in counts.items() if not room.startswith("total")}
    budget: dict[str, int] = SHAPE["tokens"]
    assert sorted(counts) == sorted(budget)
    assert {room: count for room, count in counts.items() if count > budget[room]} == {}, "smaller, or the commit says why more"
