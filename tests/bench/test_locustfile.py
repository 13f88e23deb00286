"""The locustfile with the real Locust, a real server and real worker processes: what it sends is what its history says."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

import engine
from engine.testing import EmbeddedServer, free_port
from tests.bench.real_parts import Page, Processes, enqueued_items, enqueues, jobs_of, rows_of, schedule_kept, wait_until
from tests.engine.helpers.relay import bound

pytestmark = pytest.mark.slow

MS = 1_000_000
HEADLESS = ("--headless", "--only-summary", "-u", "4")


def test_headless_run_sends_the_plan_and_every_job_ends(server: EmbeddedServer, processes: Processes, tmp_path: Path) -> None:
    rate_per_s, history = 150.0, tmp_path / "producer-1.jsonl"
    worker = processes.worker(server.url)
    locust = processes.locust(*HEADLESS, "--host", server.url, "--seed=3", "--rate", str(rate_per_s), "--history", str(history))
    wait_until(lambda: len(enqueues(history)) > 150, "150 sends")
    told_ns = time.monotonic_ns()
    # 1: a busy machine made it drop jobs. They are counted, and then the plan is what was sent and what was dropped.
    processes.stop(locust, 0, 1)

    rows = rows_of(history)
    assert (rows[0]["kind"], rows[0]["role"], rows[0]["proc"]) == ("open", "producer", "producer-1")
    assert (rows[-1]["kind"], rows[-1]["rows"]) == ("close", len(rows))
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    done = enqueues(history)
    # A job whose parent was dropped, or is on its way, is refused.
    assert {row["type"] for row in done} <= {"ok", "fail"}
    assert all(row["items"][0]["needs"] and row["result"] == "orphan" for row in done if row["type"] == "fail")
    assert len(done) == len([row for row in rows_of(history, "operation") if row["type"] == "invoke"])
    plan, next_ns = schedule_kept(history, seed=3, rate_per_s=rate_per_s)
    # It went on to the end.
    assert next_ns > told_ns

    items = enqueued_items(done)
    # The others met the unique key of one that had not ended.
    created = {item["job"] for item in items if item["result"] in ("created", "repeated")}
    away = [item for item in items if item["job"] not in created]
    assert all(item["result"] == "orphan" or item["holder"] in created for item in away)
    plan = [job for job in plan if job.id in created]
    with engine.Queue("bench", url=server.url) as queue:
        wait_until(lambda: (now := queue.counts()).finished + now.dead == len(plan), "every job finished or dead")
        assert queue.counts().dead == sum(job.fail_first == job.attempts for job in plan)
    processes.stop(worker, log="worker-1.log")
    effects = jobs_of(rows_of(tmp_path / "worker-1.sink.jsonl", "effect"))
    assert sorted(effects) == sorted(job.id for job in plan if job.fail_first < job.attempts)


def test_a_stalled_server_is_counted_and_not_hidden(server: EmbeddedServer, processes: Processes, tmp_path: Path) -> None:
    history = tmp_path / "producer-1.jsonl"
    locust = processes.locust(*HEADLESS, "--host", server.url, "--rate", "150", "--history", str(history))
    wait_until(lambda: len(enqueues(history)) > 50, "50 jobs sent")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        drops = wait_until(lambda: rows_of(history, "drop"), "a dropped job")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    last = rows_of(history)[-1]["t_ns"]
    wait_until(lambda: any(row["intended_ns"] > last and row["type"] == "ok" for row in enqueues(history)), "sending again")
    processes.stop(locust, 1)

    assert rows_of(history)[-1]["kind"] == "close"
    assert all(row["count"] == 1 and row["intended_ns"] < row["t_ns"] for row in drops)
    # every job of the schedule up to the end was either sent or counted as dropped, and none of them twice
    dropped = [row["detail"].split(":")[0] for row in rows_of(history, "drop")]
    sent = jobs_of(enqueues(history))
    assert sorted(sent + dropped) == sorted(f"b1-{index}" for index in range(len(sent) + len(dropped)))
    output = processes.output()
    assert "not sent: " in output and "Traceback" not in output
    # whoever was sent during the stall waited for the answer, and the latency from the intended instant shows it
    assert max(row["done_ns"] - row["intended_ns"] for row in enqueues(history)) > 1000 * MS


def test_two_processes_share_one_schedule(server: EmbeddedServer, processes: Processes, tmp_path: Path) -> None:
    history = tmp_path / "producer-1.jsonl"
    locust = processes.locust(*HEADLESS, "--processes", "2", "--host", server.url, "--rate", "60", "--history", str(history))
    other = tmp_path / "producer-1-2.jsonl"
    wait_until(lambda: all(file.exists() and len(enqueues(file)) > 20 for file in (history, other)), "both send")
    # 1: a busy machine made it drop jobs; which process a job belongs to is the same then.
    processes.stop(locust, 0, 1)
    first, second = jobs_of(enqueues(history)), jobs_of(enqueues(other))
    assert {int(job.split("-")[1]) % 2 for job in first} == {0}
    assert ({int(job.split("-")[1]) % 2 for job in second}, rows_of(other)[-1]["kind"]) == ({1}, "close")


def test_fewer_users_than_processes_is_refused(server: EmbeddedServer, processes: Processes) -> None:
    locust = processes.locust("--headless", "-u", "1", "--processes", "2", "-t", "5s", "--host", server.url)
    assert locust.wait(timeout=120) == 2
    assert "users: 1 is fewer than the 2 Locust processes" in processes.output()


BAD_OPTIONS = [
    (("--history", "{folder}/there.jsonl"), "history: there.jsonl exists already"),
    (("--rate", "0"), "rate_per_s: 0.0 is not a number from 0.1 to 10000"),
    *((("--seed", "-1"), "seed: -1 is not a whole number from 0 to"), (("--id-prefix", "two words"), "id_prefix: 'two words'")),
    *((("--queue", "a{b}"), "a{b}"), (("--rate", "fast"), "invalid float value: 'fast'")),
]


@pytest.mark.parametrize(("arguments", "line"), BAD_OPTIONS)
def test_bad_options_are_one_line(server: EmbeddedServer, processes: Processes, arguments: tuple[str, ...], line: str) -> None:
    assert line in processes.refused(("--headless", "--host", server.url, *arguments), processes.locust)


def test_an_unreachable_server_is_failures_and_no_crash(processes: Processes) -> None:
    # Bound, so that no other server gets the port meanwhile; nobody listens at it.
    with bound(0) as held:
        host = f"redis://127.0.0.1:{held.getsockname()[1]}"
        locust = processes.locust("--headless", "-u", "4", "--host", host, "--rate", "20")
        # A time to run may be over before a busy machine has sent anything.
        wait_until(lambda: "(100.00%)" in processes.output(), "a failure is counted")
        processes.stop(locust, 1)
    output = processes.output()
    assert "Traceback" not in output and "Error report" in output


def line_with(output: str, start: str) -> str:
    return next((line for line in output.splitlines() if line.startswith(start)), "")


def test_by_hand_with_the_page_and_a_server_of_its_own(processes: Processes) -> None:
    port = free_port()
    locust = processes.locust("--web-host", "127.0.0.1", "--web-port", str(port))
    page = Page(port)
    wait_until(page.up, "the web page")
    started = "No --host was given, so a server was started: "
    url = line_with(processes.output(), started).removeprefix(started)
    command = line_with(processes.output(), "Start a worker with: ").removeprefix("Start a worker with: python -m ")
    assert f"--queue bench --url {url}" in command
    # the page offers our options, and not those that make no sense there
    assert all(field in page.get("/") for field in ("id_prefix", "seed", "rate"))
    worker = processes.start(*command.split(), log="worker.log")
    with engine.Queue("bench", url=url) as queue:
        for jobs in (100, 200):  # the second start with the same seed must not send the ids of the first again
            assert page.post("/swarm", user_count="3", spawn_rate="3", host=url, seed="5", rate="80")["success"]
            wait_until(lambda least=jobs: queue.counts().finished > least, f"{jobs} jobs finished")
            assert page.total()["num_requests"] > 50 and page.faults() == []
            page.post("/stop")
        wait_until(lambda: (now := queue.counts()).waiting + now.active + now.delayed == 0, "all jobs done")
    processes.stop(worker, log="worker.log")
    processes.stop(locust)
    with engine.Queue("bench", url=url) as gone, pytest.raises(engine.EngineError):
        gone.counts()


def test_a_bad_value_on_the_page_starts_nothing(server: EmbeddedServer, processes: Processes) -> None:
    port = free_port()
    processes.locust("--web-host", "127.0.0.1", "--web-port", str(port), "--host", server.url)
    page = Page(port)
    wait_until(page.up, "the web page")
    page.post("/swarm", user_count="1", spawn_rate="1", host=server.url, rate="0")
    wait_until(lambda: "rate_per_s: 0.0 is not a number from 0.1 to 10000" in processes.output(), "the line that says why")
    assert page.total()["num_requests"] == 0
    # and the next start, with a good value, works
    wait_until(lambda: json.loads(page.get("/stats/requests"))["state"] in {"stopped", "ready"}, "the refused start to end")
    page.post("/swarm", user_count="1", spawn_rate="1", host=server.url, rate="50")
    wait_until(lambda: page.total()["num_requests"] > 10, "requests on the page")
    assert page.faults() == [] and "Traceback" not in processes.output()
