"""The life of a worker on a real server: what is called when it starts and stops, in it and in its child processes, and hooks of
runs where these run."""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import Handlers, Job, Malformed, Queue, Worker, WorkerGroup
from engine.worker.child_processes import Child
from tests.engine.helpers import life
from tests.engine.using import at_work, ids_of, refused, run_of, wait_until, whole_lines


class Life:
    """What handlers and hooks have marked: words and process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def marks(self, *words: str) -> list[list[str]]:
        found = [line.split() for line in whole_lines(self.folder / "marks")]
        return [mark for mark in found if mark[: len(words)] == [*words]]

    def pids(self, *words: str) -> list[str]:
        return [mark[-1] for mark in self.marks(*words)]

    def refuse(self) -> Path:
        """From now on no child process can start; the file that says so."""
        (refuse := self.folder / "refuse").touch()
        (self.folder / f"not-{os.getpid()}").touch()
        return refuse


@pytest.fixture
def lived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Life:
    monkeypatch.setenv(life.FOLDER, str(tmp_path))
    return Life(tmp_path)


def worker(queue: Queue, **settings: Any) -> Worker:
    settings = {"processes": 1, "sweep_ms": 50, **settings}
    return Worker(queue, life.handlers, **settings)


@pytest.mark.feature("MQ18")
def test_hooks_of_a_run_in_a_child_process_are_called_there(queue: Queue, lived: Life) -> None:
    queue.enqueue("plain", "fine", id="good", priority=9)
    queue.enqueue("plain", "fail", id="bad", attempts=1)
    assert worker(queue).run(burst=True) == "empty"
    child = lived.pids("run")[0]
    wanted = ["start", "enter good", "before good", "run good good open", "leave good", "after good None"]
    wanted += ["enter bad", "before bad", "run bad bad open", "after bad ValueError", "stop"]
    marks = [" ".join(mark[:-1]) for mark in lived.marks() if mark[-1] == child]
    assert child != str(os.getpid()) and marks == wanted
    assert (ids_of(queue, "dead"), queue.results.get("good").value) == (["bad"], "fine")  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.feature("MQ18")
def test_hooks_of_a_batch_in_a_child_process_are_called_for_each_job(queue: Queue, lived: Life) -> None:
    queue.enqueue_many([{"name": "batch", "payload": 1, "id": f"j{at}"} for at in range(3)])
    worker(queue).run(burst=True)
    assert {mark[1] for mark in lived.marks("run")} == {"3"}
    for word in ("enter", "before", "leave", "after"):
        assert [mark[1] for mark in lived.marks(word)] == ["j0", "j1", "j2"], word
        assert {*lived.pids(word)} == {*lived.pids("run")}


def test_a_start_and_a_stop_are_told_in_the_worker_and_in_each_child_and_its_replacement(queue: Queue, lived: Life) -> None:
    queue.enqueue("plain", "die", id="dies", priority=9)
    queue.enqueue("plain", "hang", id="hangs", timeout_ms=200, backoff_ms=0)
    worker(queue, child_max_jobs=100, lease_ms=600).run(burst=True)
    own = str(os.getpid())
    marks = [(mark[0], mark[-1]) for mark in lived.marks() if mark[0] in ("start", "stop")]
    assert (marks[0], marks[-1]) == (("start", own), ("stop", own)), "around all children"
    children = [pid for word, pid in marks if word == "start" and pid != own]
    killed = lived.pids("run")[0]
    assert len({*children}) == len(children) >= 3 and killed in children
    assert Counter(marks)["stop", children[-1]] == 1, "the last one ended in order"
    assert Counter(marks)["stop", killed] == 0, "and who was killed could not"
    assert sorted(ids_of(queue, "done")) == ["dies", "hangs"]


def test_a_child_that_cannot_start_is_told_and_its_job_waits(queue: Queue, lived: Life, caplog: pytest.LogCaptureFixture) -> None:
    refuse = lived.refuse()
    queue.enqueue("plain", "fine", id="a", attempts=1)
    with at_work(worker(queue)):
        wait_until(lambda: "1 have so far; again in 1 s): ConnectionError: no database" in caplog.text, "it is told")
        assert lived.marks("run") == []
        wait_until(lambda: "no child process starts" in caplog.text, "that nothing is claimed, too")
        refuse.unlink()
        wait_until(lambda: ids_of(queue, "done") == ["a"], "another child has run it")
    assert run_of(queue, "a").get("failures") is None and len(lived.marks("run")) == 1
    assert not {*lived.pids("refused")} & {*lived.pids("run")}


def test_a_worker_without_children_gives_back_and_claims_no(queue: Queue, lived: Life, caplog: pytest.LogCaptureFixture) -> None:
    """It would else renew for ever what it cannot run."""
    refuse = lived.refuse()
    jobs = [queue.enqueue("plain", "fine", id=f"j{at}", attempts=1).job for at in range(4)]
    jobs += [queue.enqueue("batch", 1, id=f"b{at}", attempts=1).job for at in range(3)]
    with at_work(worker(queue, processes=2, beat_ms=100)):
        wait_until(lambda: "no child process starts" in caplog.text, "both have failed")
        wait_until(lambda: queue.counts().waiting == 7, "all are given back")
        wait_until(lambda: [each.gate_closed for each in queue.workers.list()] == [True], "its beats say why")
        assert (queue.counts().active, lived.marks("run")) == (0, [])
        # Another worker has no such trouble.
        with at_work(Worker(queue, life.handlers, sweep_ms=50)):
            wait_until(lambda: len(ids_of(queue, "done")) == 7, "it runs them")
        assert {*lived.pids("run")} == {str(os.getpid())}
        refuse.unlink()
        later = queue.enqueue("plain", "fine").job
        wait_until(lambda: later in ids_of(queue, "done"), "once a child has started")
    assert {run_of(queue, job).get("failures") for job in jobs} == {None}
    assert len(lived.pids("run", later)) == 1 and str(os.getpid()) not in lived.pids("run", later)


def test_a_prompt_stop_gives_back_what_waits_for_a_slow_child(queue: Queue, lived: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    def never_ready(child: Child) -> None:
        child._closed.wait()  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(Child, "_until_ready", never_ready)
    queue.enqueue("plain", "fine", id="a", attempts=1)
    with at_work(slow := worker(queue, processes=1, lease_ms=60_000)):
        wait_until(lambda: queue.counts().active == 1, "it is claimed")
        slow.stop(at_once=True)
    assert (queue.counts().active, queue.counts().waiting, lived.marks("run")) == (0, 1, [])
    assert run_of(queue, "a").get("failures") is None


def test_what_a_start_raises_ends_the_worker_and_nothing_is_claimed(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    handlers, called = Handlers(), []
    handlers("work")(lambda job: called.append("run"))

    @handlers.hooks.on_start
    def connect() -> None:
        raise ConnectionError("no database")

    handlers.hooks.on_stop(lambda: called.append("stop"))
    queue.enqueue("work", 1)
    refused(ConnectionError, "no database", Worker(queue, handlers).run, burst=True)
    assert (called, queue.counts().waiting) == ([], 1) and "connect failed, so nothing is run here" in caplog.text


@pytest.mark.parametrize("raises", [ValueError, SystemExit, asyncio.CancelledError])
def test_what_a_stop_raises_is_only_logged(queue: Queue, caplog: pytest.LogCaptureFixture, raises: type[BaseException]) -> None:
    handlers, called = Handlers(), []
    handlers("work")(lambda job: None)
    handlers.hooks.on_stop(lambda: called.append("last"))

    @handlers.hooks.on_stop
    def fails() -> None:
        raise raises

    handlers.hooks.on_stop(lambda: called.append("first"))
    assert Worker(queue, handlers).run(burst=True) == "empty" and called == ["first", "last"] and "fails failed" in caplog.text


@pytest.mark.parametrize("kind", ["group", "shards"])
def test_async_handlers_of_one_process_share_the_loop_and_what_a_hook_has_opened_on_it(ironclaim_url: str, kind: str) -> None:
    """And several workers of it start and stop once, before and behind all runs."""
    handlers, opened, called = Handlers(), list[asyncio.Lock](), list[str]()
    stopped = list[asyncio.AbstractEventLoop]()
    handlers.hooks.on_start(lambda: called.append("start"))
    handlers.hooks.on_stop(lambda: called.append("stop"))

    @handlers.hooks.on_start
    async def opens() -> None:
        opened.append(asyncio.Lock())
        # Bound to its loop: on another one its next wait raises.
        await opened[0].acquire()
        asyncio.get_running_loop().call_later(0.02, opened[0].release)

    @handlers.hooks.on_stop
    async def closes() -> None:
        stopped.append(asyncio.get_running_loop())

    @handlers("work")
    async def work(job: Job) -> None:
        async with opened[0]:
            await asyncio.sleep(0.01)
            called.append(job.id)

    with Queue("a", url=ironclaim_url, shards=4 if kind == "shards" else None) as one, Queue("b", url=ironclaim_url) as other:
        queues = [one] if kind == "shards" else [one, other]
        sent = {queue.enqueue("work", 1).job for queue in queues for _ in range(12)}
        assert (Worker(one, handlers) if kind == "shards" else WorkerGroup(queues, handlers)).run(burst=True) == "empty"
        assert not [job for queue in queues for job in ids_of(queue, "dead") + ids_of(queue, "delayed")]
    assert (sorted(called[1:-1]), called[0], called[-1], len(opened), len(stopped)) == (sorted(sent), "start", "stop", 1, 1)
    assert stopped[0].is_closed(), "the loop ends with the worker"


def test_a_registry_that_has_started_stops_though_the_next_one_does_not_start(queue: Queue) -> None:
    called, first, second = list[str](), Handlers(), Handlers()
    first("a")(lambda job: None)
    second("b")(lambda job: None)
    first.hooks.on_start(lambda: called.append("opened"))
    first.hooks.on_stop(lambda: called.append("closed"))

    @second.hooks.on_start
    async def connect() -> None:
        raise ConnectionError("no database")

    second.hooks.on_stop(lambda: called.append("never"))
    with Queue("other", url=queue.url) as other, pytest.raises(ConnectionError):
        queue.handlers.include(first)
        other.handlers.include(second)
        WorkerGroup([queue, other]).run(burst=True)
    assert called == ["opened", "closed"]


def test_async_hooks_are_awaited_on_the_loop_of_the_async_handlers(queue: Queue) -> None:
    handlers, called = Handlers(), list[tuple[str, object]]()

    def note(word: str) -> None:
        try:
            called.append((word, asyncio.get_running_loop()))
        except RuntimeError:
            called.append((word, None))

    @handlers.hooks.on_start
    async def opens() -> None:
        await asyncio.sleep(0)
        note("open")

    @handlers.hooks.on_stop
    async def closes() -> None:
        await asyncio.sleep(0)
        note("close")

    @handlers.hooks.around
    async def session(job: Job) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        note("enter")
        try:
            yield
        except ValueError:
            note("leave with it")
            raise

    @handlers.hooks.around
    @asynccontextmanager
    async def transaction(job: Job) -> AsyncIterator[None]:
        note("begin")
        yield
        note("commit")

    @handlers.hooks.around
    def plain(job: Job) -> Iterator[None]:
        note("plain")
        yield

    @handlers("work")
    async def work(job: Job) -> None:
        note("run")
        if job.payload == "fail":
            raise ValueError("no")

    handlers("thread")(lambda job: note("thread"))

    @handlers("batch", batch=5)
    async def batch(jobs: list[Job]) -> None:
        note("run")

    for at, (name, payload) in enumerate((("work", "fine"), ("work", "fail"), ("thread", 1), ("batch", 1))):
        queue.enqueue(name, payload, id=f"{at}", priority=9 - at, attempts=1)
    Worker(queue, handlers, concurrency=1, sweep_ms=50).run(burst=True)
    assert [word for word, _ in called] == [
        "open", "enter", "begin", "plain", "run", "commit", "enter", "begin", "plain", "run", "leave with it", "plain", "thread",
        "enter", "begin", "plain", "run", "commit", "close",
    ]  # fmt: skip
    assert len({loop for _, loop in called} - {None}) == 1
    assert [word for word, loop in called if loop is None] == ["plain", "thread"], "a thread has no loop"
    assert ids_of(queue, "dead") == ["1"]


def test_an_async_hook_that_raises_is_a_failed_run_and_at_the_start_the_end(queue: Queue) -> None:
    handlers = Handlers()

    @handlers("work")
    async def work(job: Job) -> None: ...

    @handlers.hooks.around
    async def refuses(job: Job) -> AsyncIterator[None]:
        if job.id == "enter":
            raise PermissionError("not today")
        yield
        raise asyncio.CancelledError

    for job in ("enter", "leave"):
        queue.enqueue("work", 1, id=job, attempts=1)
    assert Worker(queue, handlers, sweep_ms=50).run(burst=True) == "empty" and sorted(ids_of(queue, "dead")) == ["enter", "leave"]
    assert [run_of(queue, job)["error"].partition(":")[0] for job in ("enter", "leave")] == ["PermissionError", "CancelledError"]

    @handlers.hooks.on_start
    async def connect() -> None:
        raise ConnectionError("no database")

    refused(ConnectionError, "", Worker(queue, handlers).run, burst=True)
    refused(ConnectionError, "", WorkerGroup([queue], handlers).run, burst=True)
    # It has left those of its server that it would have waited with: their thread ends.
    wait_until(lambda: "waits" not in {thread.name for thread in threading.enumerate()}, "nobody waits")
    assert not [thread.name for thread in threading.enumerate() if thread.name == "handlers-async"]


def test_what_cannot_be_a_hook_or_be_found_by_a_child_is_refused(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    local = Handlers()
    local.include(life.handlers)
    assert Worker(queue, local, processes=1), "it has no hooks of its own"
    local.hooks.before(lambda job: None)
    refused(Malformed, "^hooks: .*registered while a module is imported", Worker, queue, local, processes=1)
    assert Worker(queue, local), "threads find them"


def test_a_child_with_other_hooks_than_its_worker_is_not_used(queue: Queue, lived: Life, caplog: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(life.handlers.hooks, "_before", [])
    queue.enqueue("plain", "fine")
    with at_work(worker(queue, grace_ms=0)):
        wait_until(lambda: "register them where the module is imported" in caplog.text, "it is told")
    assert lived.marks("run") == [] and queue.counts().waiting == 1, "given back, since no child has had it"
