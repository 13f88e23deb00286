"""What starts Spark, clusters and judges, told what these would answer: no process is started."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import reports.command
from reports import cluster, session
from reports.bench import __main__ as bench_main
from reports.bench import command, cost
from reports.bench.command import Order, Small
from reports.bench.cost import Cost
from reports.bench.grow import Grown
from reports.errors import JudgeError
from reports.interrupts import Interrupts
from tests.given import Output, Patch

JUDGED = Cost(2.0, 9.0, 300.0, 1.5, 0)


class Child:
    """A process that is not there."""

    def __init__(self, words: list[str], said: bytes = b"", gone: bool = False, **told: Any) -> None:
        self.words, self.told, self.pid, self.returncode = words, told, 77, 0
        self.stderr, self.gone, self.ended = io.BytesIO(said), gone, list[str]()

    def poll(self) -> int | None:
        return 1 if self.gone else None

    def terminate(self) -> None:
        self.ended.append("terminate")

    def wait(self, timeout: float | None = None) -> int:
        self.ended.append("wait" if timeout is None else "wait a while")
        if timeout is not None:
            raise subprocess.TimeoutExpired("worker", timeout)
        return 0


def test_the_cost_of_a_judge_is_that_of_its_processes_and_those_beside(tmp_path: Path, monkeypatch: Patch) -> None:
    """The judge is 77 with a child 78, and 5 stands for a cluster that was there before. The memory is that of one look."""
    used = {5: 1.0, 77: 2.0, 78: 3.0}
    answers = iter([(0, 0, None), (0, 0, None), (77, 2 << 8, SimpleNamespace(ru_utime=4.0, ru_stime=0.5))])
    started: list[Child] = []

    def popen(words: list[str], **told: Any) -> Child:
        started.append(Child(words, b"judge: converted in 3.5 s\njudge: checking\n", **told))
        return started[-1]

    def descendants(root: int) -> list[int]:
        return [78] if root == 77 else [5, *([77, 78] if started else [])]

    def used_s(pid: int) -> float:
        used[pid] += 1.0
        return used[pid]

    monkeypatch.setattr(cost, "LOOK_S", 0)
    monkeypatch.setattr(cost, "dying_with_parent", lambda: None)
    monkeypatch.setattr(cost, "descendants", descendants)
    monkeypatch.setattr(cost, "memory_bytes", lambda pid: {5: 1_000_000, 77: 2_000_000, 78: 4_000_000}[pid])
    monkeypatch.setattr(cost, "used_s", used_s)
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(os, "wait4", lambda pid, how: next(answers))
    found = cost.judged(tmp_path, "local")
    # 77 and 78 were seen to use 4 and 5 s, more than 4.5; the other one went from 2 to 4 s.
    assert (found.cpu_s, found.peak_mb, found.convert_s, found.code) == (4.0 + 5.0 + 2.0, 7.0, 3.5, 2)
    assert started[0].words == [sys.executable, "-m", "reports", "judge", str(tmp_path), "--master", "local"]
    assert (str(JUDGED), JUDGED.apart) == ("seconds=2.0 cpu_s=9.0 peak_mb=300", " convert_s=1.5")
    assert Cost(1, 1, 1, None, 0).apart == ""
    answers = iter([(77, 9, SimpleNamespace(ru_utime=0, ru_stime=0))])
    with pytest.raises(JudgeError, match="ended with -9: judge: checking"):
        cost.judged(tmp_path, "local")
    answers = iter([])
    with pytest.raises(StopIteration):
        cost.judged(tmp_path, "local")
    assert started[-1].ended == ["terminate", "wait"]


def test_histories_are_judged_after_the_run_that_they_are_made_of(tmp_path: Path, monkeypatch: Patch) -> None:
    lines, judged = list[str](), list[tuple[str, str]]()
    found = {"planted": frozenset({("J1", "a", "k", "violated")}), "grown": frozenset({("J1", "b", "k", "violated")})}

    @contextmanager
    def clustered(workers: int, *, memory: str) -> Iterator[str]:
        yield f"spark of {workers} with {memory}"

    def judge(folder: Path, master: str) -> Cost:
        judged.append((folder.name, master))
        return JUDGED

    for name in found:
        (tmp_path / name).mkdir()
    grown = tmp_path / "grown"
    monkeypatch.setattr(command, "cluster", clustered)
    monkeypatch.setattr(command, "judged", judge)
    monkeypatch.setattr(
        command, "base", lambda *_: (tmp_path / "run", Small(tmp_path / "planted", 50, {"overlap": "a", "lost": "x"}))
    )
    monkeypatch.setattr(command, "history", lambda *_: (grown, Grown(1_000, 0, 0)))
    monkeypatch.setattr(command, "clean", lambda folder: lines.append(f"clean {folder.name}"))
    monkeypatch.setattr(command, "findings", lambda folder: found[folder.name])
    monkeypatch.setattr(command, "unseen", lambda expected, subjects: ["lost"])
    assert command.bench(Order([1_000], workers=2), lines.append) == 1
    assert judged == [("planted", "spark of 2 with 2g"), ("grown", "spark of 2 with 2g")]
    assert lines == [
        "judge: rows=50 seconds=2.0 cpu_s=9.0 peak_mb=300 convert_s=1.5 kinds=2 (the run that is grown, all planted)",
        *("judge: lost was planted and not found", "clean grown"),
        "judge: rows=1000 seconds=2.0 cpu_s=9.0 peak_mb=300 convert_s=1.5 planted=0/1 extra=1",
        *("judge: not found: J1 a k violated", "judge: not planted: J1 b k violated"),
        "judge: rows=1000 seconds=2.0 cpu_s=9.0 peak_mb=300 exponent=- planted=0/1 extra=1",
    ]
    found["grown"] = found["planted"]
    monkeypatch.setattr(command, "unseen", lambda expected, subjects: [])
    costs = iter([JUDGED, Cost(1, 10, 1, None, 0), Cost(1, 20, 1, None, 0)])
    rows = iter([1_000, 2_000])
    monkeypatch.setattr(command, "judged", lambda folder, master: next(costs))
    monkeypatch.setattr(command, "history", lambda *_: (grown, Grown(next(rows), 0, 0)))
    assert command.bench(Order([1, 2]), lines.append) == 0 and lines[-1].endswith("exponent=1.0 planted=1/1 extra=0")
    costs = iter([JUDGED, Cost(1, 10, 1, None, 0), Cost(1, 30, 1, None, 0)])
    rows = iter([1_000, 2_000])
    assert command.bench(Order([1, 2]), lines.append) == 1, "its time grows faster than it may"


def test_a_drill_is_recorded_where_there_is_none(tmp_path: Path, monkeypatch: Patch) -> None:
    lines, words = list[str](), list[list[str]]()
    monkeypatch.setattr(command, "FOLDER", tmp_path)

    def run(told: list[str], **_: Any) -> Any:
        words.append(told)
        for name, verdict in (("a", "valid"), ("b", "unknown"))[len(words) - 1 :]:
            (tmp_path / "recorded-seed7" / name).mkdir(parents=True)
            (tmp_path / "recorded-seed7" / name / "verdict.json").write_text(json.dumps({"verdict": verdict}))
        return SimpleNamespace(returncode=3)

    monkeypatch.setattr(command, "dying_with_parent", lambda: None)
    monkeypatch.setattr(subprocess, "run", run)
    expected = tmp_path / "recorded-seed7" / "a"
    assert [command.recorded(7, lines.append), command.recorded(7, lines.append)] == [expected] * 2
    assert words == [[sys.executable, "-m", "chaos", "run", "bench", "--seed", "7", "--runs", str(expected.parent)]]
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=2))
    with pytest.raises(JudgeError, match=r"was not valid \(exit code 2\)"):
        command.recorded(8, lines.append)
    assert lines == ["judge: recording a drill, which takes four minutes"] * 2
    monkeypatch.setattr(command, "judged", lambda run, master: (run / "verdict.json").write_text('{"verdict":"valid"}'))
    assert command.valid(tmp_path, "local") == tmp_path and (tmp_path / "verdict.json").exists()


def test_the_commands_of_the_bench_are_told_what_to_do(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    orders: list[Any] = []

    def bench(order: Order, say: Any) -> int:
        orders.append(order)
        say("judged")
        return 1

    def grow(*told: Any, **more: Any) -> Grown:
        orders.append((*told, more))
        return Grown(12, 0, 0)

    def main(words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bench", *words.split()])
        code = bench_main.main()
        told = capsys.readouterr()
        return code, told.out, told.err

    monkeypatch.setattr(bench_main.INTERRUPTS, "install", lambda: None)
    monkeypatch.setattr(bench_main, "bench", bench)
    monkeypatch.setattr(bench_main, "grow", grow)
    monkeypatch.setattr(time, "monotonic", iter([10.0, 12.5]).__next__)
    judged = "judge --rows 1e3 2e3 --seed 4 --run x --master local[3] --workers 2 --memory 1g --shape one-job"
    assert main(judged) == (1, "judged\n", "")
    assert main("grow x --rows 1000000000 --out y") == (0, "history: rows=12 seconds=2.5\n", "")
    assert orders == [
        Order([1_000, 2_000], 4, "one-job", Path("x"), "local[3]", 2, "1g"),
        (Path("x"), 1_000_000_000, Path("y"), {"shape": "real"}),
    ]
    for trouble, said in ((JudgeError("no"), "no"), (OSError("full"), "full"), (KeyboardInterrupt(), "interrupted")):
        monkeypatch.setattr(bench_main, "bench", lambda *_, trouble=trouble: (_ for _ in ()).throw(trouble))
        assert main("judge") == (2, "", f"bench: {said}\n")
    for rows in ("0", "1.1e9", "many"):
        with pytest.raises(SystemExit):
            main(f"judge --rows {rows}")
        assert f"rows is '{rows}': it must be a number from 1 to 1e9" in capsys.readouterr().err


def test_a_cluster_is_a_master_and_its_workers_and_ends_with_its_block(monkeypatch: Patch) -> None:
    started: list[Child] = []
    killed: list[tuple[int, int]] = []

    def popen(words: list[str], *, stdout: Any, **told: Any) -> Child:
        started.append(Child(words, **told))
        of_master = Path(stdout.name).parent / "master.log"
        if len(started) == 1:
            of_master.write_text("Starting Spark master at spark://127.0.0.1:4711\n")
        else:
            of_master.write_text(of_master.read_text() + "Registering worker 127.0.0.1:1 with 3 cores, 1g RAM\n")
        return started[-1]

    monkeypatch.setattr(cluster, "require_java", lambda: "")
    monkeypatch.setattr(cluster, "dying_with_parent", lambda: None)
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(os, "killpg", lambda *told: killed.append(told))
    with cluster.cluster(2, cores=3, memory="1g") as address:
        assert address == "spark://127.0.0.1:4711" and not killed
    master, *workers = [child.words[1:] for child in started]
    assert master == [cluster.MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    scratch = started[0].told["cwd"]
    offer = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "3", "--memory", "1g"]
    assert workers == [[cluster.WORKER, *offer, "--work-dir", str(scratch / f"worker-{number}"), address] for number in (1, 2)]
    assert all(child.told["start_new_session"] and child.told["env"]["SPARK_LOCAL_IP"] == "127.0.0.1" for child in started)
    assert [child.ended for child in started] == [["terminate", "wait a while", "wait"]] * 3
    assert killed == [(77, signal.SIGKILL)] * 3 and not scratch.exists()


@pytest.mark.parametrize(("gone", "words"), [(True, "ended at once: no room"), (False, "did not come up within 0 s: no room")])
def test_a_cluster_that_fails_says_the_last_line_of_its_log(gone: bool, words: str, tmp_path: Path, monkeypatch: Patch) -> None:
    log = tmp_path / "log"
    log.write_text("first\nno room\n\n")
    monkeypatch.setattr(cluster, "START_TIMEOUT_S", 0.4)
    monkeypatch.setattr(cluster, "LOOK_S", 0)
    children: Any = [Child([]), Child([], gone=gone)]
    with pytest.raises(JudgeError, match=words):
        cluster.wait_for(log, children, lambda text: None)
    assert session.last_line(log) == "no room"
    log.write_text("\n")
    assert session.last_line(log) == ""


def test_the_command_keeps_a_cluster_until_it_is_told_to_end(monkeypatch: Patch, capsys: Output) -> None:
    interrupts, pauses = Interrupts(), list[int]()

    def pause() -> None:
        pauses.append(1)
        interrupts.asked = 15 if len(pauses) == 2 else 0

    @contextmanager
    def clustered(workers: int, *, cores: int, memory: str) -> Iterator[str]:
        yield f"spark:{workers}:{cores}:{memory}"

    monkeypatch.setattr(reports.command, "INTERRUPTS", interrupts)
    monkeypatch.setattr(interrupts, "install", lambda: None)
    monkeypatch.setattr(reports.command, "cluster", clustered)
    monkeypatch.setattr(signal, "pause", pause)
    words = ["cluster", "--workers", "3", "--cores", "2", "--memory", "1g"]
    assert (reports.command.main(words), capsys.readouterr().out, len(pauses)) == (0, "spark:3:2:1g\n", 2)

    def interrupted() -> None:
        raise KeyboardInterrupt

    interrupts.asked = 0
    monkeypatch.setattr(signal, "pause", interrupted)
    assert reports.command.main(words) == 0


def test_an_executor_is_waited_for_as_long_as_it_may_take(monkeypatch: Patch) -> None:
    sizes = iter([1, 1, 2])
    scala = SimpleNamespace(getExecutorMemoryStatus=lambda: SimpleNamespace(size=lambda: next(sizes)))
    conf = SimpleNamespace(get=lambda name, default: default)
    context: Any = SimpleNamespace(master="spark://x", _jsc=SimpleNamespace(sc=lambda: scala), getConf=lambda: conf)
    monkeypatch.setattr(session, "LOOK_S", 0)
    session.require_executor(context)
    assert next(sizes, "none is left") == "none is left"
    sizes = iter([1])
    with pytest.raises(JudgeError, match=r"spark://x gave no executor within 0 s: .* spark.executor.memory, 1g"):
        session.require_executor(context, 0.0)
    session.require_executor(SimpleNamespace(master="local[2]"))  # type: ignore[arg-type]
