"""Inline handlers in a real worker: one after the other in one thread, and none of the rules bends for them."""

import os
import signal
import threading
from contextlib import closing
from typing import Any

import pytest

from engine import Handlers, Job, Malformed, Queue, Worker
from engine.handlers import Fault
from engine.worker.handler_pool import HandlerPool, Place
from engine.worker.process import Threads
from engine.worker.runs import LoopThread
from tests.engine.helpers.machine import Machine
from tests.engine.helpers.schema import checked_rows
from tests.engine.using import LeasedJob, Workers, ids_of, put, raises, refused, rows_of, run_of, some_handlers, wait_until

INLINE = "tests.engine.helpers.inline_handlers:handlers"


def start(workers: Workers, *options: str, name: str = "worker-1") -> Any:
    return workers.start("--sweep-ms", "100", *options, name=name, handlers=INLINE)


def drained(queue: Queue, handlers: Handlers, **settings: Any) -> None:
    Worker(queue, handlers, **dict[str, Any](sweep_ms=50) | settings).run(burst=True)


def test_inline_handlers_run_in_the_order_of_the_claims_and_one_at_a_time(queue: Queue) -> None:
    handlers, ran, running, most = Handlers(), list[int](), list[int](), list[int]()

    @handlers("work", inline=True)
    def work(job: Job) -> None:
        running.append(1)
        most.append(len(running))
        ran.append(job.payload)
        running.pop()

    queue.enqueue_many([{"name": "work", "payload": number} for number in range(1000)])
    drained(queue, handlers)
    assert (ran, max(most)) == (list(range(1000)), 1)
    counts = queue.counts()
    assert (counts.finished, counts.active, counts.waiting) == (1000, 0, 0)


def test_they_travel_in_batches(queue: Queue, client: Any) -> None:
    """Rule 21: short handlers fill 50 ms with many jobs, and their ends wait for company."""
    queue.enqueue_many([{"name": "work", "payload": number} for number in range(500)])
    client.config_resetstat()
    drained(queue, some_handlers(inline=True), sweep_ms=1_000)
    # One a job were 500; on a slow machine short handlers take longer, so that fewer fill 50 ms.
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] < 250


def test_kinds_mix_in_one_worker(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "hold", "slow")
    worker = start(workers, "--burst", "--concurrency", "2")
    wait_until(lambda: workers.marks("start", "slow"), "an inline handler runs")
    put(queue, workers, "pooled", *(f"p{number}" for number in range(10)))
    wait_until(lambda: len(workers.marks()) == 11, "the pool goes on beside it")
    put(queue, workers, "quick", "q1", "q2")
    workers.open_gate()
    assert worker.wait(120) == 0
    assert {mark.word for mark in workers.marks() if mark.job.startswith("p")} <= {"handler-0", "handler-1"}
    assert len(workers.marks("ran")) == 2 and queue.counts().finished == 13
    rows = checked_rows(workers.history())
    assert len([row for row in rows if row.get("f") == "handle" and row["type"] == "ok"]) == 13


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hold", "spin"])
def test_rule_14_a_busy_inline_handler_keeps_its_lease(queue: Queue, workers: Workers, name: str) -> None:
    """Longer than its lease, whether it waits or keeps the interpreter busy."""
    put(queue, workers, name, "a")
    worker = start(workers, "--burst", "--lease-ms", "6000")
    # A renewal each third of a lease, which is longer than a busy machine stands still.
    wait_until(lambda: len(rows_of(workers.history(), "operation", f="extend", type="ok")) >= 4, "renewals beyond one lease")
    workers.open_gate()
    assert worker.wait(120) == 0 and len(workers.marks("start")) == len(workers.marks("end")) == 1
    assert queue.counts().finished == 1 and "lease with fence" not in workers.output()


def test_what_a_handler_raises_in_the_middle_of_a_batch_is_its_own_failed_run(queue: Queue, workers: Workers) -> None:
    raised = {"value": "ValueError: no", "exit": "SystemExit: 3", "interrupt": "KeyboardInterrupt: "}
    for what in raised:
        put(queue, workers, "quick", *(f"{what}-{number}" for number in range(20)))
        put(queue, workers, "quick", what, what=what, attempts=2, backoff_ms=0)
    put(queue, workers, "quick", *(f"last-{number}" for number in range(20)))
    assert start(workers, "--burst").wait(120) == 0
    assert {what: run_of(queue, what).get("error", "") for what in raised} == raised
    assert [len(workers.marks("ran", what)) for what in raised] == [2, 2, 2]
    assert sorted(ids_of(queue, "dead")) == sorted(raised)
    assert len(workers.marks("ran")) == 86 and queue.counts().finished == 80


@pytest.mark.slow
def test_a_stop_gives_back_what_has_not_started_uncharged(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "quick", *(f"warm{number}" for number in range(100)))
    worker = start(workers)
    wait_until(lambda: queue.counts().finished == 100, "it has learned that its handlers are quick")
    put(queue, workers, "hold", "slow")
    wait_until(lambda: workers.marks("start", "slow"), "it runs")
    put(queue, workers, "quick", *(f"j{number}" for number in range(20)))
    wait_until(lambda: rows_of(workers.history(), "operation", f="release", type="ok") or queue.counts().active > 1, "in hand")
    worker.terminate()
    wait_until(lambda: queue.counts().active == 1, "all but the one that runs went back")
    workers.open_gate()
    assert worker.wait(120) == 0
    counts = queue.counts()
    assert (counts.finished, counts.waiting, counts.active) == (101, 20, 0)
    assert not [mark for mark in workers.marks() if mark.job.startswith("j")]
    start(workers, "--burst", name="worker-2")
    wait_until(lambda: queue.counts().finished == 121, "another worker runs them")
    claimed = [item for row in rows_of(workers.history("worker-2"), "operation", f="claim", type="ok") for item in row["items"]]
    assert {(item["failures"], item["crashes"]) for item in claimed} == {(0, 0)}


@pytest.mark.slow
def test_rule_21_jobs_behind_a_slow_inline_handler_go_to_a_worker_that_idles(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "quick", *(f"warm{number}" for number in range(300)))
    start(workers, "--lease-ms", "9000")
    wait_until(lambda: queue.counts().finished == 300, "the first worker has learned that its handlers are quick")
    put(queue, workers, "quick", *(f"j{number}" for number in range(400)), what="sleep")
    put(queue, workers, "hold", "slow", priority=9)
    wait_until(lambda: workers.marks("start", "slow"), "it runs with others in hand")
    start(workers, name="worker-2")
    wait_until(lambda: queue.counts().finished == 700, "nothing waits for the slow one")
    assert workers.marks("end") == [] and rows_of(workers.history(), "operation", f="release", type="ok") != []


@pytest.mark.slow
@pytest.mark.feature("BQ32")
def test_a_worker_that_is_killed_with_a_batch_in_hand_loses_nothing(queue: Queue, workers: Workers) -> None:
    jobs = [f"j{number}" for number in range(300)]
    put(queue, workers, "quick", *jobs, what="sleep")
    # So that it has not ended them all, however late it is killed.
    put(queue, workers, "hold", "last", priority=1)
    worker = start(workers, "--lease-ms", "600")
    wait_until(lambda: len(workers.marks("ran")) > 100 and queue.counts().active > 3, "a batch is in hand")
    worker.kill()
    assert worker.wait(120) == -signal.SIGKILL and queue.counts().active > 0
    workers.open_gate()
    assert start(workers, "--burst", "--lease-ms", "600", name="worker-2").wait(120) == 0
    assert queue.counts().finished == 301 and {mark.job for mark in workers.marks("ran")} == set(jobs)


@pytest.mark.slow
def test_rule_12_a_job_that_takes_its_worker_along_is_marked_first_and_buried_alone(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "die", "poison", crashes_max=2)
    put(queue, workers, "quick", *(f"j{number}" for number in range(30)))
    for number in range(2):
        assert start(workers, "--lease-ms", "500", name=f"worker-{number}").wait(120) == -signal.SIGKILL
    assert start(workers, "--burst", "--lease-ms", "500", name="last").wait(120) == 0
    assert ids_of(queue, "dead") == ["poison"] and queue.counts().finished == 30
    assert len(workers.marks("start", "poison")) == 2
    marked = [row["items"][0]["job"] for row in rows_of(workers.history("worker-1"), "operation", f="mark", type="ok")]
    assert "poison" in marked


@pytest.mark.slow
def test_a_worker_runs_inline_handlers_where_gevent_has_patched_the_process(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "quick", *(f"j{number}" for number in range(50)))
    put(queue, workers, "pooled", "p")
    patched = "from gevent import monkey; monkey.patch_all()\nimport sys; sys.argv[0] = 'engine'\n"
    program = patched + "from engine.__main__ import main; sys.exit(main(sys.argv[1:]))"
    worker = workers.start("--burst", "--sweep-ms", "100", handlers=INLINE, program=program)
    assert worker.wait(120) == 0, workers.output()
    assert queue.counts().finished == 51 and {mark.pid for mark in workers.marks()} == {worker.pid} != {os.getpid()}


@pytest.mark.parametrize("where", [
    "machine.machine.WorkerMachine._handler_ended", "machine.machine.WorkerMachine.next_start",
    "handler_pool.HandlerPool.run_here",
])  # fmt: skip
def test_a_defect_ends_the_worker_loudly(queue: Queue, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Whichever thread takes it: a worker that looks alive and does nothing is the worst of all."""
    queue.enqueue("work", 1)
    monkeypatch.setattr(f"engine.worker.{where}", raises(RuntimeError("a defect")))
    refused(RuntimeError, "a defect", Worker(queue, some_handlers(inline=True), sweep_ms=50).run)
    wait_until(lambda: not [one for one in threading.enumerate() if one.name.startswith("caller-")], "its threads have ended")


def test_an_async_function_cannot_run_inline() -> None:
    handlers = Handlers()

    async def work(job: Job) -> None: ...

    refused(Malformed, "^inline: .*async", handlers("work", inline=True), work)
    handlers("work", inline=True)(lambda job: None)
    assert handlers.inline == {"work"}


def test_what_is_said_of_a_lease_while_its_run_ends_is_not_kept() -> None:
    """Between the end of a handler and the machine's word on it another thread may hear that the lease is lost: kept for each
    such job, it would fill a worker that runs for months."""
    job = Machine().job("a")

    def ended(leased: LeasedJob, fault: Fault | None, place: Place, result: bytes | None) -> None:
        running.runs.lose(leased.lease, cancelled=False)

    threads, silent = (Threads("handler", kept=0), LoopThread("loop")), {"say": print, "places": 0, "processes": False}
    running: Any = HandlerPool(some_handlers(), None, ended, *threads, print, **silent)
    with closing(running):
        running.run_here(job, "inline")
        assert running.runs._lost == {}
