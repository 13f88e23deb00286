"""The TypeScript package: what npm packs of it, and that a strict program of a user compiles against it."""

import json
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from chaos.interop import node
from tests.clients.conftest import ROOT, SCENARIOS, run

#: npm packs, and compiles.
pytestmark = pytest.mark.slow


def test_it_packs_what_is_run_with_its_types_and_no_sources(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        names = {member.name.removeprefix("package/") for member in archive.getmembers()}
    compiled = {f"dist/{path.stem}{suffix}" for path in (node.CLIENT / "src").glob("*.ts") for suffix in (".js", ".d.ts")}
    assert names == compiled | {"package.json", "README.md"}


def test_its_types_are_those_of_the_document_that_the_server_has_now(node_modules: Path, tmp_path: Path) -> None:
    made = tmp_path / "api.ts"
    run([sys.executable, ROOT / ".ci" / "generate_types", made], tmp_path)
    assert made.read_text() == (node.CLIENT / "src" / "api.ts").read_text(), "make generate"


def test_it_has_no_dependencies_and_its_entries_are_there(installed: Path) -> None:
    package = installed / "node_modules" / "@ironclaim" / "client"
    settings = json.loads((package / "package.json").read_text())
    assert settings["type"] == "module"
    assert not {"dependencies", "peerDependencies", "optionalDependencies", "bundleDependencies"} & settings.keys()
    for entry in settings["exports"].values():
        assert (package / entry["types"]).is_file() and (package / entry["default"]).is_file()


def test_what_compiles_it_is_pinned_and_the_lock_names_no_registry() -> None:
    lock = json.loads((node.CLIENT / node.LOCK).read_text())["packages"]
    wanted = json.loads((node.CLIENT / "package.json").read_text())["devDependencies"]
    assert {name: lock[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert not [name for name, package in lock.items() if "resolved" in package or (name and "integrity" not in package)]


def test_a_strict_program_of_a_user_compiles_against_it(installed: Path, node_modules: Path, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(installed / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(SCENARIOS / "program.ts", tmp_path)
    tsc = node_modules / "typescript" / "bin" / "tsc"
    options = "--strict --noEmit --target es2022 --module nodenext --lib es2022,dom --exactOptionalPropertyTypes"
    run([node.program("node"), tsc, *options.split(), "program.ts"], tmp_path)
