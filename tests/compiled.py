"""A pytest plugin: on the first run the assertions of the tests are rewritten once, not once in each process.

pytest rewrites the assertions of a test file when it is imported for the first time, and keeps the result. Processes that start
together all do it themselves, which takes 10 s of processor in each. So two processes do one half of the files each before the
others start.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
#: With fewer new files it is not worth two more processes.
NEW_MIN = 50


def pytest_configure(config: pytest.Config) -> None:
    """Rewrite what is new, where tests run in several processes and results may be kept."""
    several = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    files = [path for path in sorted(TESTS.rglob("test_*.py")) if not kept(path)] if several else []
    if len(files) < NEW_MIN or sys.dont_write_bytecode:
        return
    print(f"rewriting the assertions of {len(files)} test files, once ...", flush=True)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    halves = [subprocess.Popen([*command, *half], stdout=subprocess.DEVNULL) for half in (files[::2], files[1::2])]
    for half in halves:
        half.wait()


def kept(path: Path) -> bool:
    """Whether pytest has kept the rewritten module of a file as it is now."""
    name = f"{path.stem}.{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    compiled = path.parent / "__pycache__" / name
    return compiled.exists() and compiled.stat().st_mtime >= path.stat().st_mtime
