"""Real workers on a Bananas keyspace: the five modes, and what they do about trouble."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator

import pytest

from engine import Handlers, Job, Queue, Scheduler, Worker, models
from engine.bananas_worker import read
from engine.logs import JsonFormatter
from tests.engine.using import Book, at_work, lent, make_worker, raises, wait_until


@pytest.fixture(params=["document", "live"])
def queue(request: pytest.FixtureRequest, ironclaim_url: str) -> Iterator[Queue]:
    """Both layouts, one after the other."""
    yield from lent(Queue("q", models.Bananas(layout=request.param), url=ironclaim_url))


def run_all(queue: Queue, environ: dict[str, str], book: Book, count: int, *names: str) -> None:
    """A worker as the environment wants it, until so many jobs have run and it has looked for more."""
    with at_work(read(environ).worker(queue, book.handlers("w", *names))):
        wait_until(lambda: queue.counts().finished == count, "all that it takes")
        looked = time.monotonic()
        wait_until(lambda: time.monotonic() - looked > 0.3, "it has polled some times more")


# -- modes


@pytest.mark.feature("BN21", "BN22", "BN26", model="bananas")
@pytest.mark.parametrize(("mode", "places"), [("thin", 5), ("default", 10)])
def test_thin_and_default_take_every_priority_with_their_concurrency(queue: Queue, mode: str, places: int) -> None:
    book = Book(hold=True)
    for number in range(places + 3):
        queue.enqueue("work", {}, id=f"j{number}", priority=(2, 5, 8)[number % 3])
    with at_work(read({"WORKER_MODE": mode}).worker(queue, book.handlers("w", "work"))):
        wait_until(lambda: book.running == places, "all places")
        book.release()
        wait_until(lambda: queue.counts().finished == places + 3, "the rest")
    assert book.most == places


@pytest.mark.slow
@pytest.mark.feature("BN23", model="bananas")
@pytest.mark.parametrize(
    ("given", "ran"),
    [("", ["high"]), ("low", ["low"]), ("normal, HIGH", ["high", "normal"]), ("high,normal,low", ["high", "low", "normal"])],
)
def test_specialized_takes_its_priorities_alone(queue: Queue, given: str, ran: list[str]) -> None:
    book = Book()
    for job, priority in (("low", 1), ("normal", 5), ("high", 10)):
        queue.enqueue("work", {}, id=job, priority=priority)
    run_all(queue, {"WORKER_MODE": "specialized", "WORKER_PRIORITIES": given}, book, len(ran), "work")
    assert sorted(book.by("w")) == ran and queue.counts().waiting == 3 - len(ran)


@pytest.mark.feature("BN24", "BN32", model="bananas")
def test_job_specialized_takes_its_job_types_and_routes_alone(queue: Queue) -> None:
    book = Book()
    for route in ("default", "gpu", "mail"):
        for name in ("resize", "train", "mail"):
            queue.enqueue(name, {}, id=f"{name}-{route}", route=route)
    environ = {"WORKER_MODE": "job-specialized", "WORKER_JOB_TYPES": "train, mail", "WORKER_ROUTING_KEYS": "gpu,default"}
    run_all(queue, {**environ, "WORKER_CONCURRENCY": "3"}, book, 4, "resize", "train", "mail")
    assert sorted(book.by("w")) == ["mail-default", "mail-gpu", "train-default", "train-gpu"] and queue.counts().waiting == 5


@pytest.mark.slow
@pytest.mark.feature("BN25", model="bananas")
def test_scheduler_only_brings_due_jobs_to_their_lists_and_runs_none(queue: Queue) -> None:
    made = read({"WORKER_MODE": "scheduler-only", "SCHEDULER_INTERVAL": "100ms"}).worker(queue, Handlers())
    assert isinstance(made, Scheduler)
    queue.enqueue("work", {}, id="later", delay_ms=200)
    queue.schedules.put("s", "work", {}, every_ms=200)
    with at_work(made):
        wait_until(lambda: queue.counts().waiting >= 3 and queue.counts().delayed == 0, "it sweeps and ticks")
    assert (queue.counts().active, queue.counts().finished) == (0, 0)


# -- what a worker does


@pytest.mark.feature("BN04", model="bananas")
def test_several_routing_keys_for_one_worker(queue: Queue) -> None:
    book = Book()
    for route in ("default", "gpu", "mail", "other"):
        queue.enqueue("work", {}, id=route, route=route)
    with at_work(make_worker(queue, book, "w", routes=["gpu", "mail"])):
        wait_until(lambda: queue.counts().finished == 2, "both of its routes")
    assert sorted(book.by("w")) == ["gpu", "mail"] and queue.counts().waiting == 2


@pytest.mark.feature("BN27", model="bananas")
def test_a_run_that_takes_too_long_has_failed(ironclaim_url: str) -> None:
    handlers = Handlers()

    @handlers("slow")
    async def slow(job: Job) -> None:
        await asyncio.sleep(20)

    with Queue("q", models.Bananas(timeout_ms=100), url=ironclaim_url) as queue:
        queue.enqueue("slow", {}, id="j", attempts=1)
        Worker(queue, handlers).run(burst=True)
        assert [info.id for info in queue.jobs.list("dead")] == ["j"] and "not done within 100 ms" in str(queue.jobs.get("j"))


@pytest.mark.feature("BN11", "BN28", "BN37", model="bananas")
def test_each_failed_run_is_a_line_of_json_and_the_worker_goes_on(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    handlers, done = Handlers(), threading.Event()
    handlers("raise")(raises(KeyError("no")))
    handlers("fine")(lambda job: done.set())
    queue.enqueue("raise", {}, id="j", attempts=1)
    queue.enqueue("fine", {})
    Worker(queue, handlers, name="w").run(burst=True)
    assert done.is_set() and [info.id for info in queue.jobs.list("dead")] == ["j"]
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    (line,) = [line for line in lines if line.get("job_id") == "j"]
    assert (line["level"], line["job_name"], line["attempt"], line["worker"]) == ("warning", "raise", 1, "w")
    assert line["traceback"].rstrip().endswith("KeyError: 'no'")


@pytest.mark.feature("BN08", "BN33", model="bananas")
def test_a_job_by_its_id_and_the_counters(queue: Queue) -> None:
    queue.enqueue("work", {"n": 1}, id="j", priority=9, route="gpu")
    info = queue.jobs.get("j")
    assert info is not None and (info.state, info.name, info.payload_bytes) == ("waiting", "work", b'{"n":1}')
    assert (info.options.priority, info.options.route) == (8, "gpu")
    assert 'ironclaim_jobs{queue="q",state="waiting"} 1' in queue.metrics().splitlines()
