"""The synchronous interface is what `make generate` makes of the asyncio one, and nobody has edited it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLIENT = "clients/python/ironclaim_client"
FOLDERS = ("engine/queue/synchronous", "engine/channel/synchronous", f"{CLIENT}/synchronous")
STUB = "engine/__init__.pyi"


def contents(root: Path) -> dict[str, str]:
    paths = [path for folder in FOLDERS for path in (root / folder).glob("*.py")]
    return {path.relative_to(root).as_posix(): path.read_text() for path in [root / STUB, *paths]}


def generate(root: Path) -> None:
    subprocess.run([sys.executable, ROOT / ".ci/generate", root], check=True, timeout=120)


def test_the_committed_modules_are_those_that_are_generated_now(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ("engine", CLIENT):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    edited = tmp_path / "engine/queue/synchronous/parts.py"
    edited.write_text(edited.read_text() + "edited = True\n")
    (tmp_path / "engine/queue/synchronous/parts.py").unlink()
    (tmp_path / STUB).unlink()
    generate(tmp_path)
    assert contents(tmp_path) == contents(ROOT)


def test_nothing_of_asyncio_is_left_in_them() -> None:
    found = contents(ROOT)
    del found[STUB]
    generated = {name: text for name, text in found.items() if text.startswith("# Generated from ")}
    assert {Path(name).stem for name in generated} > {"queue", "calls", "parts"}
    for name, text in generated.items():
        _, code = text.split("\n", 1)
        # What a synchronous queue has for coroutines.
        of_both = r"Of both kinds of queue .*|engine\.queue\.asynchronous\.queue import AsyncQueue as|`await queue\.aio"
        code = re.sub(of_both, "", code)
        assert re.search(r"\basync\b|\bawait\b|\basyncio\b|\bAsync|driver\.permits", code) is None, name
