"""`.ci/setup`: done once, begun again after an interruption, and one clear line when it cannot go on."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.ci_scripts import loaded
from tests.given import Output, Patch, script

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the set-up reads."""
    (tmp_path / ".ci").mkdir()
    for name in (".ci/setup", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def steps() -> list[str]:
    """What the set-up did, in order."""
    return []


@pytest.fixture
def setup(tree: Path, steps: list[str], monkeypatch: Patch) -> ModuleType:
    """The set-up of the copied tree as a module, with the slow parts (venv, pip, java) replaced by notes of their names."""
    module = loaded(tree / ".ci" / "setup")

    def note_run(title: str, command: list[str], env: dict[str, str] | None = None) -> None:
        steps.append(title)
        if "venv" in command:
            module.VENV_PYTHON.parent.mkdir(parents=True)
            module.VENV_PYTHON.touch()

    monkeypatch.setattr(module, "run", note_run)
    monkeypatch.setattr(module, "check_java", lambda: None)
    monkeypatch.setattr(module, "check_toxiproxy", lambda: None)
    monkeypatch.setattr(sys, "argv", ["setup"])
    return module


def test_the_second_time_does_nothing(setup: ModuleType, steps: list[str]) -> None:
    assert setup.main() == 0
    assert [step.split(":")[0] for step in steps[1:]] == ["step 1 of 3", "step 2 of 3", "step 3 of 3"]
    steps.clear()
    assert setup.main() == 0 and steps == []


def test_every_extra_and_every_group_is_installed_by_a_pip_that_knows_groups(setup: ModuleType, monkeypatch: Patch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(setup, "run", lambda title, command, env=None: commands.append(command))
    setup.install()
    first, *_, last = [command[command.index("-c") + 2 :] for command in commands]
    assert first[0] == "pip"
    pins = dict(line.split("==") for line in setup.CONSTRAINTS.read_text().splitlines() if "==" in line)
    assert tuple(map(int, pins["pip"].split(".")[:2])) >= (25, 1), "it has no --group"
    settings = tomllib.loads((setup.ROOT / "pyproject.toml").read_text())
    extras, groups = settings["project"]["optional-dependencies"], settings["dependency-groups"]
    assert last[:2] == ["-e", f"{setup.ROOT}[{','.join(extras)}]"]
    file = f"{setup.ROOT / 'pyproject.toml'}:"
    named = {word.removeprefix(file) for word in last[2:] if word.startswith(file)}
    included = {item["include-group"] for group in groups.values() for item in group if isinstance(item, dict)}
    assert named <= set(groups) and named | included == set(groups)


def test_changed_pins_are_installed_into_the_same_environment(setup: ModuleType, steps: list[str]) -> None:
    setup.main()
    steps.clear()
    with setup.CONSTRAINTS.open("a") as constraints:
        constraints.write("# one more line\n")
    assert setup.main() == 0 and len(steps) == 3 and not any(".venv" in step for step in steps)


def test_an_environment_of_another_folder_or_python_is_made_anew(setup: ModuleType, steps: list[str]) -> None:
    for changed in ("venv", "python"):
        setup.main()
        setup.STAMP.write_text(json.dumps({**json.loads(setup.STAMP.read_text()), changed: "elsewhere"}))
        steps.clear()
        assert setup.main() == 0 and len(steps) == 4 and ".venv" in steps[0]


@pytest.mark.parametrize("end", [KeyboardInterrupt, OSError])
def test_a_stopped_set_up_begins_anew(setup: ModuleType, steps: list[str], monkeypatch: Patch, capfd: Output, end: Any) -> None:
    setup.main()
    setup.CONSTRAINTS.write_text(setup.CONSTRAINTS.read_text() + "# changed\n")
    with monkeypatch.context() as patch:

        def stop() -> None:
            raise end(28, "No space left on device") if end is OSError else end

        patch.setattr(setup, "install", stop)
        assert setup.main() != 0
    assert not setup.STAMP.exists()
    error = capfd.readouterr().err
    assert len(error.splitlines()) == 1 and "Traceback" not in error
    (setup.VENV / "half-installed").touch()
    steps.clear()
    assert setup.main() == 0 and len(steps) == 4 and not (setup.VENV / "half-installed").exists()


def test_a_foreign_environment_is_left_alone(setup: ModuleType, steps: list[str], capfd: Output) -> None:
    setup.VENV.mkdir()
    (setup.VENV / "precious").touch()
    assert setup.main() == 1
    assert capfd.readouterr().err == "setup: .venv was not made by this set-up; move it away and run again\n"
    assert (setup.VENV / "precious").exists() and steps == []


def test_an_old_python_and_an_unknown_tool_are_one_clear_line(setup: ModuleType, monkeypatch: Patch, capfd: Output) -> None:
    monkeypatch.setattr(setup, "PYTHON_MIN", (99, 0))
    assert setup.main() == 1 and "make PYTHON=" in capfd.readouterr().err
    monkeypatch.setattr(sys, "argv", ["setup", "kafka"])
    assert setup.main() == 1
    assert capfd.readouterr().err == "setup: kafka: it must be one of browser, compiler, luacheck, node, postgres, redis\n"


def run_setup(tree: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The real script on the copied tree, with a stamp that says that the environment is ready."""
    environment = {**os.environ, "TOXIPROXY_SERVER": "named", **environment}
    command = [sys.executable, str(tree / ".ci" / "setup")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def fake_java(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose java tells a version, as the real one does: on its error output."""
    return script(folder / "bin/java", f"echo 'openjdk version \"{version}\" 2024-01-16' >&2").parents[1]


@pytest.mark.parametrize(("version", "good"), [("17.0.15", True), ("21", True), ("11.0.2", False), ("1.8.0_402", False)])
def test_java_must_be_17_or_newer(setup: ModuleType, tree: Path, version: str, good: bool) -> None:
    setup.main()
    answer = run_setup(tree, JAVA_HOME=str(fake_java(tree / "jdk", version)))
    assert answer.returncode == (0 if good else 1), answer.stderr
    major = version.removeprefix("1.").split(".")[0]
    expected = f"JAVA_HOME={tree}/jdk is Java {major}, the judge (Spark) needs Java 17 or newer; set it anew or unset it"
    assert answer.stderr == ("" if good else f"setup: {expected}\n")


def test_a_java_home_without_java_is_one_clear_line(setup: ModuleType, tree: Path) -> None:
    setup.main()
    answer = run_setup(tree, JAVA_HOME=str(tree / "nowhere"))
    assert answer.returncode == 1
    assert len(answer.stderr.splitlines()) == 1 and "has no working bin/java" in answer.stderr


def test_two_at_a_time_wait_for_each_other(setup: ModuleType, tree: Path) -> None:
    setup.main()
    with setup.CONSTRAINTS.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        env = {**os.environ, "TOXIPROXY_SERVER": "named", "JAVA_HOME": str(fake_java(tree / "jdk", "17"))}
        command = [sys.executable, str(tree / ".ci" / "setup")]
        second = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None and "waiting for it" in second.stdout.readline()
        assert second.poll() is None
        fcntl.flock(held, fcntl.LOCK_UN)
        assert second.wait(300) == 0


def test_a_failed_step_shows_the_end_of_its_log(setup: ModuleType, tree: Path, capfd: Output) -> None:
    fresh = loaded(tree / ".ci" / "setup")
    with pytest.raises(fresh.SetupError, match=r"a step failed with code 3; all of its output is in build/setup\.log"):
        fresh.run("a step", ["sh", "-c", "echo early; echo 'no matching distribution' >&2; exit 3"])
    assert "    no matching distribution\n" in capfd.readouterr().out


def test_a_tool_that_is_not_there_is_installed(setup: ModuleType, steps: list[str], monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "apt-get").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(setup, "check_node_packages", lambda: steps.append("installing packages of Node"))
    monkeypatch.setattr(setup, "ELSEWHERE", str(tmp_path / "postgresql" / "*" / "bin"))
    setup.set_up(["redis", "postgres", "browser", "node"])
    packages = ("redis-server", "postgresql", "postgresql", "chromium", "chromium-driver", "nodejs", "npm")
    wanted = [*(f"installing {package} (apt-get)" for package in packages), "installing packages of Node"]
    assert [step for step in steps if step.startswith("installing")] == wanted


def test_programs_off_debians_path_are_found(setup: ModuleType, steps: list[str], monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(setup, "ELSEWHERE", str(tmp_path / "*" / "bin"))
    with pytest.raises(setup.SetupError, match="sudo apt-get install postgresql"):
        setup.set_up(["postgres"])
    (tmp_path / "15" / "bin").mkdir(parents=True)
    for program in ("initdb", "postgres"):
        (tmp_path / "15" / "bin" / program).touch(0o755)
    steps.clear()
    setup.set_up(["postgres"])
    assert steps == []


def test_without_the_right_to_install_only_a_server_is_an_error(setup: ModuleType, monkeypatch: Patch, capfd: Output) -> None:
    monkeypatch.setenv("PATH", "")
    words = "no {0} on PATH; install it, on Debian: sudo apt-get install {1}"
    for tool, program, package in (("browser", "chromium", "chromium"), ("node", "node", "nodejs")):
        setup.set_up([tool])
        assert words.format(program, package) in capfd.readouterr().out
    with pytest.raises(setup.SetupError, match=words.format("redis-server", "redis-server")):
        setup.set_up(["redis"])


def test_ci_ends_with_what_each_step_took_and_with_the_code_of_the_one_that_failed(tmp_path: Path) -> None:
    for name, line in {"make": '[ "$1" != bad ]', "git": ":", "python3": ":", "redis-server": ":", "cc": ":"}.items():
        script(tmp_path / name, line)
    program = f"set -eu; . {ROOT}/.ci/steps; step check; step test SERVER=redis ARGS='a b'; step bad; step never"
    done = subprocess.run(["/bin/bash", "-c", program], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    table = [line.split(" s  ")[1] for line in done.stdout.splitlines() if " s  " in line]
    assert table == ["make check", "make test SERVER=redis ARGS=a b", "make bad (failed)", "in all"], done.stderr
    assert done.returncode == 1


def test_a_variable_of_make_that_no_target_has_is_refused_and_those_of_make_help_are_not() -> None:
    # Not as part of the make that runs the tests, which hands its variables on.
    apart = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}

    def planned(*variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["make", "-n", "bench", *variables], cwd=ROOT, capture_output=True, text=True, env=apart)

    wrong = planned("MUTNAT=finish-without-token-check", "SEED=2")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "MUTNAT=finish-without-token-check: no target has this variable; make help names" in wrong.stderr
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, env=apart).stdout
    named = sorted(set(re.findall(r"\b([A-Z][A-Z0-9_]*)=", shown)))
    assert {"SEED", "MUTANT", "ARGS", "MINUTES"} <= set(named)
    found = planned(*(f"{name}=valkey" for name in named))
    assert (found.returncode, found.stderr) == (0, "")
