"""Rule 26: a running handler hears at once that its job was cancelled, wherever it runs, and is refused afterwards. Where
the control connection is away, the next renewal tells it."""

import asyncio
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from engine import Handlers, Job, Queue, Worker
from engine.worker import connections
from engine.worker.machine.claiming import Allowance
from tests.engine.using import at_work, read_control, seen, some_handlers, wait_until

#: Neither a renewal nor a heartbeat comes while a test waits: what is heard was told over the control connection.
RARELY: dict[str, Any] = {"lease_ms": 3_600_000, "beat_ms": 3_600_000}


def holding() -> tuple[Handlers, list[str], threading.Event]:
    """Handlers that note what they run and wait, what has started, and what lets them go."""
    handlers, started, go = Handlers(), list[str](), threading.Event()

    @handlers("work")
    def work(job: Job) -> None:
        started.append(job.id)
        go.wait(120)

    return handlers, started, go


def listening(client: Any, queue: Queue, worker: str) -> None:
    """Wait until the worker's control connection reads."""
    channel = f"{queue.prefix}:{{{queue.name}}}:control:{worker}"
    wait_until(lambda: client.pubsub_numsub(channel)[0][1] == 1, "the control connection")


def scripts_called(client: Any) -> int:
    return client.info("commandstats")["cmdstat_evalsha"]["calls"]


@pytest.mark.feature("MQ32")
@pytest.mark.parametrize("inline", [False, True])
def test_rule_26_a_handler_in_a_thread_reads_that_its_job_was_cancelled(queue: Queue, client: Any, inline: bool) -> None:
    handlers, started, heard = Handlers(), threading.Event(), list[tuple[bool, bool]]()

    @handlers("work", inline=inline)
    def work(job: Job) -> None:
        started.set()
        job.lease_lost.wait(120)
        heard.append((job.cancelled, job.cancelled_by_hand))

    queue.enqueue("work", {}, id="j")
    with at_work(Worker(queue, handlers, name="w", **RARELY, concurrency=1), at_once=True):
        listening(client, queue, "w")
        assert started.wait(120) and queue.jobs.cancel("j").state == "active"
        wait_until(lambda: heard, "the handler has heard of it")
        assert heard == [(True, True)]
        wait_until(lambda: queue.counts().active == 0, "the end")
    counts = queue.counts()
    assert (counts.finished, counts.dead, counts.waiting, queue.jobs.state("j")) == (0, 0, 0, "cancelled")


@pytest.mark.feature("MQ32")
@pytest.mark.parametrize("timeout_ms", [0, 60_000])
def test_rule_26_a_coroutine_is_cancelled_and_cleans_up(queue: Queue, client: Any, timeout_ms: int, caplog: Any) -> None:
    handlers, started, said = Handlers(), threading.Event(), list[str]()

    @handlers("work")
    async def work(job: Job) -> None:
        started.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            said.append(f"cancelled {job.cancelled_by_hand}")
            await asyncio.sleep(0.02)
            said.append("cleaned up")
            raise

    queue.enqueue("work", {}, id="j", timeout_ms=timeout_ms, attempts=5)
    caplog.set_level(logging.INFO, "ironclaim.worker")
    with at_work(Worker(queue, handlers, name="w", **RARELY, concurrency=1), at_once=True):
        listening(client, queue, "w")
        assert started.wait(120)
        queue.jobs.cancel("j")
        wait_until(lambda: len(said) == 2, "the coroutine has cleaned up")
        assert said == ["cancelled True", "cleaned up"]
        # Its place is free again.
        started.clear()
        queue.enqueue("work", {})
        assert started.wait(120)
    ended = [record for record in caplog.records if "it was cancelled" in record.getMessage()]
    assert [(record.levelname, vars(record)["job_id"]) for record in ended] == [("INFO", "j")]
    assert queue.jobs.state("j") == "cancelled" and queue.counts().dead == 0


def in_a_child(job: Job) -> None:
    """Tells its process, and never ends."""
    Path(job.payload["tells"]).write_text(str(os.getpid()))
    while True:
        time.sleep(60)


@pytest.mark.slow
@pytest.mark.feature("MQ32")
def test_rule_26_a_child_process_is_killed_and_the_next_job_has_another(
    queue: Queue, client: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handlers, pids = some_handlers(in_a_child), [tmp_path / "first", tmp_path / "second"]
    for number, tells in enumerate(pids):
        queue.enqueue("work", {"tells": str(tells)}, id=f"j{number}")
    caplog.set_level(logging.INFO, "ironclaim.worker")
    with at_work(Worker(queue, handlers, name="w", **RARELY, processes=1, prefetch=0), at_once=True):
        listening(client, queue, "w")
        wait_until(lambda: pids[0].exists() and pids[0].read_text(), "the first run")
        first = int(pids[0].read_text())
        queue.jobs.cancel("j0")
        wait_until(lambda: not Path(f"/proc/{first}").exists(), "the end of the process")
        wait_until(lambda: pids[1].exists() and pids[1].read_text(), "the second run")
        assert int(pids[1].read_text()) != first
    assert (queue.jobs.state("j0"), queue.counts().dead) == ("cancelled", 0)
    assert any("it was cancelled" in record.getMessage() for record in caplog.records)


def test_rule_26_a_batch_goes_on_without_the_job_that_was_cancelled(queue: Queue, client: Any) -> None:
    handlers, started, said = Handlers(), threading.Event(), list[list[str]]()

    @handlers("work", batch=3)
    async def work(jobs: list[Job]) -> None:
        started.set()
        await seen(lambda: any(job.cancelled for job in jobs))
        said.append([job.id for job in jobs if job.cancelled])

    queue.enqueue_many([{"name": "work", "payload": {}, "id": job} for job in ("a", "b", "c")])
    with at_work(Worker(queue, handlers, name="w", **RARELY, concurrency=1), at_once=True):
        listening(client, queue, "w")
        assert started.wait(120)
        queue.jobs.cancel("b")
        wait_until(lambda: said, "the handler has heard of it")
        wait_until(lambda: queue.counts().finished == 2, "the end of the others")
    assert said == [["b"]]
    assert [queue.jobs.state(job) for job in ("a", "b", "c")] == ["finished", "cancelled", "finished"]


def test_rule_26_a_job_that_was_taken_ahead_does_not_start(queue: Queue, client: Any, caplog: Any, monkeypatch: Any) -> None:
    handlers, started, go = holding()
    # It does not go back after a moment, as what waits behind a slow handler does.
    monkeypatch.setattr("engine.worker.machine.machine.WAIT_MS_MAX", 3_600_000)
    for number in range(3):
        queue.enqueue("work", {}, id=f"j{number}")
    with at_work(Worker(queue, handlers, name="w", **RARELY, concurrency=1), at_once=True):
        listening(client, queue, "w")
        wait_until(lambda: started and queue.counts().active > 1, "one that runs and one that was taken ahead")
        ahead = next(job for job in ("j0", "j1", "j2") if job not in started and queue.jobs.state(job) == "active")
        assert queue.jobs.cancel(ahead).done
        wait_until(lambda: f"job {ahead}: lease" in caplog.text, "the worker has heard of it")
        go.set()
        wait_until(lambda: queue.counts().finished == 2, "the end of the others")
    assert ahead not in started


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_rule_26_where_the_connection_is_refused_the_renewal_tells(
    queue: Queue, client: Any, ironclaim_url: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a server whose user may use no channels: nothing fails, the log says it once, and the renewal tells."""
    handlers, started, heard = Handlers(), threading.Event(), list[bool]()

    def plain(job: Job) -> None:
        started.set()
        job.lease_lost.wait(120)
        heard.append(job.cancelled_by_hand)

    async def coroutine(job: Job) -> None:
        started.set()
        try:
            await asyncio.sleep(30)
        finally:
            heard.append(job.cancelled_by_hand)

    handlers("work")(plain if kind == "thread" else coroutine)
    client.execute_command("ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "resetchannels")
    try:
        mute = Queue(queue.name, url=ironclaim_url.replace("://", "://mute:pw@"), prefix=queue.prefix)
        mute.enqueue("work", {}, id="j")
        # With a lease so long it renews at each beat.
        with at_work(Worker(mute, handlers, lease_ms=600_000, beat_ms=1_000), at_once=True):
            assert started.wait(120)
            refused = "control connection refused"
            wait_until(lambda: refused in caplog.text, "what the log says")
            assert mute.jobs.cancel("j").done
            wait_until(lambda: heard, "the handler has heard of it")
            tries = client.info("commandstats")["cmdstat_subscribe"]["rejected_calls"]
            wait_until(lambda: client.info("commandstats")["cmdstat_subscribe"]["rejected_calls"] > tries, "another try")
        assert heard == [True] and caplog.text.count(refused) == 1
    finally:
        client.execute_command("ACL", "DELUSER", "mute")


def test_rule_26_a_missed_cancel_is_told_later(queue: Queue, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection renews the leases when it begins to read, so a gap costs no longer than itself."""
    handlers, started, heard = Handlers(), threading.Event(), list[bool]()

    @handlers("work")
    def work(job: Job) -> None:
        started.set()
        job.lease_lost.wait(120)
        heard.append(job.cancelled_by_hand)

    hushed = threading.Event()
    monkeypatch.setattr(connections, "read_control", lambda message: None if hushed.is_set() else read_control(message))
    queue.enqueue("work", {}, id="j")
    with at_work(Worker(queue, handlers, name="w", **RARELY), at_once=True):
        listening(client, queue, "w")
        assert started.wait(120)
        hushed.set()
        queue.jobs.cancel("j")
        assert not heard
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        wait_until(lambda: heard, "the handler has heard of it")
    assert heard == [True]


def test_a_worker_at_capacity_hears_its_pause_at_once(queue: Queue, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for no marker, and neither a sweep nor a heartbeat is due for long: rule 22."""
    handlers, started, go = holding()
    # That the server was asked says nothing of the answer: a claim could still go with the end of the first.
    paused, hear = list[bool](), Allowance.learned

    def heard(self: Allowance, *told: Any) -> None:
        hear(self, *told)
        paused.append(self.paused(time.monotonic_ns()))

    monkeypatch.setattr(Allowance, "learned", heard)
    queue.enqueue("work", {}, id="one")
    worker = Worker(queue, handlers, name="w", **RARELY, sweep_ms=900_000, concurrency=1, prefetch=0)
    with at_work(worker, at_once=True):
        listening(client, queue, "w")
        wait_until(lambda: started, "the first run")
        queue.enqueue("work", {}, id="two")
        queue.workers.pause("w")
        wait_until(lambda: paused[-1:] == [True], "the worker hears of its pause")
        go.set()
        wait_until(lambda: queue.counts().finished == 1, "the end of the first")
        assert started == ["one"] and queue.jobs.state("two") == "waiting"
        queue.workers.resume("w")
        wait_until(lambda: len(started) == 2, "the second run")


@pytest.mark.slow
def test_an_idle_worker_sends_nothing_on_its_control_connection_a_busy_one_checks_it(queue: Queue, client: Any) -> None:
    handlers, go = Handlers(), threading.Event()
    handlers("work")(lambda job: go.wait(120) and None)

    def sent() -> tuple[int, int]:
        stats = client.info("commandstats")
        return tuple(stats.get(f"cmdstat_{command}", {}).get("calls", 0) for command in ("ping", "subscribe"))

    with at_work(Worker(queue, handlers, name="w", lease_ms=6_000, sweep_ms=50), at_once=True):
        listening(client, queue, "w")
        before, calls = sent(), scripts_called(client)
        # Several times as long as the connection is looked at.
        wait_until(lambda: scripts_called(client) > calls + 10, "sweeps")
        assert sent() == before
        queue.enqueue("work", {})
        wait_until(lambda: sent()[0] > before[0] + 1, "two pings")
        assert sent()[1] == before[1]
        go.set()
