"""The busy machine: processes beside a command, gone with it, whatever ends it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from chaos.processes import ROOT
from chaos.targets.faults import is_gone
from tests.engine.helpers.waiting import wait_until


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "chaos.busy", *arguments], cwd=ROOT)


EXIT_CODES = [
    *((("1", "--", "sh", "-c", "exit 7"), 7), (("0", "--", "sh", "-c", "kill -9 $$"), 128 + 9), (("1", "--", "/nowhere"), 127)),
    *(((), 2), (("-1", "--", "true"), 2), (("65", "--", "true"), 2), (("1", "true"), 2), (("1", "--"), 2)),
]


@pytest.mark.parametrize(("arguments", "code"), EXIT_CODES)
def test_the_exit_code_is_that_of_the_command(arguments: tuple[str, ...], code: int) -> None:
    assert start(*arguments).wait() == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_busy_processes_run_beside_the_command_and_end_with_it(number: int, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    runner = start("2", "--", "sh", "-c", f"echo $$ > {mark}; exec sleep 600")
    wait_until(lambda: mark.exists() and mark.read_text().strip(), "the start of the command")
    children = psutil.Process(runner.pid).children()
    assert len(children) == 3
    busy = [child for child in children if child.pid != int(mark.read_text())]
    wait_until(lambda: all(child.cpu_times().user > 0 for child in busy), "work of the busy processes")
    os.kill(runner.pid, number)
    runner.wait()
    # In a container nobody may wait for those whose parent was killed.
    wait_until(lambda: all(is_gone(child.pid) for child in children), "the end of all processes")
