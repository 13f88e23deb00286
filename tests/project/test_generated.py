"""The synchronous interface is what `make generate` makes of the asyncio one, and nobody has edited it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLIENT = "clients/python/ironclaim_client"
FOLDERS = ("engine/channel/synchronous", f"{CLIENT}/synchronous")
QUEUE, STUB = "engine/queue/synchronous.py", "engine/__init__.pyi"


def contents(root: Path) -> dict[str, str]:
    paths = [path for folder in FOLDERS for path in (root / folder).glob("*.py")]
    return {path.relative_to(root).as_posix(): path.read_text() for path in [root / STUB, root / QUEUE, *paths]}


def generate(root: Path) -> None:
    subprocess.run([sys.executable, ROOT / ".ci/generate", root], check=True, timeout=120)


def test_the_committed_modules_are_those_that_are_generated_now(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ("engine", CLIENT):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    edited = tmp_path / "engine/channel/synchronous/channel.py"
    edited.write_text(edited.read_text() + "edited = True\n")
    (tmp_path / QUEUE).unlink()
    (tmp_path / STUB).unlink()
    generate(tmp_path)
    assert contents(tmp_path) == contents(ROOT)


def generated_of(tmp_path: Path, edit: Callable[[str], str]) -> subprocess.CompletedProcess[str]:
    """What generating says where a module of the queue is edited."""
    folder = tmp_path / "engine/queue/asynchronous"
    shutil.copytree(ROOT / "engine/queue/asynchronous", folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    jobs = folder / "jobs.py"
    jobs.write_text(edit(jobs.read_text()))
    return subprocess.run([sys.executable, ROOT / ".ci/generate", tmp_path], capture_output=True, text=True, timeout=120)


def test_names_that_two_modules_of_one_interface_define_differently_are_told(tmp_path: Path) -> None:
    done = generated_of(tmp_path, lambda text: text.replace("JOBS_MAX", "Listing"))
    assert done.returncode == 1 and "mean something else by Listing" in done.stderr


def test_no_statement_of_a_joined_module_is_left_out_in_silence(tmp_path: Path) -> None:
    done = generated_of(tmp_path / "typed", lambda text: f"{text}\n_KEPT: int = 1\n")
    assert done.returncode == 0 and "\n_KEPT: int = 1\n" in (tmp_path / "typed" / QUEUE).read_text()
    done = generated_of(tmp_path / "done", lambda text: f"{text}\nprint()\n")
    assert done.returncode == 1 and "jobs: no module is joined that does this: print()" in done.stderr


def test_nothing_of_asyncio_is_left_in_them() -> None:
    found = contents(ROOT)
    del found[STUB]
    generated = {name: text for name, text in found.items() if text.startswith("# Generated from ")}
    assert {Path(name).stem for name in generated} >= {"synchronous", "channel", "client"}
    for name, text in generated.items():
        _, code = text.split("\n", 1)
        # What a synchronous queue has for coroutines.
        of_both = r"Of both kinds of queue .*|engine\.queue\.asynchronous\.queue import AsyncQueue as|`await queue\.aio"
        code = re.sub(of_both, "", code)
        assert (
            re.search(r"\b(async|await|asyncio)\b|\bAsync|driver\.permits|queue\.asynchronous|engine\.(worker|command)", code)
            is None
        ), name
