"""Mutants: the planted defect is exactly the declared one, or the mutant does not start."""

import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
import redis

from chaos import mutants, planting, processes
from chaos.errors import HarnessError
from chaos.mutants import Mutant, of_jobs
from chaos.planting import ENGINE, Edit
from engine.redis.scripts import Script, load_model, scripts_folder

CHANGED = [mutant for mutant in of_jobs.MUTANTS.values() if mutant.edits]
SCRIPTED = [mutant for mutant in CHANGED if not any(path.is_relative_to(ENGINE) for path in planting.planted(mutant.edits))]
OF_THE_ENGINE = [mutant for mutant in CHANGED if mutant not in SCRIPTED]


@cache
def clean_scripts(model: str) -> Mapping[str, Script]:
    return load_model(scripts_folder(), model)


def changed(planted: Path) -> set[Path]:
    """The files of a planted folder that are not those of the clean one, which has the same names."""
    clean = scripts_folder()
    files = {path.relative_to(clean) for path in clean.rglob("*.lua")}
    assert files == {path.relative_to(planted) for path in planted.rglob("*.lua")}
    return {file for file in files if (clean / file).read_text() != (planted / file).read_text()}


def code_of(script: Path) -> list[str]:
    """Its lines without comments: the USES of an edited script leave out what it uses no more."""
    return [line for line in script.read_text().split("\n") if not line.startswith("--")]


@pytest.mark.parametrize("mutant", SCRIPTED, ids=lambda mutant: mutant.name)
def test_scripts_differ_at_anchors_only_and_both_readers_take_them(mutant: Mutant, ironclaim_url: str, tmp_path: Path) -> None:
    clean = scripts_folder()
    planted = mutants.plant(mutant, clean, tmp_path / "lua")
    assert planted is not None
    gone, come, files = list[str](), set[str](), changed(planted)
    for file in files:
        before, after = code_of(clean / file), code_of(planted / file)
        gone += [line for line in before if line not in after]
        come |= {line.strip() for line in after if line not in before}
    assert len(gone) == len(mutant.edits)
    # A line of an edit may stand elsewhere in the file, too.
    assert come <= {line for edit in mutant.edits for line in edit.new.split("\n")}
    with redis.Redis.from_url(ironclaim_url) as client:
        for model in {"dsps" if file.parts[0] == "dsps" else "lanes" for file in files}:
            loaded = load_model(planted, model)
            assert loaded.keys() == clean_scripts(model).keys()
            for name, script in loaded.items():
                # The server knows the others already.
                if script.text != clean_scripts(model)[name].text:
                    client.script_load(script.text)


@pytest.mark.parametrize("mutant", OF_THE_ENGINE, ids=lambda mutant: mutant.name)
def test_processes_of_a_mutant_of_the_engine_import_the_changed_package(mutant: Mutant, tmp_path: Path) -> None:
    planted = mutants.plant(mutant, scripts_folder(), tmp_path / "lua")
    assert planted is not None
    scripts = changed(planted)
    differing = {path: tmp_path / path.relative_to(ENGINE.parent) for path in ENGINE.rglob("*.py")}
    differing = {path: copy for path, copy in differing.items() if path.read_bytes() != copy.read_bytes()}
    assert 1 <= len(differing) <= len(mutant.edits) - len(scripts), "the other files that differ are scripts"
    for copy in differing.values():
        compile(copy.read_text(), str(copy), "exec")
    assert processes.changed_engine(None) == processes.changed_engine(scripts_folder()) == {}
    if mutant is not OF_THE_ENGINE[0]:
        return
    # One process speaks for all of them.
    environment = processes.child_environment(processes.changed_engine(planted))
    show = "import engine, engine.redis.exchange, engine.redis.resolver; print(engine.__file__)"
    command = [sys.executable, "-c", show]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == str(tmp_path / "engine" / "__init__.py"), done.stderr


@pytest.mark.parametrize(("text", "found"), [("nothing here\n", 0), ("one -- anchor: sample\n-- anchor: sample\ntwo\n", 2)])
def test_an_anchor_that_does_not_exist_exactly_once_is_refused(text: str, found: int, tmp_path: Path) -> None:
    (tmp_path / "clean").mkdir()
    (tmp_path / "clean" / "one.lua").write_text(text)
    mutant = Mutant("sample", "defect", "J1", "violated", edits=(Edit("sample", "new"),))
    with pytest.raises(HarnessError, match=rf"mutant sample: anchor 'sample' occurs {found} times, it must occur exactly once"):
        mutants.plant(mutant, tmp_path / "clean", tmp_path / "lua")


def test_a_mutant_of_the_harness_leaves_the_scripts_alone(tmp_path: Path) -> None:
    assert mutants.plant(of_jobs.MUTANTS["inject-nothing"], scripts_folder(), tmp_path / "lua") is None
    assert not (tmp_path / "lua").exists()


def test_an_unknown_name_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(HarnessError, match="'nonsense' does not exist; choose from claim-not-atomic, "):
        mutants.find("nonsense", of_jobs.MUTANTS)
    assert mutants.find("", of_jobs.MUTANTS) is None
