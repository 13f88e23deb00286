"""`ironclaim why`, and what `queues`, `top`, `pause` and `resume` say of what holds jobs back."""

import pytest

from engine import Queue
from tests.engine.command.running import ironclaim, said
from tests.engine.using import Book, at_work, make_worker, wait_until


def test_workers_that_claim_nothing(queue: Queue, at: tuple[str, ...], ironclaim_url: str) -> None:
    queue.enqueue("work", {})
    with at_work(make_worker(queue, Book(), "w1", beat_ms=60_000, sweep_ms=100, gate=lambda: False)):
        wait_until(lambda: said("top", *at, "--count", "1")["kept_back"], "the gate")
        (row,) = said("queues", "--url", ironclaim_url)
        assert (row["workers"], row["kept_back"]) == (1, [{"worker": "w1", "paused": False, "gate_closed": True}])
        assert "w1 gate closed" in ironclaim("queues", "--url", ironclaim_url).stdout
        assert "w1      gate closed" in ironclaim("top", *at, "--count", "1").stdout
        assert "gate closed" in ironclaim("workers", *at).stdout


def test_names_that_no_live_worker_handles_are_told(queue: Queue, at: tuple[str, ...], ironclaim_url: str) -> None:
    server = ("--url", ironclaim_url)
    # Nobody lives: a note at each enqueue would be for everybody who enqueues first.
    assert ironclaim("enqueue", "recipt", *at).stderr == ""
    queue.enqueue("recipt", {}, key="acme")
    assert "no worker of this queue is alive" in ironclaim("queues", *server).stdout
    with at_work(make_worker(queue, Book(), "w1", beat_ms=60_000, sweep_ms=100)):
        wait_until(lambda: said("workers", *at), "the worker")
        for at_number in range(6):
            queue.enqueue(f"x{at_number}", {})
        assert said("queues", *server)[0]["unhandled"] == ["recipt", *(f"x{at_number}" for at_number in range(6))]
        assert "no live worker handles: recipt, x0, x1, x2, x3 and 2 more" in ironclaim("queues", *server).stdout
        screen = ironclaim("top", *at, "--count", "1").stdout
        assert "recipt/acme" in screen and screen.count("a handler: no live worker has one") == 8 and "a worker" not in screen
        assert "unhandled" in screen and "no live worker handles: recipt" in screen
        done = ironclaim("enqueue", "wrok", *at, "--id", "typo")
        assert done.stderr == "ironclaim: note: no live worker handles: wrok, perhaps work\n" and "typo" in done.stdout
        assert (done.returncode, queue.jobs.state("typo")) == (0, "waiting")
        assert ironclaim("enqueue", "work", *at).stderr == ""
        queue.jobs.remove("typo")
        for job in queue.jobs.list("waiting"):
            queue.jobs.cancel(job.id)
        wait_until(lambda: not queue.counts().waiting, "the end of the jobs")
        assert "no live worker" not in ironclaim("queues", *server).stdout + ironclaim("top", *at, "--count", "1").stdout


def test_a_queue_that_does_not_exist_is_not_paused(queue: Queue, at: tuple[str, ...]) -> None:
    done = ironclaim("pause", *at)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ironclaim: there is no queue mails: nothing was ever put into it")
    assert queue.obstacles().pauses == ()
    queue.enqueue("send", {})
    assert said("pause", *at, "--for", "1h")["paused"] == "the whole queue"
    assert [pause.name for pause in queue.obstacles().pauses] == [None]


LOOKS = [
    *(("pause",), ("workers",), ("top", "--count", "1"), ("cron", "list"), ("jobs", "list"), ("jobs", "times")),
    *(("jobs", "history"), ("limits", "list"), ("limits", "clear", "--key", "a"), ("history", "show"), ("history", "off")),
    *(("dead", "by-error"), ("dead", "list"), ("dead", "requeue", "--all"), ("dead", "clear", "--older-than", "0s")),
]


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_queue_that_does_not_exist_is_said_by_who_looks_at_it(queue: Queue, ironclaim_url: str, words: tuple[str, ...]) -> None:
    """The others are told that it has no such job, schedule or pause."""
    queue.enqueue("send", {})
    queue.history.on()
    done = ironclaim(*words, "--queue", "mials", "--url", ironclaim_url)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.startswith("ironclaim: there is no queue mials: ")
    done = ironclaim(*words, "--queue", queue.name, "--url", ironclaim_url, "--prefix", "typo")
    assert done.returncode == 1 and "there is no queue mails under the prefix typo: " in done.stderr
    assert ironclaim(*words, "--queue", queue.name, "--url", ironclaim_url).returncode == 0
