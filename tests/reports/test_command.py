"""The command line: exit codes, one clear line for whatever is missing, never a traceback and never a pass."""

import json
import os
import shutil
import signal
import socketserver
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, redirect_stderr, suppress
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import reports.command
import reports.corrupt.command
import reports.judge
import reports.session
from record.history import SCHEMA_VERSION
from reports.bench import __main__ as bench
from reports.channels.plan import CLOCK_MAX
from reports.command import main, parser
from reports.corrupt.command import Seen
from reports.corrupt.kinds import KINDS
from reports.errors import JudgeError
from reports.folder import read_spec, spec_faults
from reports.interrupts import Interrupts
from reports.verdict import NO_MEASURES, undecided
from tests.engine.command.test_printed import options
from tests.given import Output, Patch, script
from tests.golden import outcome, same
from tests.reports import good_run, story
from tests.reports.conftest import steady

ROOT = Path(__file__).parents[2]

Command = Callable[..., tuple[int, str, str]]

#: A session of its own for each command, while other processes of tests have theirs on the same two cores: 30 s when idle.
JUDGE_S = 600
pytestmark = pytest.mark.timeout(2 * JUDGE_S)


def test_every_argument_of_every_command_is_as_it_was() -> None:
    lines = [f"{line}\n" for made in (parser(), bench.parser()) for line in options(made)]
    same("reports/options.txt", steady("".join(lines), ROOT))


@pytest.fixture
def command(spark: SparkSession, monkeypatch: Patch, capsys: Output) -> Command:
    """`judge FOLDER` in this process and the shared session: (exit code, stdout, stderr)."""
    monkeypatch.setattr(reports.judge, "spark_session", lambda *_: nullcontext(spark))

    def run(folder: Path, *options: str) -> tuple[int, str, str]:
        code = main(["judge", str(folder), *options])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def in_a_process(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m reports judge FOLDER` in an interpreter of its own."""
    command = [sys.executable, "-m", "reports", "judge", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}, timeout=JUDGE_S)


@pytest.mark.slow
def test_a_valid_run_in_a_fresh_interpreter(tmp_path: Path) -> None:
    """The real thing, in a folder whose name looks like a pattern, next to a foreign Spark.

    A session of its own, the table on stdout, short progress on stderr, exit code 0.
    """
    run = good_run.healthy(tmp_path / "run [1] {a,b}").write()
    done = in_a_process(run, SPARK_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "verdict: valid"
    progress = done.stderr.splitlines()
    assert progress[0] == "judge: starting Spark"
    assert all(line.startswith("judge: ") for line in progress), "Spark's own noise stays off the screen"
    assert json.loads((run / "verdict.json").read_text())["verdict"] == "valid"
    assert (run / "junit.xml").exists() and "valid" in (run / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("verdict", "exit_code"), [("valid", 0), ("violated", 1), ("unknown", 2)])
def test_the_exit_code_tells_the_verdict(run: Path, command: Command, monkeypatch: Patch, verdict: str, exit_code: int) -> None:
    monkeypatch.setattr(reports.judge, "evaluate", lambda *_: ({**undecided("because", {}), "verdict": verdict}, None))
    code, out, _ = command(run)
    assert (code, out.splitlines()[-1]) == (exit_code, f"verdict: {verdict}")
    assert json.loads((run / "verdict.json").read_text())["verdict"] == verdict


def test_objectives_of_the_run_and_of_another_file(tmp_path: Path, run: Path, command: Command, monkeypatch: Patch) -> None:
    """The exit code is 3 for an objective that a valid run missed. A file that cannot be used is as bad as a broken spec."""
    measures = {**NO_MEASURES, "enqueued": 100, "lost": 2}
    check = {**check_of("J1"), "verdict": "valid"}
    verdict = {**undecided("", {}), "reasons": [], "verdict": "valid", "checks": [check], "measures": measures}
    monkeypatch.setattr(reports.judge, "evaluate", lambda *_: (dict(verdict), None))
    assert command(run)[0] == 0
    (run / "slo.toml").write_text("[errors]\nlost = 0.02")
    code, out, _ = command(run)
    assert (code, out.splitlines()[-2:]) == (0, ["slo: met 1 of 1", "verdict: valid"])
    other = tmp_path / "other.toml"
    other.write_text("[errors]\nlost = 0.01")
    code, out, _ = command(run, "--slo", str(other))
    assert (code, out.splitlines()[-2:]) == (3, ["slo: missed 1 of 1", "verdict: valid"])
    assert [line["result"] for line in json.loads((run / "verdict.json").read_text())["slo"]] == ["missed"]
    assert 'failures="1"' in (run / "junit.xml").read_text()
    other.write_text("[errors]\nlost = 2")
    code, out, _ = command(run, "--slo", str(other))
    assert (code, out.splitlines()[-1]) == (2, "verdict: unknown")
    assert "other.toml: errors.lost is 2, it must be a share from 0 to 1" in out


def check_of(name: str) -> dict[str, object]:
    """The entry of a check in a verdict."""
    counts = dict.fromkeys(("violations", "declared", "possible"), 0)
    return {"id": name, "name": name, **counts, "examples": [], "subjects": [], "evidence": [], "why": "", "not_judged": []}


def history(run: Path, spoil: Callable[[Path], object]) -> None:
    """Do this to each file of the history."""
    for file in (run / "history").iterdir():
        spoil(file)


def newer_schema(run: Path) -> None:
    file = run / "history" / "worker-1.jsonl"
    file.write_text(file.read_text().replace(f'"v":{SCHEMA_VERSION}', f'"v":{SCHEMA_VERSION + 1}', 1))


UNJUDGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no spec": (lambda run: (run / "spec.json").unlink(), "spec.json of run: No such file or directory"),
    "broken spec": (lambda run: (run / "spec.json").write_text("{"), "spec.json of run is not JSON"),
    "deep spec": (lambda run: (run / "spec.json").write_text("[" * 100_000), "spec.json of run is not JSON"),
    "folder": (lambda run: (run / "history/x.jsonl").mkdir(), "history file x.jsonl of run is not a file"),
    "no history": (lambda run: shutil.rmtree(run / "history"), "run has no history folder"),
    "deleted history": (lambda run: history(run, Path.unlink), "the history of run is empty"),
    "empty history": (lambda run: history(run, lambda file: file.write_text("")), "the history of run is empty"),
    "newer schema": (newer_schema, f"schema version {SCHEMA_VERSION + 1}, this judge reads up to {SCHEMA_VERSION}"),
}


@pytest.mark.parametrize("what", UNJUDGED)
def test_what_cannot_be_judged_is_one_clear_line_and_unknown(run: Path, command: Command, what: str) -> None:
    spoil, words = UNJUDGED[what]
    (run / "verdict.json").write_text('{"verdict": "valid"}')
    spoil(run)
    code, out, _ = command(run)
    reasons = [line for line in out.splitlines() if words in line]
    assert (code, len(reasons), out.splitlines()[-1]) == (2, 1, "verdict: unknown")
    written = json.loads((run / "verdict.json").read_text())
    assert written["verdict"] == "unknown" and words in written["reasons"][0]
    assert words in (run / "junit.xml").read_text()


def test_a_page_that_cannot_be_drawn_is_a_line_and_changes_nothing(tmp_path: Path, command: Command, monkeypatch: Patch) -> None:
    def stumble(*_: object) -> None:
        raise ValueError("no ink\nno paper")

    run = good_run.healthy(tmp_path / "run").write()
    monkeypatch.setattr(reports.judge, "evaluate", lambda *_: ({**undecided("because", {}), "verdict": "valid"}, None))
    monkeypatch.setattr(reports.judge.page, "write_report", stumble)
    code, out, err = command(run)
    assert (code, out.splitlines()[-1]) == (0, "verdict: valid")
    assert err.splitlines()[1:] == ["judge: the page of run cannot be written: ValueError: no ink"]
    assert json.loads((run / "verdict.json").read_text())["reasons"] == ["because"]


def test_what_an_older_judge_left_goes_first(run: Path, command: Command, monkeypatch: Patch) -> None:
    """A judge that dies leaves nothing that looks new."""
    old = [run / name for name in ("verdict.json", "junit.xml", "evidence.json", "report.html")]
    for path in old:
        path.write_text("valid")

    def interrupt(*_: object) -> None:
        assert not any(path.exists() for path in old)
        raise KeyboardInterrupt

    monkeypatch.setattr(reports.judge, "evaluate", interrupt)
    assert command(run)[0] == 2


CHANNEL = {"name": "a", "expire_ms": 1, "subscribers": ["s"], "preset_clock": -CLOCK_MAX}
#: Fields of specs that no harness writes; the line that says so stands in a text.
CHANGES: list[dict[str, object]] = [
    *({"schema": 99}, {"lease_ms": "9000"}, {"sweep_ms": True}, {"workers": 0}, {"recovery_bound_ms": 11_001}),
    *({"liveness_ms": 10_999}, {"plan": None}, {"plan": [{"fault": "1", "name": 2}]}, {"plan": ["kill"]}),
    *({"harness_errors": "none"}, {"direct": "worker-1"}, {"direct": [1]}, {"delayed_p99_ms": "100"}, {"delayed_p99_ms": -1}),
    *({"pickup_bound_ms": 0.5}, {"early_ms": 3}, {"pickup_bound_ms": 2000, "concurrency": 0}, {"ended_utc": None}),
    {"model": "dsps", "channels": []},
    {"model": "dsps", "channels": ["x", {**CHANNEL, "subscribers": [1], "preset_clock": CLOCK_MAX + 1}]},
]


def test_a_spec_that_no_harness_writes_is_one_clear_line(tmp_path: Path) -> None:
    run, told = tmp_path / "run", list[str]()
    run.mkdir()
    for change in CHANGES:
        (run / "spec.json").write_text(json.dumps({**story.SPEC, **change}))
        told.append(f"{change}: {outcome(read_spec, run)}\n")
    assert all(": JudgeError: spec.json of run: " in line and line.count("\n") == 1 for line in told)
    same("reports/wrong_specs.txt", "".join(told))


def test_a_spec_without_a_field_says_which(tmp_path: Path) -> None:
    assert spec_faults(story.SPEC) == [] == spec_faults({**story.SPEC, "model": "dsps", "channels": [CHANNEL]})
    for name in ("schema", "lease_ms", "sweep_ms", "recovery_bound_ms", "liveness_ms", "workers", "plan", "ended_utc"):
        spec = {field: value for field, value in story.SPEC.items() if field != name}
        assert [fault.split(",")[0].split(":")[0] for fault in spec_faults(spec)] == [f"{name} is missing"]


def bare_verdict(command: str, run: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command with a run that needs no Spark, and stdout as the shell command has it."""
    (run / "spec.json").write_text("{")
    line = ["sh", "-c", f'"$0" -m reports judge "$1" {command}', sys.executable, str(run)]
    settings = {**os.environ, **environment}
    return subprocess.run(line, capture_output=True, text=True, cwd=ROOT, env=settings, timeout=JUDGE_S)


@pytest.mark.parametrize(("command", "words"), [(">&-", "stdout is closed"), (">/dev/full", "No space left on device")])
def test_a_stdout_that_takes_nothing_is_one_line_and_unknown(tmp_path: Path, command: str, words: str) -> None:
    done = bare_verdict(command, tmp_path)
    assert (done.returncode, done.stderr.splitlines()) == (2, [f"judge: the table cannot be printed: {words}"])


def test_a_stdout_without_the_characters_gets_escapes(tmp_path: Path) -> None:
    run = tmp_path / "tür"
    run.mkdir()
    done = bare_verdict("", run, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (2, "") and "spec.json of t\\xfcr is not JSON" in done.stdout


def test_a_signal_that_was_swallowed_leaves_no_verdict(run: Path, command: Command, monkeypatch: Patch) -> None:
    """A KeyboardInterrupt inside a finalizer is lost; that the signal came is not."""
    interrupts = Interrupts()
    monkeypatch.setattr(reports.judge, "INTERRUPTS", interrupts)
    handle = interrupts._handle

    def evaluate(*_: object) -> tuple[dict[str, object], None]:
        with suppress(KeyboardInterrupt):
            handle(signal.SIGINT, None)
        return {**undecided("because", {}), "verdict": "valid"}, None

    monkeypatch.setattr(reports.judge, "evaluate", evaluate)
    code, out, err = command(run)
    assert (code, out, err.splitlines()[-1]) == (2, "verdict: unknown\n", "judge: interrupted")
    assert not (run / "verdict.json").exists()


def test_cleaning_up_is_not_interrupted_by_the_same_signal() -> None:
    interrupts = Interrupts()
    with interrupts.held():
        interrupts._handle(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()
    interrupts._handle(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        interrupts._handle(signal.SIGINT, None)


def test_a_missing_run_folder(tmp_path: Path, command: Command) -> None:
    code, out, err = command(tmp_path / "nowhere")
    assert (code, out) == (2, "verdict: unknown\n")
    assert err.splitlines() == [f"judge: run folder {tmp_path / 'nowhere'} does not exist"]


def test_a_verdict_that_cannot_be_written_is_never_a_pass(run: Path, command: Command, monkeypatch: Patch) -> None:
    monkeypatch.setattr(reports.judge, "evaluate", lambda *_: ({**undecided("because", {}), "verdict": "valid"}, None))
    (run / "verdict.json.new").symlink_to("/dev/full")
    code, out, err = command(run)
    assert (code, out) == (2, "verdict: unknown\n")
    assert err.splitlines()[-1] == "judge: verdict.json of run cannot be written: No space left on device"


def test_a_judge_that_is_interrupted_leaves_no_old_verdict(run: Path, command: Command, monkeypatch: Patch) -> None:
    (run / "verdict.json").write_text('{"verdict": "valid"}')

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reports.judge, "evaluate", interrupt)
    code, out, err = command(run)
    assert (code, out, err.splitlines()[-1]) == (2, "verdict: unknown\n", "judge: interrupted")
    assert not (run / "verdict.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "line"), [(signal.SIGTERM, "reading"), (signal.SIGINT, "starting Spark")])
def test_a_judge_that_is_told_to_stop_takes_jvm_and_scratch_with_it(tmp_path: Path, run: Path, number: int, line: str) -> None:
    """In the middle of a query, and while the JVM starts."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "reports", "judge", str(run)]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as judge:
        assert judge.stderr and judge.stdout
        while line not in judge.stderr.readline():
            assert judge.poll() is None
        while line == "starting Spark" and not children(judge.pid):
            assert judge.poll() is None
        judge.send_signal(number)
        told, complaint = judge.stdout.read(), judge.stderr.read()
    assert (judge.returncode, told, complaint.splitlines()[-1]) == (2, "verdict: unknown\n", "judge: interrupted")
    assert all(line.startswith("judge: ") for line in complaint.splitlines()), complaint
    assert not list(scratch.glob("ironclaim-spark-*")) and not (run / "verdict.json").exists()


@pytest.mark.parametrize(
    ("trouble", "said"),
    [(KeyboardInterrupt(), "interrupted after 2 kinds"), (JudgeError("no such job"), "no such job"), (OSError("full"), "full")],
)
def test_corruptions_so_far_are_told(run: Path, monkeypatch: Patch, capsys: Output, trouble: BaseException, said: str) -> None:
    def corrupt(*_: object) -> Iterator[Seen]:
        for kind in list(KINDS.values())[:2]:
            yield Seen(kind, "a job", (kind.check,))
        raise trouble

    monkeypatch.setattr(reports.command, "spark_session", lambda *_: nullcontext())
    monkeypatch.setattr(reports.corrupt.command, "corrupt", corrupt)
    assert main(["corrupt", str(run)]) == 2
    told = capsys.readouterr()
    assert told.out.startswith("corruptions\n") and told.out.endswith("corrupt: kinds=2 seen=2\n")
    assert told.err == f"corrupt: {said}\n"


@pytest.mark.parametrize(("missed", "code"), [(0, 0), (1, 1), (2, 1)])
def test_a_corruption_that_its_check_does_not_see_is_exit_code_1(run: Path, monkeypatch: Patch, missed: int, code: int) -> None:
    found = [Seen(kind, "a job", (kind.check,) * (number >= missed)) for number, kind in enumerate(list(KINDS.values())[:2])]
    monkeypatch.setattr(reports.command, "spark_session", lambda *_: nullcontext())
    monkeypatch.setattr(reports.corrupt.command, "corrupt", lambda *_: found)
    assert main(["corrupt", str(run)]) == code


def test_a_command_without_spark_that_is_interrupted_says_so_by_name(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    def interrupted(_: object) -> tuple[str, int]:
        raise KeyboardInterrupt

    monkeypatch.setitem(reports.command.OTHERS, "list", interrupted)
    assert (main(["list", str(tmp_path)]), capsys.readouterr()) == (2, ("", "list: interrupted\n"))


def test_the_end_of_a_jvm_that_was_interrupted_prints_no_traceback(monkeypatch: Patch) -> None:
    interrupts = Interrupts()
    interrupts.asked = 1
    monkeypatch.setattr(reports.session, "INTERRUPTS", interrupts)
    server = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler, bind_and_activate=False)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_accumulatorServer=server))
    with server, redirect_stderr(StringIO()) as told:
        reports.session.stop(spark, SimpleNamespace(proc=None), cast("Any", None))
        server.handle_error(cast("Any", None), ("127.0.0.1", 1))
    assert told.getvalue() == ""


def children(pid: int) -> list[str]:
    """Java processes that the process has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    java = list[str]()
    for child in found:
        # The one that only tells its version may be gone by now.
        with suppress(OSError):
            java += [child] if b"spark" in Path(f"/proc/{child}/cmdline").read_bytes() else []
    return java


def test_tables_that_cannot_be_written_are_never_a_pass(run: Path, command: Command) -> None:
    (run / "tables").write_text("in the way")
    code, out, _ = command(run)
    assert code == 2 and "  tables of run cannot be written: File exists" in out


def test_missing_java_names_what_installs_it(tmp_path: Path, run: Path) -> None:
    done = in_a_process(run, JAVA_HOME=str(tmp_path))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    said = " ".join(done.stdout.split())
    assert f"Spark needs Java, and JAVA_HOME is {tmp_path}, where there is no Java that runs" in said
    assert "install the Debian package openjdk-17-jre-headless, or set JAVA_HOME" in said
    assert done.stdout.splitlines()[-1] == "verdict: unknown"


def test_no_java_at_all_names_what_installs_it(tmp_path: Path, monkeypatch: Patch) -> None:
    from reports.errors import JudgeError
    from reports.session import require_java

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JudgeError, match="none on PATH: install the Debian package openjdk-17-jre-headless"):
        require_java()
    script(tmp_path / "java", "echo 'openjdk version \"11.0.2\"' >&2")
    with pytest.raises(JudgeError, match="needs Java 17 or newer, and .* is version 11"):
        require_java()


def test_a_wrong_master_is_one_clear_line(run: Path) -> None:
    """In an interpreter of its own, as this one has a session already."""
    command = [sys.executable, "-m", "reports", "judge", str(run), "--master", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=JUDGE_S)
    assert done.returncode == 2 and "Traceback" not in done.stderr + done.stdout
    assert "Spark does not start on master nonsense" in done.stdout


@pytest.mark.parametrize("words", ["compare --a x --b y", "capacity x", "simulation x", "corrupt x"])
@pytest.mark.parametrize("seed", ["-1", "x", "1.5", f"{2**53}", pytest.param("9" * 5_000, id="long")])
def test_a_seed_that_nothing_can_be_drawn_with_is_one_line(words: str, seed: str, capsys: Output) -> None:
    bound = f"it must be a whole number from 0 to {2**53 - 1}"
    with pytest.raises(SystemExit, match="2"):
        main([*words.split(), "--seed", seed])
    assert capsys.readouterr().err.endswith((f" {seed}: {bound}\n", f" {seed!r}: {bound}\n"))


def test_wrong_arguments_exit_2(capsys: Output) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["judge"])
    assert stopped.value.code == 2 and "the following arguments are required: run" in capsys.readouterr().err
    for words, told in ((["jugde", "x"], "'jugde', perhaps judge (choose from "), (["list", "--pge"], "arguments: --pge")):
        with pytest.raises(SystemExit):
            main(words)
        assert told in capsys.readouterr().err
