"""The parts of a drill of another job queue: promises, plans, marks in keys, trees of processes, and histories of adapters."""

import base64
import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from bench.peers import environments, libraries
from chaos.plan import PlannedFault
from chaos.processes import Child, child_environment
from chaos.targets.crew import python_path
from chaos.targets.faults import TargetScene, WorkerKill, is_gone, send_to_tree, stands_still, tree
from chaos.targets.promises import AT_LEAST_ONCE, AT_MOST_ONCE, PROMISES, find
from chaos.targets.spec import SLACK_MS, TIMES, TargetSpec, draw, wait_ms
from chaos.targets.watch import TargetWatch, held
from engine.testing import start_guarded
from record.history import SCHEMA_VERSION, load_file
from reports.targets.promise import promise_faults
from tests.engine.helpers.waiting import wait_until

OURS = replace(libraries.LIBRARIES[0], runtime="checkout")


@pytest.mark.parametrize("library", libraries.LIBRARIES, ids=lambda library: library.name)
def test_every_library_promises_something_that_the_judge_accepts(library: Any) -> None:
    _, promise = find(library.name)
    assert promise_faults({"promise": promise.for_spec(), "slack_ms": SLACK_MS}) == []
    assert promise.defaults and promise.source
    # What `python -m bench peers` marks as not running a job again names no time by which it does.
    assert library.redelivers or promise.recovery_bound_ms is None or promise.recovery_bound_ms > 120_000


def test_no_promise_is_of_a_library_that_nobody_knows() -> None:
    assert set(PROMISES) == {library.name for library in libraries.LIBRARIES}


def spec(name: str, **more: Any) -> TargetSpec:
    _, promise = find(name)
    words = {"settings": {}, "packages": (), "wait_ms": wait_ms(promise, None), **more}
    return TargetSpec(id="run", seed=1, target=name, promise=promise.for_spec(), **words)


def test_a_worker_stands_still_for_longer_than_others_wait_for_it() -> None:
    assert {promise.delivery for promise in PROMISES.values()} == {AT_LEAST_ONCE, AT_MOST_ONCE}
    assert spec("bullmq").freeze_ms == PROMISES["bullmq"].recovery_bound_ms + SLACK_MS  # type: ignore[operator]
    assert (spec("rq").freeze_ms, spec("taskiq-stream").freeze_ms) == (10_000, 360_000)
    assert spec("taskiq-stream", wait_ms=wait_ms(PROMISES["taskiq-stream"], 11)).freeze_ms == 610_000


def test_a_plan_follows_from_its_seed() -> None:
    plan = draw(7, workers=4)
    assert plan == draw(7, workers=4) != draw(8, workers=4)
    assert sorted(planned.name for planned in plan.faults) == sorted(name for name, times in TIMES.items() for _ in range(times))
    assert draw(7, workers=4, kinds=("none",)).faults == ()
    dead: set[str] = set()
    for planned in plan.faults:
        assert not dead & set(planned.targets)
        dead |= {planned.target} if planned.replacement else set()
    assert len(dead) == TIMES["worker-kill"]


def test_marks_are_found_in_keys_of_every_kind(ironclaim_url: str) -> None:
    def mark(number: int) -> bytes:
        return b'{"mark": "job-mark:%d:"}' % number

    with redis.Redis.from_url(ironclaim_url) as client:
        client.set("plain", mark(1))
        client.hset("hash", mapping={"other": b"no mark", "data": b"\x00\x01" + zlib.compress(mark(2) * 3)})
        client.rpush("list", mark(3), b'{"body": "' + base64.b64encode(b"[%s, {}]" % mark(4)) + b'"}')
        client.zadd("zset", {mark(5): 1})
        client.sadd("set", mark(6), b"\x78\x9c broken")
        client.xadd("stream", {"payload": mark(7) + mark(70)})
    assert held(ironclaim_url) == {"1", "2", "3", "4", "5", "6", "7", "70"}


#: A process that starts another one in a session of its own, as the workers of some libraries do for each job.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_signal_reaches_what_a_worker_has_started_in_a_session_of_its_own() -> None:
    process = start_guarded([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert tree(process.pid) == [process.pid, child] and not stands_still(process.pid)
        send_to_tree(process.pid, signal.SIGSTOP)
        wait_until(lambda: stands_still(process.pid), "both stand still")
        send_to_tree(process.pid, signal.SIGCONT)
        wait_until(lambda: not stands_still(process.pid), "both go on")
        pids = tree(process.pid)
        send_to_tree(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        wait_until(lambda: all(map(is_gone, pids)), "both are gone")
    finally:
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None
    assert tree(process.pid) == [] and not stands_still(process.pid)


def order(folder: Path, name: str, role: str, url: str = "redis://127.0.0.1:1/0") -> dict[str, str]:
    """What tells an adapter to write histories."""
    parts = urlsplit(url)
    history = {"path": str(folder / f"{name}.jsonl"), "proc": name, "version": SCHEMA_VERSION, "work_s": [0.01, 0.02]}
    full = {"role": role, "host": parts.hostname, "port": parts.port, "url": url, "queue": "q", "payload": {"text": "x"}}
    full |= {"settings": {}, "history": history, "way": "drilled", "rate": 100}
    return child_environment({"PEERS_ORDER": json.dumps(full), "PYTHONPATH": python_path("checkout")})


@contextmanager
def running(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = start_guarded(command, env=environment, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def whole(path: Path) -> tuple[dict[str, Any], ...]:
    """The rows of a file, numbered without gaps and of one process."""
    file = load_file(path)
    assert not file.corrupt_lines and not file.torn
    assert [row["seq"] for row in file.rows] == list(range(len(file.rows)))
    assert len({row["proc"] for row in file.rows}) == 1 and file.rows[0]["kind"] == "open"
    return file.rows


@pytest.mark.slow
def test_the_adapter_of_this_engine_writes_what_it_sends_and_runs(ironclaim_url: str, tmp_path: Path) -> None:
    watch, command = TargetWatch(tmp_path), environments.command_of(OURS)
    for name in ("producer-1", "worker-1"):
        watch.follow(name)

    def seen(condition: Callable[[], bool]) -> bool:
        watch.poll()
        return condition()

    with running(command, order(tmp_path, "producer-1", "produce", ironclaim_url)) as producer:
        wait_until(lambda: seen(lambda: len(watch.acknowledged) > 20), "jobs are sent", 120)
        assert held(ironclaim_url) >= watch.acknowledged, "each payload carries its mark"
        producer.send_signal(signal.SIGTERM)
        assert producer.wait(120) == 0
    with running(command, order(tmp_path, "worker-1", "work", ironclaim_url)):
        wait_until(lambda: seen(lambda: not watch.left()), "all jobs ran", 120)
    watch.close()
    sent = whole(tmp_path / "producer-1.jsonl")
    assert sent[-1]["kind"] == "close" and watch.view("producer-1").created == len(watch.acknowledged)
    ran = [row for row in whole(tmp_path / "worker-1.jsonl") if row["f"] == "handle"]
    assert [row["type"] for row in ran].count("ok") == len(watch.ended) == len(watch.acknowledged)
    assert all(row["done_ns"] - row["first_send_ns"] >= 10_000_000 for row in ran if row["type"] == "ok")
    assert watch.view("worker-1").running == {}


def test_each_process_that_was_forked_numbers_rows_of_its_own(tmp_path: Path) -> None:
    program = "import os, recording\nif os.fork() == 0:\n recording.job(1, {}); os._exit(0)\nos.wait(); recording.job(2, {})"
    subprocess.run([sys.executable, "-P", "-c", program], env=order(tmp_path, "worker-1", "work"), check=True)
    rows = load_file(tmp_path / "worker-1.jsonl").rows
    by_proc = {proc: [row for row in rows if row["proc"] == proc] for proc in {row["proc"] for row in rows}}
    assert len(by_proc) == 2
    for own in by_proc.values():
        assert [row["seq"] for row in own] == [0, 1, 2]
        assert [row["kind"] for row in own] == ["open", "operation", "operation"]


NODE = Path(__file__).with_name("recorded.js").read_text()


def test_adapters_on_node_write_the_same_rows(tmp_path: Path) -> None:
    command = ["node", "-e", NODE, str(environments.ADAPTERS / "recording.js")]
    subprocess.run(command, env=order(tmp_path, "producer-1", "produce"), check=True, timeout=300)
    rows = whole(tmp_path / "producer-1.jsonl")
    assert rows[-1]["kind"] == "close"
    calls = [row for row in rows if row["kind"] == "operation"]
    assert [(row["f"], row["type"]) for row in calls[:6]] == [
        *(("handle", "invoke"), ("handle", "ok"), ("enqueue", "invoke"), ("enqueue", "ok"), ("enqueue", "invoke")),
        ("enqueue", "info"),
    ]
    assert calls[3]["items"] == [{"job": "0", "nonce": calls[3]["op"], "result": "created"}]
    assert calls[5]["error"] == "Error: refused" and calls[5]["done_ns"] >= calls[5]["first_send_ns"]


def test_a_worker_that_is_started_again_runs_none_of_what_it_ran(tmp_path: Path) -> None:
    watch = TargetWatch(tmp_path)
    watch.follow("worker-1")
    row = {"v": SCHEMA_VERSION, "seq": 0, "proc": "worker-1.1", "t_ns": 5, "kind": "operation", "f": "handle", "op": "a"}
    row |= {"type": "invoke", "first_send_ns": 5, "items": [{"job": "1", "nonce": "a"}]}
    (tmp_path / "worker-1.jsonl").write_text(json.dumps(row) + "\n")
    watch.poll()
    (token,) = watch.view("worker-1").running
    assert watch.started_since([token], 4) == [token] and watch.started_since([token], 4, but="worker-1") == []
    watch.follow("worker-1")
    assert watch.view("worker-1").running == {}
    watch.poll()
    assert watch.last_start_ns("worker-1") == 5, "the file is not read once more"
    watch.close()
    assert os.listdir(tmp_path) == ["worker-1.jsonl"]


def test_a_worker_that_does_not_die_was_not_killed(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        child = Child("worker-1", "worker", process, tmp_path / "log")
        crew: Any = SimpleNamespace(children={"worker-1": child})
        watch: Any = SimpleNamespace(view=lambda name: SimpleNamespace(running=()), poll=lambda: None)
        scene = TargetScene(crew, watch, lambda condition, **_: condition(), lambda pid, number: None, 1_000, 1_000)
        fault = WorkerKill(scene, PlannedFault("1-worker-kill", "worker-kill", "worker-1", 0, "worker-2"))
        assert fault.inject().ok and child.exit_expected
        seen = fault.witness()
        process.kill()
    assert (seen.ok, seen.detail) == (False, "worker-1 did not die")
    assert not child.exit_expected, "its end would be nobody's plan"
