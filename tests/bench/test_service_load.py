"""The load of a service: a function that is none, that fails or ends is one line in the log, without what it yielded."""

import subprocess
import sys
from pathlib import Path

import pytest

from engine.testing import EmbeddedServer
from record.environment import led

SERVICE = """
from engine import Queue
queue = Queue("shop")
"""


LAST_LINES = [
    ("yield {'card': 'secret'}", "LoadError: the load yielded a dict, it must yield (task, arguments) or "),
    ("yield ('work',)", "LoadError: the load yielded a tuple of 1, it must yield (task, arguments) or "),
    ("return None", "TypeError: 'NoneType' object is not iterable"),
    ("raise KeyError('stock')", "KeyError: 'stock'"),
    ("yield 'work', {'card': 'secret'}", "the load has ended, it must yield jobs without end"),
]


@pytest.mark.parametrize(("load", "last"), LAST_LINES)
def test_a_load_that_fails_or_ends_is_in_the_last_line(server: EmbeddedServer, tmp_path: Path, load: str, last: str) -> None:
    (tmp_path / "shop.py").write_text(f"{SERVICE}\n\ndef load(seed):\n    {load}\n")
    command = [sys.executable, "-P", "-m", "bench.service_load", "--folder", str(tmp_path), "--queue", "shop:queue"]
    command += ["--load", "shop:load", "--rate", "50", "--prefix", "run"]
    told = {"PATH": "/usr/bin:/bin", **led(server.url, "shop", tmp_path / "producer-1.jsonl")}
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1 and last in done.stderr.splitlines()[-1] and "secret" not in done.stderr
