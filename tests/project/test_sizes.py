"""`.ci/sizes`: what it counts in a tree, and the walks on a server."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.ci_scripts import loaded

ROOT = Path(__file__).resolve().parents[2]
SIZES = ROOT / ".ci" / "sizes"

SOURCE = '''"""A page
of words."""

import os
from time import (
    time,
)

# Nothing that counts.


class PutSchedule:
    """No code."""

    sweep_ms = 5  # one line, three tokens
'''
SCRIPT = "-- header\nlocal function shard_of(id) return id end\n\n"


@pytest.fixture(scope="module")
def sizes() -> ModuleType:
    return loaded(SIZES)


def test_code_is_counted_without_words_and_blanks(sizes: ModuleType, tmp_path: Path) -> None:
    texts = (("engine/queue", "a.py", SOURCE), ("engine/http", "locks.py", "LOCK = 1\n"), ("lua/core", "b.lua", SCRIPT))
    for folder, name, text in texts:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_text(text)
    found = sizes.counted(tmp_path)
    assert [found[f"engine/queue: {figure}"] for figure in ("files", "code", "tokens", "imports")] == [1, 6, 15, 4]
    assert [found[f"lua/core: {figure}"] for figure in ("files", "code", "tokens")] == [1, 1, 9]
    assert (found["total engine: files"], found["total engine without http: files"]) == (2, 1)
    assert (found["noun schedule: files"], found["noun shard: files"], found.get("noun lock: files")) == (1, 1, None)
    assert (found["setting sweep_ms: lines"], found["setting grace_ms: lines"]) == (1, 0)


def test_a_base_stands_before_what_is_there_now(sizes: ModuleType) -> None:
    rows = sizes.rows({"walk pause: files": 9, "walk pause: calls": 50}, {"walk pause: files": 1018})
    assert list(rows) == ["walk pause  calls 0 -> 50  files 1,018 -> 9"]


@pytest.mark.slow
def test_walks_are_counted_on_a_server() -> None:
    done = subprocess.run([sys.executable, SIZES], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for walk in ("enqueue", "enqueue with two options", "pause", "put a schedule", "one job of a worker"):
        figures = re.findall(rf"walk {walk} +calls ([\d,]+)  files (\d+)  functions (\d+)", done.stdout)[0]
        calls, files, functions = (int(figure.replace(",", "")) for figure in figures)
        assert calls >= functions >= files > 5, walk


@pytest.mark.slow
def test_one_job_of_a_worker_is_counted_without_its_start() -> None:
    walks = [subprocess.check_output([sys.executable, SIZES, "--walk", ROOT], cwd=ROOT) for _ in range(2)]
    first, second = (json.loads(walk)["walk one job of a worker: calls"] for walk in walks)
    assert abs(first - second) < first / 50
