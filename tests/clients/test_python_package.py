"""The Python package: what its wheel holds and needs, and that it is of the same version as the engine."""

import email
import json
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import ironclaim_client
from engine.version import __version__
from tests.clients.conftest import ROOT, run

FOLDER = ROOT / "clients" / "python"


@pytest.mark.slow
def test_its_wheel_holds_the_package_and_needs_httpx_alone(tmp_path: Path) -> None:
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, FOLDER], tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if "dist-info" not in name}
        (metadata,) = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")]
    package = FOLDER / "ironclaim_client"
    sources = {path.relative_to(FOLDER).as_posix() for path in package.rglob("*") if path.suffix in (".py", ".typed")}
    assert names == sources and "ironclaim_client/py.typed" in names
    required = email.message_from_string(metadata).get_all("Requires-Dist", [])
    assert [Requirement(text).name for text in required] == ["httpx"]


def test_both_clients_have_the_version_of_the_engine() -> None:
    python = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]["version"]
    assert python == json.loads((ROOT / "clients" / "typescript" / "package.json").read_text())["version"] == __version__


def test_everything_that_is_exported_is_there_and_in_order() -> None:
    names = ironclaim_client.__all__
    assert list(names) == sorted(names) and [name for name in names if not hasattr(ironclaim_client, name)] == []
