"""Workers on Mosquito keyspaces, in real time: tasks, hooks, groups of queues, gates, serialisers, and everything run at once."""

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Bury, Handlers, Job, Queue, RetryLater, Worker, WorkerGroup, models
from engine.models import Layout
from engine.testing import run_all
from tests.engine.helpers import backwards
from tests.engine.models.crystal import Crystal
from tests.engine.using import at_work, lent, raises, some_handlers, wait_until

NAMES, DAY_MS = ("critical_job", "normal_job", "low_job"), 86_400_000


#: A worker does the same on either; the scripts are tested on both.
@pytest.fixture(params=["live", pytest.param("document", marks=pytest.mark.slow)])
def layout(request: pytest.FixtureRequest) -> Layout:
    return request.param


@pytest.fixture
def queue(layout: Layout, ironclaim_url: str) -> Iterator[Queue]:
    yield from lent(Queue("ok_job", models.Mosquito(layout=layout, success_ttl_s=600), url=ironclaim_url))


@pytest.fixture
def theirs(layout: Layout, ironclaim_url: str) -> Iterator[Crystal]:
    yield from lent(Crystal(ironclaim_url, "ok_job", layout))


@pytest.fixture
def queues(layout: Layout, ironclaim_url: str) -> Iterator[tuple[Queue, ...]]:
    """As the original has them: one for each kind of job."""
    made = tuple(Queue(name, models.Mosquito(layout=layout), url=ironclaim_url) for name in NAMES)
    yield made
    for queue in made:
        queue.close()


def noting(ran: list[str]) -> Handlers:
    handlers = Handlers()
    for name in NAMES:
        handlers(name)(lambda job: ran.append(job.name))
    return handlers


@pytest.mark.feature("MQ01", "MQ03", model="mosquito")
def test_a_task_runs_whoever_has_enqueued_it(queue: Queue, theirs: Crystal) -> None:
    seen: list[Any] = []

    @queue.job("ok_job")
    def ok(user_id: int, share: float, last: bool, subject: str = "none") -> None:
        seen.append((user_id, share, last, subject))

    ok.enqueue(7, 1e21, False, "hi")
    theirs.enqueue("ok_job", user_id="8", share="0.5", last="true")
    Worker(queue).run(burst=True)
    # Handlers run in threads: either may begin first.
    assert sorted(seen) == [(7, 1e21, False, "hi"), (8, 0.5, True, "none")]


@pytest.mark.feature("MQ18", "MQ19", model="mosquito")
def test_hooks_around_runs_and_enqueues(queue: Queue, theirs: Crystal) -> None:
    handlers, log = Handlers(), []
    handlers("ok_job")(lambda job: log.append(f"run {job.payload['n']}"))
    handlers.hooks.before(lambda job: log.append(f"before {job.payload['n']}"))
    handlers.hooks.after(lambda job, error: log.append(f"after {job.payload['n']}: {error}"))

    @queue.hooks.before
    def add(job: Any) -> None:
        job.payload = {**job.payload, "n": job.payload["n"] + 1}

    queue.enqueue("ok_job", {"n": 1})
    theirs.enqueue("ok_job", n="9")
    Worker(queue, handlers, concurrency=1).run(burst=True)
    assert log == ["before 2", "run 2", "after 2: None", "before 9", "run 9", "after 9: None"]


@pytest.mark.slow
@pytest.mark.feature("MQ18", model="mosquito")
def test_a_hook_that_raises_before_a_run_is_a_failed_run_that_counts(queue: Queue, theirs: Crystal) -> None:
    handlers, ran = Handlers(backoff=lambda failures, error: 1), []
    handlers("ok_job")(lambda job: ran.append(job.id))
    handlers.hooks.before(raises(ValueError("not now")))
    id = theirs.enqueue("ok_job")
    Worker(queue, handlers).run(burst=True)
    assert ran == [] and theirs.fields(id)["retry_count"] == "5" and theirs.ids(theirs.keys.dead) == [id]


@pytest.mark.feature("MQ12", "MQ13", model="mosquito")
def test_what_a_handler_raises_says_how_its_run_ends(queue: Queue, theirs: Crystal) -> None:
    handlers, seen = Handlers(), []

    @handlers("ok_job")
    def work(job: Job) -> None:
        seen.append((job.payload["what"], job.failures))
        if job.payload["what"] == "bury":
            raise Bury("never")
        if len(seen) < 3:
            raise RetryLater(1)

    bury, later = theirs.enqueue("ok_job", what="bury"), theirs.enqueue("ok_job", what="later")
    Worker(queue, handlers, concurrency=1, prefetch=0).run(burst=True)
    assert seen == [("bury", 0), ("later", 0), ("later", 1)] and theirs.ids(theirs.keys.dead) == [bury]
    assert queue.jobs.state(later) == "finished"


@pytest.mark.feature("MQ26", model="mosquito")
def test_what_a_serialiser_has_written_stands_in_one_field(layout: Layout, queue: Queue, theirs: Crystal) -> None:
    seen: dict[str, Any] = {}
    handlers = some_handlers(lambda job: seen.update({job.id: job.payload}), "ok_job")
    with Queue("ok_job", models.Mosquito(layout=layout), url=queue.url, serializer=backwards.Backwards()) as other:
        own, raw = other.enqueue("ok_job", {"a": [1, None]}).job, other.enqueue("ok_job", b"\x00\xff").job
        plain = other.enqueue("ok_job", {"a": 1}, serializer="json").job
        assert list(theirs.redis.hkeys(theirs.keys.run(own)))[:1] == ["payload"]  # type: ignore[arg-type]
        Worker(other, handlers).run(burst=True)
    assert seen == {own: {"a": [1, None]}, raw: b"\x00\xff", plain: {"a": "1"}}


@pytest.mark.feature("MQ27", model="mosquito")
def test_everything_runs_at_once_under_a_clock_of_the_test(queue: Queue) -> None:
    queue.use_test_clock(4_102_444_800_000 + DAY_MS)
    handlers, attempts = Handlers(), Counter[str]()

    @handlers("ok_job")
    def work(job: Job) -> None:
        attempts[job.payload["what"]] += 1
        if job.payload["what"] == "fails":
            raise ValueError("no")

    queue.enqueue("ok_job", {"what": "fails"})
    queue.enqueue("ok_job", {"what": "late"}, delay_ms=2 * DAY_MS)
    queue.enqueue("ok_job", {"what": "now"})
    counts = run_all(queue, handlers, raise_failures=False)
    assert attempts == {"fails": 5, "late": 1, "now": 1}
    assert (counts.finished, counts.waiting, counts.delayed, counts.dead) == (2, 0, 0, 1)


@pytest.mark.slow
@pytest.mark.feature("MQ20", "MQ33", model="mosquito")
def test_queues_share_a_workers_places(queues: tuple[Queue, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    # The others do not take the place of a queue whose claim is answered late.
    monkeypatch.setattr("engine.worker.machine.concurrency.PATIENCE_S", 60.0)
    for strategy in ("strict", "shuffle", "weighted"):
        ran: list[str] = []
        for queue in queues:
            queue.enqueue_many([{"name": queue.name, "payload": {}} for _ in range(30)])
        more: dict[str, Any] = {"weights": [6, 3, 1]} if strategy == "weighted" else {}
        group = WorkerGroup(queues, noting(ran), strategy=strategy, concurrency=1, **more)  # type: ignore[arg-type]
        assert group.run(burst=True) == "empty" and Counter(ran) == dict.fromkeys(NAMES, 30)
        first = Counter(ran[:30])
        if strategy == "strict":
            assert first["critical_job"] >= 28
        else:
            # A fair draw of sixty leaves none of the three out, once in more than a thousand million.
            assert first["low_job"] < 30 and "low_job" in ran[:60]
            assert strategy == "shuffle" or first["critical_job"] > first["low_job"] > 0


@pytest.mark.slow
@pytest.mark.feature("MQ21", "MQ33", model="mosquito")
def test_a_runner_works_off_some_queues_alone(queues: tuple[Queue, ...]) -> None:
    ran: list[str] = []
    for queue in queues:
        queue.enqueue_many([{"name": queue.name, "payload": {}} for _ in range(5)])
    assert WorkerGroup([queues[0], queues[2]], noting(ran)).run(burst=True) == "empty"
    assert Counter(ran) == {"critical_job": 5, "low_job": 5} and queues[1].counts().waiting == 5


@pytest.mark.feature("MQ34", model="mosquito")
def test_a_closed_gate_holds_claims(queue: Queue, theirs: Crystal) -> None:
    opens, asked, ran = [False], [0], []
    handlers = some_handlers(lambda job: ran.append(job.id), "ok_job")

    def gate() -> bool:
        asked[0] += 1
        return opens[0]

    id = theirs.enqueue("ok_job")
    with at_work(Worker(queue, handlers, gate=gate, sweep_ms=50)):
        wait_until(lambda: asked[0] > 2, "it asks again")
        assert ran == [] and theirs.ids(theirs.keys.waiting) == [id]
        opens[0] = True
        wait_until(lambda: ran == [id], "it is open")


@pytest.mark.feature("MQ35", model="mosquito")
def test_a_count_that_was_set_from_afar_bounds_a_running_worker(queue: Queue, theirs: Crystal) -> None:
    running, most, go_on = [0], [0], threading.Event()
    handlers, lock = Handlers(), threading.Lock()

    @handlers("ok_job")
    def work(job: Job) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        go_on.wait(60)
        with lock:
            running[0] -= 1

    theirs.redis.hset(theirs.keys.executor_count(), "count", "2")
    worker = Worker(queue, handlers, name="w", concurrency=6, sweep_ms=50, beat_ms=100)

    def sweeps() -> int:
        return theirs.redis.info("commandstats")["cmdstat_evalsha"]["calls"]  # type: ignore[index, no-any-return]

    with at_work(worker):
        wait_until(lambda: theirs.redis.exists(f"{queue.model.keys.prefix}remote"), "the server has learned it")
        # A worker reads all its settings at once: one that knows of a pause that came later has heard of the count.
        queue.workers.pause("w")
        wait_until(lambda: any(info.paused for info in queue.workers.list()), "the worker has heard of it")
        queue.workers.resume("w")
        for _ in range(6):
            theirs.enqueue("ok_job")
        wait_until(lambda: running[0] == 2, "so many at once")
        before = sweeps()
        wait_until(lambda: sweeps() > before + 10, "and no more")
        assert most[0] == 2
        go_on.set()
        wait_until(lambda: queue.counts().finished == 6, "all of them")


@pytest.mark.slow
@pytest.mark.feature("MQ31", model="mosquito")
def test_a_running_worker_brings_back_what_a_dead_overseer_had(queue: Queue, theirs: Crystal) -> None:
    ran: list[str] = []
    handlers, id = some_handlers(lambda job: ran.append(job.id), "ok_job"), theirs.enqueue("ok_job")
    theirs.take()
    theirs.redis.hset(theirs.keys.run(id), "overseer_id", "gone")
    with at_work(Worker(queue, handlers, sweep_ms=100)):
        wait_until(lambda: ran == [id], "two looks a second apart")
    assert theirs.ids(theirs.keys.pending) == []
