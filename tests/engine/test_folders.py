"""Temporary folders of servers: kept while their owner lives, swept once it is gone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from engine.testing import server
from engine.testing.server import YOUNG_S, OwnedFolder, sweep

OWNER_PROGRAM = """
import time
from engine.testing.server import OwnedFolder
print(OwnedFolder().path, flush=True)
time.sleep(600)
"""


@pytest.fixture
def later_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """Temporary folders are below tmp_path; a time at which those made in this test are no longer young."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return time.time() + YOUNG_S + 3_600


def test_a_folder_is_there_until_it_is_removed(tmp_path: Path, later_s: float) -> None:
    owned = OwnedFolder()
    (owned.path / "server.log").write_text("ready")
    assert owned.path.parent == tmp_path
    owned.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_living_owners_folder_stays_and_a_killed_ones_goes(tmp_path: Path, later_s: float) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER_PROGRAM], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    try:
        path = Path(owner.stdout.readline().strip())
        assert path.parent == tmp_path and sweep(now_s=later_s) == [] and path.is_dir()
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    assert sweep(now_s=later_s) == [path] and not path.exists()


def test_a_young_folder_and_those_of_others_stay(tmp_path: Path, later_s: float) -> None:
    (tmp_path / f"{server.PREFIX}young").mkdir()
    (tmp_path / "somebody-elses").mkdir()
    (tmp_path / f"{server.PREFIX}file").write_text("no folder")
    assert sweep() == [] and sweep(now_s=later_s) == [tmp_path / f"{server.PREFIX}young"]
    assert {path.name for path in tmp_path.iterdir()} == {"somebody-elses", f"{server.PREFIX}file"}
