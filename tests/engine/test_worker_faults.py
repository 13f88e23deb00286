"""A worker process that is killed, frozen or cut off from its server: each job ends once, and soon."""

import signal
import time
from typing import Any

import pytest

from engine import Queue
from engine.testing import EmbeddedServer
from tests.engine.using import Relay, Workers, cpu_s, put, raw_client, rows_of, stopped, wait_until

#: Longer than a busy machine stands still: no worker but the one that is harmed loses a lease.
LEASE_MS = 6000
SHORT = ("--lease-ms", str(LEASE_MS), "--sweep-ms", "200")


def hold(queue: Queue, workers: Workers, *jobs: str) -> None:
    for job in jobs:
        queue.enqueue("hold", {"folder": str(workers.folder)}, id=job)


def frozen(queue: Queue, workers: Workers) -> tuple[Any, Any]:
    """A worker that stood still until its job was lost, and the one that runs it now."""
    hold(queue, workers, "a")
    zombie = workers.start(*SHORT)
    wait_until(lambda: workers.marks("start"), "the job runs")
    zombie.send_signal(signal.SIGSTOP)
    other = workers.start(*SHORT, name="worker-2")
    wait_until(lambda: len(workers.marks("start")) == 2, "the job runs elsewhere")
    return zombie, other


def finish_items(workers: Workers, name: str, job: str) -> list[Any]:
    """Result of each answered finish of a job by a worker."""
    rows = rows_of(workers.history(name), "operation", f="finish", type="ok")
    return [item["result"] for row in rows for item in row["items"] if item["job"] == job]


@pytest.mark.slow
def test_after_a_sigkill_another_worker_runs_the_jobs(queue: Queue, workers: Workers) -> None:
    hold(queue, workers, "a", "b", "c")
    victim = workers.start("--concurrency", "3", *SHORT)
    wait_until(lambda: len(workers.marks("start")) == 3 and queue.counts().active == 3, "all three run")
    workers.start("--concurrency", "4", *SHORT, name="worker-2")
    wait_until(lambda: rows_of(workers.history("worker-2"), "operation", f="claim", type="ok"), "the other one works")
    victim.kill()
    assert victim.wait() == -signal.SIGKILL
    workers.open_gate()
    wait_until(lambda: queue.counts().finished == 3, "all are finished")
    assert {mark.job for mark in workers.marks("start") if mark.pid != victim.pid} == {"a", "b", "c"}
    assert rows_of(workers.history())[-1]["kind"] != "close"
    claims = [item for row in rows_of(workers.history("worker-2"), "operation", f="claim", type="ok") for item in row["items"]]
    # An expired lease is a crash of its job, not a failure of its handler.
    told = {item["job"]: (item["crashes"], item["failures"], item["claims"]) for item in claims}
    assert told == dict.fromkeys("abc", (1, 0, 2))


@pytest.mark.slow
@pytest.mark.feature("BQ19", "BQ20", "BL16")
def test_a_frozen_workers_late_finish_is_refused_and_the_job_is_finished_once(queue: Queue, workers: Workers) -> None:
    zombie, other = frozen(queue, workers)
    workers.open_gate(other.pid)
    wait_until(lambda: queue.counts().finished == 1, "it is finished there")
    workers.open_gate(zombie.pid)
    zombie.send_signal(signal.SIGCONT)
    wait_until(lambda: finish_items(workers, "worker-1", "a"), "the late finish is answered")
    assert finish_items(workers, "worker-1", "a") == ["stale"]
    wait_until(lambda: finish_items(workers, "worker-2", "a"), "the finish before it is recorded")
    assert finish_items(workers, "worker-2", "a") == ["ok"]
    first, second = workers.marks("start")
    assert second.fence > first.fence and queue.counts().finished == 1 and queue.counts().active == 0
    assert stopped(zombie) == 0, "it lives on and stops like any other"


@pytest.mark.slow
def test_a_handler_hears_that_its_lease_is_lost(queue: Queue, workers: Workers) -> None:
    zombie, other = frozen(queue, workers)
    zombie.send_signal(signal.SIGCONT)
    wait_until(lambda: "lease with fence" in workers.output(), "the loss is logged")
    workers.open_gate(zombie.pid)
    wait_until(lambda: workers.marks("lost"), "the handler ends knowing it")
    workers.open_gate(other.pid)
    wait_until(lambda: queue.counts().finished == 1, "the other one finishes it")
    assert [mark.pid for mark in workers.marks("end")] == [other.pid]


@pytest.mark.slow
@pytest.mark.feature("BQ21", "BL17")
def test_a_job_longer_than_its_lease_is_renewed(queue: Queue, workers: Workers) -> None:
    hold(queue, workers, "a")
    workers.start("--lease-ms", str(LEASE_MS), "--sweep-ms", "50")
    wait_until(lambda: len(rows_of(workers.history(), "operation", f="extend", type="ok")) >= 4, "renewals beyond one lease")
    workers.open_gate()
    wait_until(lambda: queue.counts().finished == 1, "it is finished")
    assert len(workers.marks("start")) == 1
    rows = rows_of(workers.history(), "operation", f="extend", type="ok")
    # On a busy machine a renewal may come too late to count; the next one is in time.
    assert {item["result"] for row in rows for item in row["items"]} - {"void"} == {"ok"}


@pytest.mark.slow
@pytest.mark.feature("BN30", "BL33")
def test_a_worker_outlives_an_outage_idly(queue: Queue, workers: Workers, ironclaim_server: EmbeddedServer) -> None:
    with Relay(ironclaim_server.port) as relay:
        workers.url = relay.url
        worker = workers.start()
        queue.enqueue("mark", {"folder": str(workers.folder)}, id="before")
        wait_until(lambda: workers.marks("ran", "before"), "it works")
        relay.down()
        started_s, used_s = time.monotonic(), cpu_s(worker.pid)
        queue.enqueue("mark", {"folder": str(workers.folder)}, id="after")
        wait_until(lambda: time.monotonic() - started_s > 3, "the outage lasts")
        assert cpu_s(worker.pid) - used_s < 1.5, "half of a core is no waiting"
        relay.up()
        wait_until(lambda: workers.marks("ran", "after"), "it works again")
        assert stopped(worker) == 0


def test_lost_replies_and_scripts_double_nothing(queue: Queue, workers: Workers, ironclaim_server: EmbeddedServer) -> None:
    jobs = [f"j{number}" for number in range(40)]
    put(queue, workers, "mark", *jobs)
    with Relay(ironclaim_server.port) as relay:
        workers.url = relay.url
        for _ in range(30):
            relay.next("pass", "lose_reply", "lose_request")
        worker = workers.start("--concurrency", "3", "--sweep-ms", "100")
        wait_until(lambda: queue.counts().finished == 40, "all are finished")
        for number in range(3):
            with raw_client(queue.url) as client:
                client.script_flush()
            put(queue, workers, "mark", f"late{number}")
            wait_until(lambda number=number: queue.counts().finished == 41 + number, f"job {number} after a flush ran")
        assert stopped(worker) == 0
    assert sorted(mark.job for mark in workers.marks("ran")) == sorted([*jobs, "late0", "late1", "late2"])


@pytest.mark.slow
def test_one_unreadable_job_is_buried_and_the_others_run(queue: Queue, workers: Workers, client: Any) -> None:
    payload = {"folder": str(workers.folder)}
    queue.enqueue("mark", payload, id="bad", headers={"a": "b"})
    queue.enqueue("mark", payload, id="good")
    client.setrange(queue.model.keys.job("bad"), 60 + len("mainmainmark") + 2, "nonsense")
    workers.start("--sweep-ms", "100")
    wait_until(lambda: queue.counts().dead == 1 and queue.counts().finished == 1, "one is buried, one is finished")
    assert [mark.job for mark in workers.marks("ran")] == ["good"]
