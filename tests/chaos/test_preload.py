"""The library inside processes: it changes what its control file says, and nothing else; without a compiler a run is unknown."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos import errors, plan
from chaos.faults.base import preload_of
from chaos.preload import library
from chaos.preload.control import HOST, Preload
from tests.chaos.drills import make_drill, run
from tests.given import script

#: What a process says of itself: its clocks in ns, how long a sync took, and where the host name leads.
TOLD = """
import json, os, socket, sys, tempfile, time
sys.stdin.readline()
def address(host):
    try:
        return socket.getaddrinfo(host, 1, type=socket.SOCK_STREAM)[0][4][0]
    except OSError:
        return ""
with tempfile.TemporaryFile() as file:
    took = []
    for sync in (os.fsync, os.fdatasync):
        began_ns = time.monotonic_ns()
        sync(file.fileno())
        took.append(time.monotonic_ns() - began_ns)
told = {"wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns(), "took_ns": took, "host": address(sys.argv[1])}
print(json.dumps({**told, "loopback": address("127.0.0.1")}))
"""


def started(environment: dict[str, str]) -> Callable[[], dict[str, Any]]:
    """A process with the library, which tells of itself when it is asked."""
    command, env = [sys.executable, "-c", TOLD, HOST], {**os.environ, **environment}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    return lambda: json.loads(process.communicate("now\n", timeout=300)[0])


@pytest.fixture
def preload(tmp_path: Path) -> Preload:
    return Preload(library.build(print), tmp_path)


def test_nothing_changes_until_a_fault_says_so(preload: Preload) -> None:
    told = started(preload.environment("one"))()
    assert abs(told["wall_ns"] - time.time_ns()) < 60e9
    assert abs(told["monotonic_ns"] - time.monotonic_ns()) < 60e9
    assert (told["host"], told["loopback"]) == ("", "127.0.0.1")


@pytest.mark.parametrize("jump_s", [3_600, -3_600])
def test_the_wall_clock_of_a_running_process_jumps_and_no_other_clock(preload: Preload, jump_s: int) -> None:
    one, other = started(preload.environment("one")), started(preload.environment("other"))
    preload.set_wall_offset_ns("one", jump_s * 1_000_000_000)
    told = one()
    assert abs(told["wall_ns"] - time.time_ns() - jump_s * 1e9) < 60e9
    assert abs(told["monotonic_ns"] - time.monotonic_ns()) < 60e9
    assert abs(other()["wall_ns"] - time.time_ns()) < 60e9


def test_syncs_take_longer(preload: Preload) -> None:
    one = started(preload.environment("one"))
    preload.set_sync_delay_ns("one", 300_000_000)
    assert min(one()["took_ns"]) >= 300_000_000


def test_a_host_name_leads_to_another_address_in_processes_that_run_and_in_those_to_come(preload: Preload) -> None:
    preload.lead_to("127.0.0.1")
    one, two = started(preload.environment("one")), started(preload.environment("two"))
    assert one()["host"] == "127.0.0.1"
    preload.lead_to("127.0.0.2")
    assert two()["host"] == started(preload.environment("three"))()["host"] == "127.0.0.2"


def test_a_pretence_changes_nothing(tmp_path: Path) -> None:
    pretence = Preload(library.build(print), tmp_path, pretend=True)
    pretence.lead_to("127.0.0.1")
    one = started(pretence.environment("one"))
    pretence.set_wall_offset_ns("one", 3_600_000_000_000)
    pretence.set_sync_delay_ns("one", 5_000_000_000)
    pretence.lead_to("127.0.0.2")
    told = one()
    assert abs(told["wall_ns"] - time.time_ns()) < 60e9 and told["host"] == "127.0.0.1"


def test_it_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    built = library.build(said.append)
    assert built.parent.parent == tmp_path / "ironclaim" and len(said) == 1
    made_ns = built.stat().st_mtime_ns
    assert library.build(said.append).stat().st_mtime_ns == made_ns and len(said) == 1


def test_a_missing_compiler_is_one_line_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(library.LibraryMissing, match="sudo apt-get install build-essential"):
        library.build(print)


def test_a_compiler_that_fails_is_named_with_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "cc", "echo 'fatal error: netdb.h: No such file' >&2\nexit 1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(library.LibraryMissing, match=r"netdb\.h.*build-essential"):
        library.build(print)
    assert not library.built().exists()


def test_a_drill_without_a_compiler_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drill, _ = make_drill(tmp_path, seed=1, kinds=("worker-clock-jump",))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "COMPILERS", ("no-such-compiler",))
    run(drill)
    assert not drill.loaded and len(drill.errors) == 1 and library.INSTALL in drill.errors[0]


def test_a_fault_in_a_run_without_the_library_is_refused() -> None:
    scene: Any = type("Bare", (), {"preload": None})
    with pytest.raises(errors.HarnessError, match="1-disk-slow"):
        preload_of(scene, plan.PlannedFault("1-disk-slow", "disk-slow", "servers", 0))
