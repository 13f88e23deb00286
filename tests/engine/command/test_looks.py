"""The commands that look at queues, jobs, dead jobs, schedules and workers, on queues with something in them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Handlers, Job, Queue, Worker
from tests.engine.command.running import ROOT, ironclaim, said


@pytest.fixture
def queue(ironclaim_url: str) -> Iterator[Queue]:
    with Queue("mails", url=ironclaim_url) as made:
        yield made


@pytest.fixture
def at(ironclaim_url: str) -> tuple[str, ...]:
    return ("--queue", "mails", "--url", ironclaim_url)


def kill_some(queue: Queue, *jobs: str) -> None:
    """Jobs that fail for good."""
    handlers = Handlers()

    @handlers("send")
    def send(job: Job) -> None:
        raise OSError(f"no route for {job.id}")

    for job in jobs:
        queue.enqueue("send", {"to": job}, id=job, attempts=1)
    Worker(queue, handlers, sweep_ms=50).run(burst=True)


@pytest.mark.feature("MQ37")
def test_jobs_of_a_state_and_one_of_them(queue: Queue, at: tuple[str, ...]) -> None:
    for number in range(3):
        queue.enqueue("send", {"to": "ada", "n": number}, id=f"j{number}", priority=7, key="acme", headers={"trace": "t1"})
    queue.enqueue("send", {}, id="later", delay_ms=3_600_000)
    rows = said("jobs", "list", *at, "--limit", "2", "--offset", "1")
    assert [(row["job"], row["name"], row["state"], row["priority"], row["key"]) for row in rows] == [
        ("j1", "send", "waiting", 7, "acme"),
        ("j2", "send", "waiting", 7, "acme"),
    ]
    assert [row["job"] for row in said("jobs", "list", "--state", "delayed", *at)] == ["later"]
    shown = said("jobs", "show", "j1", *at)
    assert (shown["payload"], shown["headers"], shown["claims"]) == ({"to": "ada", "n": 1}, {"trace": "t1"}, 0)
    assert "payload    {" in ironclaim("jobs", "show", "j1", *at).stdout
    assert "job    name  state" in ironclaim("jobs", "list", "--state", "delayed", *at).stdout
    assert ironclaim("jobs", "list", "--state", "active", *at).stdout == "no job is active\n"


def test_single_jobs_are_run_cancelled_and_removed(queue: Queue, at: tuple[str, ...]) -> None:
    for job in ("a", "b", "c"):
        queue.enqueue("send", {}, id=job, delay_ms=3_600_000)
    assert said("jobs", "run-now", "a", *at)["result"] == "done"
    assert said("jobs", "cancel", "b", *at)["result"] == "done"
    assert said("jobs", "remove", "c", *at)["result"] == "done"
    assert [(counts.waiting, counts.delayed) for counts in [queue.counts()]] == [(1, 0)]
    again = ironclaim("jobs", "run-now", "a", *at)
    assert (again.returncode, again.stdout) == (1, "") and "job a stays as it is: it is waiting" in again.stderr
    gone = ironclaim("jobs", "show", "nobody", *at)
    assert (gone.returncode, gone.stderr) == (1, "ironclaim: queue mails knows no job nobody\n")


@pytest.mark.feature("BQ30", "MQ14")
def test_dead_jobs_are_listed_requeued_discarded_and_cleared(queue: Queue, at: tuple[str, ...]) -> None:
    kill_some(queue, "a", "b", "c")
    rows = said("dead", "list", *at)
    assert {row["job"]: row["error"] for row in rows} == {job: f"OSError: no route for {job}" for job in ("a", "b", "c")}
    assert said("jobs", "show", "a", *at)["errors"][0]["trace"].count("no route") >= 1
    assert said("dead", "requeue", "a", *at)["result"] == "done"
    assert said("dead", "discard", "b", *at)["result"] == "done"
    assert (queue.counts().waiting, queue.counts().dead) == (1, 1)
    assert said("dead", "requeue", "--all", "--name", "other", *at)["requeued"] == 0
    assert said("dead", "clear", "--older-than", "1h", *at)["cleared"] == 0
    assert said("dead", "clear", "--older-than", "0s", *at)["cleared"] == 1
    assert ironclaim("dead", "list", *at).stdout == "no job is dead\n"
    assert ironclaim("dead", "requeue", *at).returncode == 2


def test_a_job_that_is_changed_is_told_with_what_was_done(queue: Queue, at: tuple[str, ...]) -> None:
    kill_some(queue, "a", "b")
    assert ironclaim("dead", "requeue", "a", *at).stdout == "requeued  a\nqueue     mails\nwas       dead\n"
    assert ironclaim("dead", "discard", "b", *at).stdout == "discarded  b\nqueue      mails\nwas        dead\n"
    assert ironclaim("jobs", "cancel", "a", *at).stdout == "cancelled  a\nqueue      mails\nwas        waiting\n"
    queue.enqueue("send", {}, id="later", delay_ms=60_000)
    assert ironclaim("jobs", "run-now", "later", *at).stdout == "claimable  later\nqueue      mails\nwas        delayed\n"
    assert ironclaim("jobs", "remove", "later", *at).stdout == "removed  later\nqueue    mails\nwas      waiting\n"


def test_schedules(queue: Queue, at: tuple[str, ...]) -> None:
    queue.schedules.put("nightly", "report", {"day": 1}, cron="5 3 * * *", zone="Europe/Berlin")
    (row,) = said("cron", "list", *at)
    assert (row["schedule"], row["job"], row["ticks"], row["enabled"]) == ("nightly", "report", "5 3 * * * Europe/Berlin", True)
    said("cron", "disable", "nightly", *at)
    assert said("cron", "list", *at)[0]["enabled"] is False
    said("cron", "enable", "nightly", *at)
    said("cron", "run", "nightly", *at)
    assert queue.counts().waiting == 1
    said("cron", "remove", "nightly", *at)
    assert said("cron", "list", *at) == []
    gone = ironclaim("cron", "remove", "nightly", *at)
    assert (gone.returncode, gone.stderr) == (1, "ironclaim: no schedule nightly in queue mails\n")


@pytest.mark.feature("MQ22")
def test_queues_and_workers(queue: Queue, at: tuple[str, ...], ironclaim_url: str) -> None:
    queue.enqueue("send", {})
    with Queue("other", url=ironclaim_url) as other:
        other.enqueue("send", {}, delay_ms=60_000)
    rows = {row["queue"]: row for row in said("queues", "--url", ironclaim_url)}
    assert {name: (row["waiting"], row["delayed"]) for name, row in rows.items()} == {"mails": (1, 0), "other": (0, 1)}
    assert ironclaim("workers", *at).stdout == "no workers\n"
    program = (
        "import sys, time; from engine import Handlers, Queue, Worker\n"
        "handlers = Handlers()\n"
        "handlers('other')(lambda job: None)\n"
        "Worker(Queue('mails', url=sys.argv[1]), handlers, name='w1').run()\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", program, ironclaim_url], cwd=ROOT)
    try:
        rows = until(lambda: said("workers", *at))
        assert [(row["name"], row["pid"], row["alive"], row["handlers"]) for row in rows] == [("w1", worker.pid, True, ["other"])]
        assert json.dumps(worker.pid) in ironclaim("workers", *at).stdout
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
    assert said("workers", *at) == []


def until(look: Any) -> Any:
    """The first look that shows something: each takes a process, so that this is no busy wait."""
    for _ in range(100):
        if found := look():
            return found
    raise AssertionError("nothing came")
