"""Real workers on each model: what handlers return, pauses, delays, graceful stops, and processes that are killed."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import AsyncQueue, ConnectOptions, Handlers, Job, JobFailed, Queue, Target, Worker, models
from engine.bananas_worker import read
from engine.models import Spec
from engine.testing import EmbeddedServer, start_guarded
from tests.conformance.declared import accepts, attempts
from tests.conformance.desk import ModelDesk
from tests.conformance.models import ALL, only
from tests.engine.using import DEADLINE_S, Book, Relay, at_work, make_worker, raw_client, wait_until

ROOT = Path(__file__).parents[2]
#: No lease ends that is not meant to, however busy the machine is.
QUICK: dict[str, Any] = {"sweep_ms": 50, "lease_ms": 60_000, "prefetch": 0}


class Notes:
    """What handlers have run, with the time of each start."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, float]] = []
        self.gate = threading.Event()
        self.handlers = Handlers()
        self.handlers("main")(self._main)
        self.handlers("fail")(self._fail)
        self.handlers("hold")(self._hold)

    def labels(self) -> list[str]:
        return [label for label, _ in self.ran]

    def _main(self, job: Job) -> object:
        self.ran.append((job.payload["label"], time.time()))
        return {"of": job.payload["label"]}

    def _fail(self, job: Job) -> None:
        self.ran.append((job.payload["label"], time.time()))
        raise ValueError("no luck")

    def _hold(self, job: Job) -> None:
        self.ran.append((job.payload["label"], time.time()))
        assert self.gate.wait(60)


@pytest.fixture
def notes() -> Iterator[Notes]:
    made = Notes()
    yield made
    made.gate.set()


@pytest.fixture
def own(spec: Spec, ironclaim_url: str) -> Iterator[Queue]:
    """The worker's own queue."""
    with Queue("q", spec, url=ironclaim_url) as made:
        yield made


def test_handlers_run_each_job_once_and_what_they_return_is_told(queue: Queue, own: Queue, notes: Notes) -> None:
    jobs = [queue.enqueue("main", {"label": str(number)}).job for number in range(20)]
    with at_work(Worker(own, notes.handlers, concurrency=1, **QUICK)):
        wait_until(lambda: len(notes.ran) == 20, "all ran")
        assert queue.results.wait(jobs[-1], wait_ms=60_000).value == {"of": "19"}
        assert queue.call("main", {"label": "called"}, wait_ms=60_000) == {"of": "called"}
    assert notes.labels()[:20] == [str(number) for number in range(20)]
    counts = queue.counts()
    assert (counts.waiting, counts.active, counts.dead) == (0, 0, 0) and counts.finished >= 20


def test_the_asyncio_face_does_the_same(spec: Spec, ironclaim_url: str, own: Queue, notes: Notes) -> None:
    async def life() -> None:
        async with AsyncQueue("q", spec, url=ironclaim_url) as queue:
            job = (await queue.enqueue("main", {"label": "held"}, delay_ms=60_000)).job
            assert await queue.jobs.state(job) == "delayed" and (await queue.jobs.cancel(job)).done
            assert await queue.call("main", {"label": "called"}, wait_ms=60_000) == {"of": "called"}
            counts = await queue.counts()
            assert (counts.waiting, counts.delayed, counts.active) == (0, 0, 0)

    with at_work(Worker(own, notes.handlers, **QUICK)):
        asyncio.run(life())


def test_a_job_that_fails_for_good_is_dead_and_the_one_who_waits_hears_of_it(queue: Queue, own: Queue, notes: Notes) -> None:
    options: dict[str, Any] = {"attempts": 2, "backoff_ms": 10}
    if not accepts(queue, **options):
        return
    with at_work(Worker(own, notes.handlers, **QUICK)), pytest.raises(JobFailed, match="no luck"):
        queue.call("fail", {"label": "j"}, wait_ms=60_000, **options)
    assert notes.labels() == ["j", "j"] and queue.counts().dead == 1
    assert "no luck" in queue.dead.list()[0].last_error


def test_a_delayed_job_starts_at_its_time_and_not_before(queue: Queue, own: Queue, notes: Notes) -> None:
    with at_work(Worker(own, notes.handlers, **QUICK)):
        queue.enqueue("main", {"label": "first"})
        wait_until(notes.labels, "the worker works")
        due_s = time.time() + 0.3
        queue.enqueue("main", {"label": "later"}, delay_ms=300)
        wait_until(lambda: len(notes.ran) == 2, "it ran")
    assert notes.ran[1][1] - due_s > -0.02


def calls(url: str) -> int:
    """How many scripts the server has run."""
    with raw_client(url) as client:
        return client.info("commandstats")["cmdstat_evalsha"]["calls"]


def test_nothing_starts_while_the_queue_is_paused(queue: Queue, own: Queue, notes: Notes, ironclaim_url: str) -> None:
    queue.pause()
    queue.enqueue("main", {"label": "j"})
    before = calls(ironclaim_url)
    with at_work(Worker(own, notes.handlers, **QUICK)):
        # Its first claim, and sweeps after it: each of these calls would have started the job.
        wait_until(lambda: calls(ironclaim_url) >= before + 10, "the worker looks")
        assert notes.ran == []
        queue.resume()
        wait_until(notes.labels, "it ran")
    assert queue.counts().waiting == 0


@pytest.mark.feature("BN29", model="bananas")
def test_a_graceful_stop_gives_back_what_has_not_started(queue: Queue, own: Queue, notes: Notes) -> None:
    queue.enqueue_many([{"name": "hold", "payload": {"label": str(number)}} for number in range(5)])
    settings: dict[str, Any] = {**QUICK, "prefetch": 4}
    worker = Worker(own, notes.handlers, concurrency=1, **settings)
    with at_work(worker):
        wait_until(notes.labels, "one runs")
        worker.stop()
        wait_until(lambda: queue.counts().active == 1, "the others went back")
        notes.gate.set()
    counts = queue.counts()
    assert (counts.waiting, counts.active, counts.finished) == (4, 0, 1)
    # Uncharged: they run in their order.
    with at_work(Worker(own, notes.handlers, concurrency=1, **QUICK)):
        wait_until(lambda: len(notes.ran) == 5, "all ran")
    assert sorted(notes.labels()) == ["0", "1", "2", "3", "4"]


@pytest.mark.slow
def test_the_jobs_of_a_killed_worker_run_again(queue: Queue, spec: Spec, tmp_path: Path) -> None:
    """A process is killed in the middle of a handler: the job comes back, under another token, and finishes once. In the first
    tier the desk shows it for each model, where leases end, and a drill kills real workers."""
    model = next(name for name, known in ALL.items() if known is spec)
    job = queue.enqueue("main", {"label": "j"}).job

    def start(name: str, lease_ms: int) -> subprocess.Popen[bytes]:
        url = queue.endpoint.url
        argv = [sys.executable, "-m", "tests.conformance.killed_worker", model, url, str(tmp_path), name, str(lease_ms)]
        with (tmp_path / f"log.{name}").open("wb") as log:
            return start_guarded(argv, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)

    def runs(name: str) -> list[Path]:
        return list(tmp_path.glob(f"{name}-*"))

    # The first one's lease is waited for, so it is short; where the machine stands still for longer, the first one runs it again.
    first, second = start("first", 3_000), None
    try:
        wait_until(lambda: runs("first"), "the first one holds it", 120)
        first.kill()
        first.wait()
        second = start("second", 60_000)
        wait_until(lambda: runs("second"), "the second one has it", 120)
        (tmp_path / "open").touch()
        wait_until(lambda: queue.counts().finished == 1, "it has finished")
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()
    assert {path.read_text() for path in (*runs("first"), *runs("second"))} == {job}
    (other,) = runs("second")
    assert int(other.name.rpartition("-")[2]) > max(int(one.name.rpartition("-")[2]) for one in runs("first"))
    counts = queue.counts()
    assert (counts.waiting, counts.active, counts.dead) == (0, 0, 0)


@only({name: ALL[name] for name in ("bananas-document", "bull")})
@pytest.mark.feature("BL33", model="bull")
@pytest.mark.feature("BN30", "BN31", model="bananas")
def test_a_worker_outlives_an_outage(queue: Queue, spec: Spec, notes: Notes, ironclaim_server: EmbeddedServer) -> None:
    def put(first: int, count: int) -> None:
        queue.enqueue_many([{"name": "main", "payload": {"label": str(number)}} for number in range(first, first + count)])
        wait_until(lambda: queue.counts().finished == first + count, "it works")

    with (
        Relay(ironclaim_server.port) as relay,
        Queue("q", spec, url=relay.url, connect=ConnectOptions(connections_max=4)) as through,
        at_work(Worker(through, notes.handlers, **QUICK)),
    ):
        put(0, 1)
        relay.down()
        queue.enqueue("main", {"label": "1"})
        relay.up()
        wait_until(lambda: queue.counts().finished == 2, "it works again")
        for rule in ("lose_reply", "lose_request") * 3:
            relay.next("pass", rule)
        put(2, 6)
    assert sorted(notes.labels()) == [*"01234567"] and queue.counts().active == 0


def test_workers_are_listed_and_locks_are_held_once(queue: Queue, own: Queue, notes: Notes) -> None:
    with at_work(Worker(own, notes.handlers, name="w-1", **QUICK)):
        wait_until(
            lambda: [(info.name, info.alive, info.leads) for info in queue.workers.list()] == [("w-1", True, True)],
            "it is listed, lives and leads",
        )
    wait_until(lambda: not queue.workers.list(), "it has gone")
    lock = queue.locks.acquire("l")
    assert lock is not None and queue.locks.acquire("l") is None
    assert queue.locks.release(lock) and queue.locks.acquire("l") is not None


def burst(worker: Any, **more: Any) -> None:
    """Run a worker until its burst is over."""
    thread = threading.Thread(target=worker.run, kwargs={"burst": True, **more}, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    over = not thread.is_alive()
    worker.stop()
    thread.join(DEADLINE_S)
    assert over


def test_a_burst_without_delayed_jobs_ends_before_a_back_off_of_50_ms(desk: ModelDesk, notes: Notes) -> None:
    """The desk's clock stands still, so it ends because nothing can be claimed, and not because it was quick."""
    wanted: dict[str, Any] = {"backoff": "fixed", "backoff_ms": 50}
    back_off = wanted if accepts(desk.queue, **wanted) else {}
    desk.put("failing", name="fail", **attempts(desk.queue, 2), **back_off)
    desk.put("later", name="main", delay_ms=60_000)

    burst(Worker(desk.queue, notes.handlers, **QUICK, beat_ms=0), delayed=False)
    assert (notes.labels(), desk.listed()["delayed"]) == (["failing"], ["failing", "later"])
    burst(Worker(desk.tick(10_000).queue, notes.handlers, **QUICK, beat_ms=0), delayed=False)
    assert notes.labels()[:2] == ["failing"] * 2 and "later" in desk.listed()["delayed"]


def put_bridge(queue: Queue) -> None:
    queue.enqueue("work", {}, id="gpu", target=Target(capabilities=["gpu"]))
    queue.enqueue("work", {}, id="plain")
    for parent in ("gpu", "plain"):
        queue.enqueue("work", {}, id=f"child-of-{parent}", needs=[parent])


def put_bananas(queue: Queue) -> None:
    for route in ("default", "gpu", "mail"):
        queue.enqueue("work", {}, id=route, route=route)


@pytest.mark.parametrize(
    ("model", "put", "first", "ours", "second", "all_jobs"),
    [
        pytest.param(
            *(models.Bridge, put_bridge, {}, ["child-of-plain", "plain"]),
            *({"capabilities": ["gpu"]}, ["child-of-gpu", "gpu"]),
            marks=pytest.mark.feature("BQ15", model="bridge"),
        ),
        pytest.param(
            *(models.Bananas, put_bananas, {"routes": ["gpu"]}, ["gpu"], {"routes": ["default", "mail"]}, ["default", "mail"]),
            marks=pytest.mark.feature("BN04", model="bananas"),
        ),
    ],
)
def test_a_burst_leaves_to_others_what_asks_for_others(
    model: Any, put: Any, first: dict[str, Any], ours: list[str], second: dict[str, Any], all_jobs: list[str], ironclaim_url: str
) -> None:
    book = Book()
    with Queue("q", model(), url=ironclaim_url) as queue:
        put(queue)
        burst(make_worker(queue, book, "first", **first, sweep_ms=50, lease_ms=60_000))
        assert sorted(book.by("first")) == ours and queue.counts().waiting == len(all_jobs)
        burst(make_worker(queue, book, "second", **second, sweep_ms=50, lease_ms=60_000))
        assert sorted(book.by("second")) == all_jobs and queue.counts().waiting == 0


@pytest.mark.feature("BN23", model="bananas")
def test_a_burst_leaves_jobs_of_other_priorities(ironclaim_url: str) -> None:
    book = Book()
    with Queue("q", models.Bananas(), url=ironclaim_url) as queue:
        for job, priority in (("low", 1), ("normal", 5), ("high", 10)):
            queue.enqueue("work", {}, id=job, priority=priority)
        environ = {"WORKER_MODE": "specialized", "WORKER_PRIORITIES": "normal"}
        burst(read(environ).worker(queue, book.handlers("w", "work")))
        assert book.by("w") == ["normal"] and queue.counts().waiting == 2
