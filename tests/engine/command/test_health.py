"""`ironclaim health`: what a supervisor is told of a worker and of a server, on a real server."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import Queue, Worker, testing
from engine.ops.workers import Beat
from tests.engine.command.running import ROOT, Done, ironclaim, said
from tests.engine.helpers import at_work, producing, waiting, warm

#: Time that is up ends the process, and here that is the one of the tests. One that is started waits for a server that does not
#: answer for 15 s; the rest is what it may take for itself.
PATIENT = ("--timeout", "60s")
PROBED = "import os\nfrom engine import Queue\nqueue = Queue('mails', url=os.environ['SHOP_URL'], prefix='shop')\n"


@pytest.fixture
def server() -> Iterator[testing.EmbeddedServer]:
    with testing.EmbeddedServer() as started:
        yield started


@contextmanager
def working(queue: Queue, **settings: Any) -> Iterator[None]:
    """A worker of the queue in this process, once it is listed."""
    queue.job("send")(lambda: None)
    with at_work.at_work(Worker(queue, **settings)):
        waiting.wait_until(queue.workers.list, "the worker is listed")
        yield


def results(found: Any) -> dict[str, str]:
    return {check["check"]: check["result"] for check in found["checks"]}


def detail(done: Done) -> str:
    assert done.stderr == ""
    return done.stdout


def at(url: str, queue: str = "mails") -> tuple[str, ...]:
    return ("--queue", queue, "--url", url, *PATIENT)


def probe(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own, as supervisors start it."""
    words = ("-m", "engine", "health", *arguments)
    return warm.run(words, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), **environment})


def probes(folder: Path, *calls: tuple[str, ...]) -> list[subprocess.CompletedProcess[str]]:
    """Several of them at once: each waits for a server that does not answer."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda arguments: probe(folder, *arguments), calls))


def test_a_server_is_ready_when_it_answers_and_has_the_scripts(ironclaim_url: str, client: Any, queue: Queue) -> None:
    client.script_flush()
    found = said("health", "--ready", *at(ironclaim_url))
    assert found["healthy"] and results(found) == {"server": "ok"}
    digests = [script.digest for script in queue.model.scripts.values()]
    assert all(client.script_exists(*digests)), "they were loaded, so that they can be"


def test_a_worker_of_this_host_lives_while_its_beats_come_and_is_gone_when_it_has_left(ironclaim_url: str, queue: Queue) -> None:
    where = at(ironclaim_url)
    with working(queue, name="w1"):
        both = said("health", *where)
        assert both["healthy"] and results(both) == {"server": "ok", "worker": "ok"}
        live = detail(ironclaim("health", "--live", *where))
        assert re.search(rf"w1 \(pid {os.getpid()}\) sent its last heartbeat \d+\.\d s ago", live)
        assert ironclaim("health", "--live", *where, IRONCLAIM_NAME="w1").returncode == 0
        other = ironclaim("health", "--live", *where, "--name", "w2")
        assert other.returncode == 1 and f"the worker w2 of {socket.gethostname()} is not listed" in detail(other)
    left = ironclaim("health", "--live", *where)
    assert left.returncode == 1 and "is not listed" in detail(left)
    assert ironclaim("health", "--ready", *where).returncode == 0


@pytest.mark.parametrize(("host", "code"), [("", 0), ("elsewhere", 1)])
def test_a_worker_that_has_stopped_beating_and_one_of_another_host_do_not_count(queue: Queue, host: str, code: int) -> None:
    about = json.dumps({"name": "w1", "host": host or socket.gethostname(), "pid": 7})

    def beat(number: int, ttl_ms: int) -> None:
        until_ms = queue.driver.server_now_ms() + ttl_ms
        queue.driver.run(queue.model.call(Beat("a" * 16, number, ttl_ms, until_ms, 9000, 1000, about)))

    beat(1, 600_000)
    assert ironclaim("health", "--live", *at(queue.url)).returncode == code
    beat(2, 100)
    waiting.wait_until(lambda: not queue.workers.list()[0].alive, "its beats have run out")
    assert ironclaim("health", "--live", *at(queue.url)).returncode == 1


@pytest.mark.slow
def test_a_server_that_is_away_is_not_ready_and_says_nothing_against_a_worker(tmp_path: Path) -> None:
    """A worker outlives an outage with what it has in hand; one that is started anew for it would not."""
    nobody = ("--queue", "mails", "--url", f"redis://127.0.0.1:{testing.free_port()}", *PATIENT, "--json")
    ready, live, both = probes(tmp_path, ("--ready", *nobody), ("--live", *nobody), nobody)
    assert ready.returncode == 1 and live.returncode == 0 and results(json.loads(live.stdout)) == {"worker": "unknown"}
    assert both.returncode == 1 and results(json.loads(both.stdout)) == {"server": "failed", "worker": "unknown"}


@pytest.mark.slow
def test_a_server_that_hangs_is_told_in_bounded_time(server: testing.EmbeddedServer, tmp_path: Path) -> None:
    arguments = ("--queue", "mails", "--url", server.url, *PATIENT, "--json")
    assert probe(tmp_path, "--ready", *arguments).returncode == 0
    os.kill(server.pid, signal.SIGSTOP)
    try:
        ready, live = probes(tmp_path, ("--ready", *arguments), ("--live", *arguments))
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert (ready.returncode, results(json.loads(ready.stdout))) == (1, {"server": "failed"})
    assert (live.returncode, results(json.loads(live.stdout))) == (0, {"worker": "unknown"})


def test_a_server_that_may_lose_jobs_is_not_ready(server: testing.EmbeddedServer) -> None:
    with producing.raw_client(server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    done = ironclaim("health", "--ready", *at(server.url))
    assert done.returncode == 1 and "maxmemory_policy" in detail(done)


@pytest.mark.slow
def test_the_objects_that_a_worker_is_started_with_say_which_queues(ironclaim_url: str, tmp_path: Path) -> None:
    (tmp_path / "probed.py").write_text(PROBED)
    with Queue("mails", url=ironclaim_url, prefix="shop") as queue, working(queue):
        done = probe(tmp_path, "probed:queue", *PATIENT, SHOP_URL=ironclaim_url)
        assert (done.returncode, done.stderr) == (0, "") and "mails  worker  ok" in done.stdout
    assert probe(tmp_path, "probed:queue", "--live", *PATIENT, SHOP_URL=ironclaim_url).returncode == 1
    refused = probe(tmp_path, "probed:queue", *PATIENT, SHOP_URL=ironclaim_url, IRONCLAIM_PREFIX="other")
    assert refused.returncode == 2 and refused.stderr.startswith("ironclaim: IRONCLAIM_PREFIX: 'other'")


def test_each_queue_of_a_group_has_its_checks(ironclaim_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    queues = f"mails, bills = [Queue(name, url={ironclaim_url!r}) for name in ('mails', 'bills')]\n"
    jobs = "for queue in (mails, bills):\n    queue.job('send')(lambda: None)\ngroup = WorkerGroup([mails, bills])\n"
    (tmp_path / "grouped_for_health.py").write_text(f"from engine import Queue, WorkerGroup\n{queues}{jobs}")
    for objects in (("grouped_for_health:group",), ("grouped_for_health:mails", "grouped_for_health:bills")):
        assert [check["queue"] for check in said("health", *objects, "--ready", *PATIENT)["checks"]] == ["mails", "bills"]


def test_a_module_that_hangs_ends_in_bounded_time_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text("import threading\nthreading.Event().wait()\n")
    done = probe(tmp_path, "hanging:queue", "--live", "--timeout", "600ms")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "ironclaim: health: no answer in 0.6 s\n")
