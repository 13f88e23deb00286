"""Mutants: the planted defect is exactly the declared one, or the mutant does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import mutants
from chaos.errors import HarnessError
from chaos.mutants import MUTANTS, Mutant, Patch
from engine.scripts import load_folder, scripts_folder

PATCHED = [mutant for mutant in MUTANTS.values() if mutant.patches]


@pytest.mark.parametrize("mutant", PATCHED, ids=lambda mutant: mutant.name)
def test_a_mutant_differs_from_the_clean_scripts_in_its_patches_only(mutant: Mutant, tmp_path: Path) -> None:
    clean = scripts_folder()
    planted = mutants.plant(mutant, clean, tmp_path / "lua")
    assert planted is not None
    files = sorted(path.relative_to(clean) for path in clean.rglob("*.lua"))
    assert files == sorted(path.relative_to(planted) for path in planted.rglob("*.lua"))
    changed = {str(file) for file in files if (clean / file).read_text() != (planted / file).read_text()}
    assert changed == {patch.file for patch in mutant.patches}
    for patch in mutant.patches:
        assert (planted / patch.file).read_text() == (clean / patch.file).read_text().replace(patch.old, patch.new)


@pytest.mark.parametrize("mutant", PATCHED, ids=lambda mutant: mutant.name)
def test_the_loader_accepts_the_mutated_scripts(mutant: Mutant, tmp_path: Path) -> None:
    planted = mutants.plant(mutant, scripts_folder(), tmp_path / "lua")
    assert planted is not None
    for folder in {Path(patch.file).parts[0] for patch in mutant.patches}:
        assert load_folder(planted / folder).keys() == load_folder(scripts_folder() / folder).keys()


def scripts(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "one.lua").write_text(text)
    return folder


@pytest.mark.parametrize(("text", "found"), [("nothing here\n", 0), ("old\nold\n", 2)])
def test_a_patch_that_does_not_fit_exactly_once_is_refused(text: str, found: int, tmp_path: Path) -> None:
    mutant = Mutant("sample", "defect", "J1", "violated", patches=(Patch("one.lua", "old", "new"),))
    with pytest.raises(
        HarnessError, match=rf"mutant sample: its patch fits {found} times into one.lua, it must fit exactly once"
    ):
        mutants.plant(mutant, scripts(tmp_path / "clean", text), tmp_path / "lua")


def test_a_patch_of_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    mutant = Mutant("sample", "defect", "J1", "violated", patches=(Patch("two.lua", "old", "new"),))
    with pytest.raises(HarnessError, match=r"mutant sample: .*two.lua"):
        mutants.plant(mutant, scripts(tmp_path / "clean", "old"), tmp_path / "lua")


def test_a_mutant_of_the_harness_leaves_the_scripts_alone(tmp_path: Path) -> None:
    assert mutants.plant(MUTANTS["inject-nothing"], scripts_folder(), tmp_path / "lua") is None
    assert not (tmp_path / "lua").exists()


def test_an_unknown_name_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(HarnessError, match="'nonsense' does not exist; choose from enqueue-not-idempotent, "):
        mutants.find("nonsense")
    assert mutants.find("") is None
