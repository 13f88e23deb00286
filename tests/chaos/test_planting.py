"""Planting: an anchor stands for its lines, names exist once, and each of them is used."""

import re
import shutil
from pathlib import Path

import pytest

from chaos.channels import mutants as channel_mutants
from chaos.mutants import of_services
from chaos.mutants.of_jobs import MUTANTS
from chaos.planting import ENGINE, Edit, anchors, layers_around, planted, without_unused
from chaos.scenarios import mischief
from chaos.simulate import games, patching
from engine.redis.scripts import linked_functions, load_model, load_script, scripts_folder
from engine.worker.machine.sweeping import Sweeping

_REMOVALS = [removal for game in games.GAMES.values() for removal in game.removals]
_OF_OTHERS = (channel_mutants.MUTANTS, mischief.MUTANTS, of_services.MUTANTS)
DEFECTS = (*MUTANTS.values(), *(one for mutants in _OF_OTHERS for one in mutants.values()), *_REMOVALS)


REPLACED = [
    ("one\n  two -- anchor: here\nthree\n", "2", "one\n  2\nthree\n"),
    ("one\n  two  # anchor: here\nthree\n", "", "one\nthree\n"),
    ("  -- anchor: here\n  one\n  two\n", "1\n  1", "  -- anchor: here\n  1\n    1\n  two\n"),
    ("-- anchor: here, 2 lines\none\ntwo\nthree\n", "1", "-- anchor: here, 2 lines\n1\nthree\n"),
]


@pytest.mark.parametrize(("text", "new", "becomes"), REPLACED)
def test_the_lines_of_an_anchor_are_replaced(text: str, new: str, becomes: str, tmp_path: Path) -> None:
    file = tmp_path / "one.lua"
    file.write_text(text)
    assert planted([Edit("here", new)], tmp_path) == {file: becomes}


def test_each_anchor_exists_once_and_is_used() -> None:
    files = anchors(scripts_folder())
    assert {edit.anchor for defect in DEFECTS for edit in defect.edits} == set(files)
    assert {name for name, found in files.items() if len(found) != 1} == set()


def test_scripts_with_a_planted_defect_load(tmp_path: Path) -> None:
    """What a defect leaves unused, or names and nobody has any more, the loader would refuse: then it is found by nobody."""
    lua = tmp_path / "lua"
    shutil.copytree(scripts_folder(), lua)
    before: dict[Path, str] = {}
    for defect in DEFECTS:
        for path, text in planted(defect.edits, lua).items():
            if path.suffix == ".lua":
                clean = path.read_text()
                if path not in before:
                    before[path] = loaded(path, lua)
                path.write_text(text)
                assert loaded(path, lua) != before[path], f"{path.name}: the loader drops what was planted"
                path.write_text(clean)


def test_python_with_a_planted_defect_is_python() -> None:
    """An anchor on one line of several of a statement would leave the others behind."""
    for defect in DEFECTS:
        for path, text in planted(defect.edits).items():
            if path.suffix == ".py":
                assert compile(text, path.name, "exec")


def loaded(path: Path, lua: Path) -> str:
    """What the server gets of a script; of a module all its functions, with those of other folders that they use."""
    layers = layers_around(path, lua)
    if path.parent.name != "modules":
        return load_script(path, layers).text
    names = re.findall(r"^local function (\w+)", path.read_text(), re.MULTILINE)
    return "".join(map(str, linked_functions(names, layers)))


def test_the_server_gets_no_anchor() -> None:
    source = (scripts_folder() / "core" / "claim.lua").read_text()
    assert (
        source.startswith("#!lua flags=allow-oom -- anchor: ")
        and "anchor:" not in load_model(scripts_folder(), "lanes")["claim"].text
    )


def test_only_the_method_of_an_anchor_is_changed() -> None:
    ((path, text),) = planted([Edit("orphans-are-looked-for", "if False:")]).items()
    assert path.is_relative_to(ENGINE)
    clean = dict(vars(Sweeping))
    (patch,) = patching.changed_methods(path, text)
    with patch:
        assert {name for name, member in vars(Sweeping).items() if member is not clean[name]} == {"beaten"}
    assert dict(vars(Sweeping)) == clean


def test_what_an_edit_leaves_unused_goes_from_the_header() -> None:
    text = "-- Numbers.\n-- USES core/one: a, b,\n--        c\n--      core/two: d\n\nlocal function e()\n  return b(d())\nend\n"
    assert without_unused(text) == text.replace("one: a, b,\n--        c\n--      core", "one: b\n-- USES core")
    assert without_unused(text.replace("b(d())", "a(b, c, d)")) == text.replace("b(d())", "a(b, c, d)")
