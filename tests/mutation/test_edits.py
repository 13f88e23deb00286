"""Edits are the same for the same seed, load and compile, and change one line of code each."""

import re
from itertools import islice
from pathlib import Path

import pytest

from engine.testing.server import EmbeddedServer
from tests.golden import Told, tells
from tests.mutation import drawing, lua_edits, planted, python_edits
from tests.mutation import edits as catalogue
from tests.mutation.drawing import SCRIPTS, files_by_area

LUA = Path(__file__).with_name("edited.lua").read_text()
PYTHON = '''"""A docstring: 1 < 2."""


def f(a: int = 1, b: list["x < 1"] = ()) -> "a < b":
    """Another one: 1 + 1."""
    log.info("a < 1", 3)
    if a < 1:
        raise ValueError(f"{a + 1} < 5")
    self.x = g(a, b)
    return a + 1


def h() -> None:
    return None
'''


def lua(edit: catalogue.Edit) -> str:
    return (catalogue.ROOT / edit.changes[0].file).read_text()


def edits(text: str, name: str) -> list[catalogue.Edit]:
    return catalogue.edits_of(name, text, lua_edits.find if name.endswith(".lua") else python_edits.find)


def new_lines(text: str, name: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for edit in edits(text, name):
        found.setdefault(edit.changes[0].line, []).append(edit.changes[0].new.strip())
    return found


def found() -> Told:
    """By line. Code is edited, and texts, comments and annotations are not; what saves memory, what only guards and what comes to
    the same is left alone."""
    calls = ("x = string.sub(a, 1, 3)", "f(math.max(a, b), redis.call('DEL', a, b))", "g(at + PIECE - 1)", "k[1] = m(a, b)")
    texts = {
        **{"a.lua": LUA, "a.py": PYTHON, "calls.lua": "\n  ".join(("local function f()", *calls)) + "\nend\n"},
        "memory.py": "@dataclass(slots=True, frozen=True, order=True)\nclass A: ...\nuse(zip(a, strict=True))\n",
        "clocks.py": "while time.monotonic() < end and a < b:\n    wait(time.monotonic() >= end)\n",
    }
    for name, text in texts.items():
        yield name, {line: sorted(new) for line, new in new_lines(text, name).items()}


def test_code_is_edited_where_it_may_matter() -> None:
    tells("mutation/edits.txt", found)


def test_the_same_seed_chooses_the_same_edits_also_after_lines_moved() -> None:
    before = [edit.content for edit in catalogue.in_order(7, edits(PYTHON, "a.py"))]
    moved = PYTHON.replace("    if a < 1:", "    # a line comes in\n    if a < 1:")
    assert [edit.content for edit in catalogue.in_order(7, edits(moved, "a.py"))] == before
    assert len({tuple(edit.content for edit in catalogue.in_order(seed, edits(PYTHON, "a.py"))) for seed in range(8)}) > 1


def test_each_line_has_one_edit_and_areas_take_turns() -> None:
    areas = [catalogue.in_order(1, edits(text, name)) for text, name in ((LUA, "a.lua"), (PYTHON, "a.py"), (PYTHON, "b.py"))]
    chosen = [edit.changes[0] for edit in catalogue.in_turns(areas)]
    assert "".join(change.file[0] if change.file != "a.lua" else "l" for change in chosen) == "lab" * 3 + "ab" * 2
    assert len({(change.file, change.line) for change in chosen}) == len(chosen) == 13


def test_every_source_is_in_one_area() -> None:
    areas = files_by_area()
    sources = [path for folder in ("lua", "engine", "record", "reports") for path in (catalogue.ROOT / folder).rglob("*")]
    names = [str(path.relative_to(catalogue.ROOT)) for path in sources if path.suffix in (".lua", ".py")]
    assert sorted(name for files in areas.values() for name in files) == sorted(n for n in names if "/published/" not in n)
    assert all(areas.values()) and "lua/shards/shard_drop.lua" in areas["shards"] and "engine/calendar.py" in areas["engine"]


def test_each_area_is_drawn_from_and_one_that_is_named_alone(
    ironclaim_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"shards": ("lua/shards/shard_drop.lua", "engine/command/maintenance.py"), "http": ("engine/http/jobs/events.py",)}
    files[SCRIPTS] = ("lua/core/*.lua",)
    monkeypatch.setattr(drawing, "AREAS", files)
    loading = lua_edits.Loading(ironclaim_server.url, tmp_path)
    area_of = {name: area for area, names in files_by_area().items() for name in names}
    drawn = [area_of[edit.changes[0].file] for edit in drawing.draw(1, 8, (), loading)]
    assert drawn == [SCRIPTS, "shards", SCRIPTS, "http"] * 2
    assert {edit.changes[0].file for edit in drawing.draw(1, 4, ("http",), loading)} == set(files["http"])
    half = drawing.draw(1, 6, ("lua/dsps", "engine/ops/base.py"), loading)
    assert [edit.lua for edit in half] == [True, False] * 3


def test_drawn_edits_load_and_compile(ironclaim_server: EmbeddedServer, tmp_path: Path) -> None:
    loading = lua_edits.Loading(ironclaim_server.url, tmp_path)
    files = ("lua/core/claim.lua", "lua/core/modules/claim.lua", "lua/foreign/claim.lua", "lua/dsps/fetch.lua")
    for file in files:
        some = list(islice(catalogue.in_order(1, edits((catalogue.ROOT / file).read_text(), file)), 12))
        assert sum(map(loading.accepts, some)) > len(some) / 2, file
    file = "engine/worker/machine/machine.py"
    # One in ten: each compiles all 500 lines of the file.
    for edit in islice(edits((catalogue.ROOT / file).read_text(), file), 0, None, 10):
        assert python_edits.valid(catalogue.changed(lua(edit), edit.changes)), edit


@pytest.mark.parametrize(("part", "instead"), [("prefix,", "prefixes,"), (")", "")], ids=["for the loader", "for the server"])
def test_what_does_not_load_is_no_edit(ironclaim_server: EmbeddedServer, tmp_path: Path, part: str, instead: str) -> None:
    file, old = "lua/core/finish.lua", "local feeding = settled(prefix, prefix .. 'feeding')"
    new = old.replace(part, instead)
    change = catalogue.Change(file, (catalogue.ROOT / file).read_text().split("\n").index(old) + 1, old, new)
    loading = lua_edits.Loading(ironclaim_server.url, tmp_path)
    assert not loading.accepts(catalogue.Edit("x", "x", (change,)))
    assert loading.accepts(catalogue.Edit("x", "x", (catalogue.Change(file, change.line, old, old),)))


def test_every_planted_defect_is_an_edit_of_this_tree() -> None:
    found = [*planted.shipped(), *planted.removals()]
    assert len({edit.id for edit in found}) == len(found) > 90
    for edit in found:
        for file in {change.file for change in edit.changes}:
            text = (catalogue.ROOT / file).read_text()
            assert catalogue.changed(text, [change for change in edit.changes if change.file == file]) != text


def test_an_edit_between_texts_is_that_edit() -> None:
    before, after = "a\nb\nc\nd\n", "a\nB\nc\nx\nd\n"
    edit = catalogue.from_texts("x", "x", [("f", before, after)])
    assert catalogue.changed(before, edit.changes) == after
    with pytest.raises(ValueError, match=re.escape("f:2 is not 'b'")):
        catalogue.changed(after, edit.changes)


def test_an_equivalent_edit_is_known_by_its_texts(tmp_path: Path) -> None:
    path = tmp_path / "equivalent.toml"
    path.write_text('[[edit]]\nfile = "f"\nold = "a < b"\nnew = "a <= b"\nreason = "never alike"\n')
    known = catalogue.equivalents(path)
    for new, reason in (("  a <= b", "never alike"), ("  a > b", None)):
        edit = catalogue.Edit("x", "x", (catalogue.Change("f", 9, "  a < b", new),))
        assert catalogue.reason_of(edit, known) == reason


def test_equivalent_edits_are_edits_of_this_tree() -> None:
    for file, old, new in catalogue.equivalents():
        changes = [edit.changes[0] for edit in edits((catalogue.ROOT / file).read_text(), file)]
        assert (old, new) in {(change.old.strip(), change.new.strip()) for change in changes}, (file, old, new)


def test_a_candidate_that_changes_nothing_is_none() -> None:
    found = catalogue.edits_of("f", "a", lambda text: [catalogue.Candidate(1, 0, "x", new) for new in "ab"])
    assert found == [catalogue.Edit("f:1:x:1", "x", (catalogue.Change("f", 1, "a", "b"),))]
