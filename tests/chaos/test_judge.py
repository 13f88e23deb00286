"""The exit code of the judge is believed only when verdict.json agrees."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from chaos import judge as judge_module
from chaos.errors import HarnessError, Interrupted
from chaos.interrupts import Interrupts
from chaos.judge import EarlyJudge, judge, judge_all, validate_objectives
from tests.chaos.drills import beside, interrupt, when
from tests.engine.helpers.waiting import wait_until
from tests.golden import same


def command(code: object, run: Path, verdict: object) -> list[str]:
    """A judge that writes this verdict.json (nothing for None) and exits with this code."""
    write = "" if verdict is None else f"open({str(run / 'verdict.json')!r}, 'w').write({json.dumps(verdict)!r}); "
    return [sys.executable, "-c", f"import os; {write}raise SystemExit({code})"]


def valid(*results: object) -> dict[str, object]:
    """What a judge writes of a valid run, whose objectives came to these."""
    return {"verdict": "valid", "slo": [{"result": result} for result in results]}


#: Exit codes, and the verdicts that are written with them; what is believed of them stands in a text.
JUDGEMENTS: dict[str, list[tuple[object, object]]] = {
    "a verdict is an exit code": [(code, {"verdict": word}) for code, word in enumerate(("valid", "violated", "unknown"))],
    "objectives are a part of it": [(0, valid("met")), (2, valid("met", "unknown")), (3, valid("unknown", "missed"))],
    "of a valid run": [(1, {**valid("met"), "verdict": "violated"}), (1, {**valid("missed"), "verdict": "violated"})],
    "and they agree": [(3, valid("met")), (0, valid("met", "unknown")), (0, valid("unknown", "missed"))],
    "a judge that crashed": [(1, None), (0, None), ("os.kill(os.getpid(), 9)", None)],
    "a judge that contradicts itself": [
        *(
            (3, {"verdict": "valid"}),
            (0, {"verdict": "valid", "slo": [1]}),
            (0, {"verdict": "violated"}),
            (1, {"verdict": "valid"}),
        ),
        *((0, {"verdict": "splendid"}), (0, {}), (0, ["valid"])),
    ],
}


def test_the_exit_code_is_believed_when_the_verdict_agrees(tmp_path: Path) -> None:
    told: list[str] = []
    for rule, several in JUDGEMENTS.items():
        for code, verdict in several:
            (run := tmp_path / str(len(told))).mkdir()
            told.append(f"{rule}, {code} {verdict}: {judge(run, Interrupts(), command(code, run, verdict))}\n")
    same("chaos/judgements.txt", "".join(told))


OBJECTIVES = [
    pytest.param(5, True, "", marks=pytest.mark.slow),
    pytest.param(-5, True, "p50_ms", marks=pytest.mark.slow),
    (5, False, r"^my\.toml: latency\.all\.\"fan-out 1\" is not known, the series must be service, "),
]


@pytest.mark.parametrize(("p50_ms", "channels", "complaint"), OBJECTIVES)
def test_objectives_of_channels_are_those_of_channels(p50_ms: int, channels: bool, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(f"[latency.all.'fan-out 1']\np50_ms = {p50_ms}")
    with pytest.raises(HarnessError, match=complaint) if complaint else nullcontext():
        validate_objectives(file, channels=channels)


def test_runs_judged_together_have_a_code_each_unknown_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = {"one": "valid", "two": "violated", "three": "unknown"}
    runs = [tmp_path / name for name in (*verdicts, "four")]
    for run in runs:
        run.mkdir()
    # Of a judgement before; the judge crashes before it comes to that run.
    (tmp_path / "four" / "verdict.json").write_text('{"verdict": "valid"}')
    program = "import json, sys\n"
    program += f"for run, verdict in zip(sys.argv[1:], {list(verdicts.values())!r}):\n"
    program += "    json.dump({'verdict': verdict}, open(run + '/verdict.json', 'w'))\n"
    monkeypatch.setattr(judge_module, "judge_command", lambda *runs: [sys.executable, "-c", program, *map(str, runs)])
    assert judge_all(runs, Interrupts()) == [(0, ""), (1, ""), (2, ""), (2, "the judge gave no usable verdict")]


#: A judge that is content when nobody names a Spark.
SPARK_FREE = """
import json, os, pathlib, sys
seen = "SPARK_HOME" in os.environ
pathlib.Path(sys.argv[1], "verdict.json").write_text(json.dumps({"verdict": "violated" if seen else "valid"}))
sys.exit(seen)
"""


def test_the_judge_does_not_see_another_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    assert judge(tmp_path, Interrupts(), [sys.executable, "-c", SPARK_FREE, str(tmp_path)]) == (0, "")


#: A judge that says that it has begun, and goes on for ever; `{on_term}` is what SIGTERM does.
ENDLESS = """
import pathlib, signal, time
signal.signal(signal.SIGTERM, {on_term})
pathlib.Path({begun!r}).write_text("begun")
time.sleep(600)
"""


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("on_term", ["signal.SIG_DFL", "signal.SIG_IGN"])
def test_a_signal_ends_the_judge_at_once(on_term: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_module, "STOP_GRACE_S", 0.2)
    begun = tmp_path / "begun"
    endless = [sys.executable, "-c", ENDLESS.format(on_term=on_term, begun=str(begun))]
    interrupted = pytest.raises(Interrupted, match=r"^interrupted by SIGINT$")
    with beside(when(begun.exists, interrupt)), Interrupts() as interrupts, interrupted:
        judge(tmp_path, interrupts, endless)


@pytest.mark.usefixtures("nothing_left")
def test_a_signal_just_before_the_judge_is_not_lost(tmp_path: Path) -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted, match=r"^interrupted by SIGTERM$"):
            judge(tmp_path, interrupts, [sys.executable, "-c", "import time; time.sleep(600)"])


def test_a_signal_that_was_dealt_with_does_not_end_the_judge(tmp_path: Path) -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.take() == "interrupted by SIGINT"
        assert judge(tmp_path, interrupts, command(2, tmp_path, {"verdict": "unknown"})) == (2, "")
        assert interrupts.take() == ""


class InterruptingLock:
    """A lock whose first taker gets Ctrl-C between taking it and the next line, as a busy machine may have it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first = True

    def acquire(self, blocking: bool = True) -> bool:
        taken = self._lock.acquire(timeout=10) if blocking else self._lock.acquire(blocking=False)
        assert taken or not blocking, "the lock was left taken"
        if self._first:
            self._first = False
            os.kill(os.getpid(), signal.SIGINT)
        return taken

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def test_a_signal_inside_the_wait_for_the_judge_leaves_its_lock_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = judge_module.start_guarded

    def start_with_lock(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*arguments, **options)
        setattr(process, "_waitpid_lock", InterruptingLock())  # noqa: B010
        return process

    monkeypatch.setattr(judge_module, "start_guarded", start_with_lock)
    ignorant = ENDLESS.format(on_term="signal.SIG_DFL", begun=str(tmp_path / "begun"))
    with Interrupts() as interrupts, pytest.raises(Interrupted, match="interrupted by SIGINT"):
        judge(tmp_path, interrupts, [sys.executable, "-c", ignorant])


def test_a_judge_that_was_started_early_waits_for_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "there"
    words = f"import sys; open({str(there)!r}, 'w').close(); sys.stdin.readline()"
    monkeypatch.setattr(judge_module, "judge_command", lambda run: [sys.executable, "-c", waiting(words, run)])
    with EarlyJudge(tmp_path) as early:
        early.start()
        wait_until(there.exists, "the start of the judge")
        assert not (tmp_path / "verdict.json").exists()
        assert judge(tmp_path, Interrupts(), started=early.begin()) == (0, "")


def test_a_judge_that_is_not_needed_after_all_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_module, "judge_command", lambda run: [sys.executable, "-c", "import sys; sys.stdin.readline()"])
    stopped: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(judge_module, "stop", lambda process: (stopped.append(process), process.kill(), process.wait()))
    with EarlyJudge(tmp_path) as early:
        early.start()
        early.start()
    assert [process.poll() for process in stopped] == [-signal.SIGKILL]


def waiting(first: str, run: Path) -> str:
    """A judge that does this first, and then calls the run valid."""
    return f"{first}; open({str(run / 'verdict.json')!r}, 'w').write('{{\"verdict\": \"valid\"}}')"
