"""Every kind of handler in a real worker process: coroutines on a loop, plain functions in threads and in child processes."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from engine import ConnectOptions, Handlers, Job, Malformed, Queue, Worker
from engine.errors import describe
from engine.testing import EmbeddedServer
from engine.worker.child_processes import Child
from tests.engine.desk import write_run
from tests.engine.helpers import kinds_of_handlers as kinds
from tests.engine.helpers.processes import Workers, put, run_of, stopped
from tests.engine.helpers.schema import checked_rows
from tests.engine.using import DEADLINE_S, Lease, LeasedJob, Options, at_work, ids_of, refused, rows_of, some_handlers, wait_until

KINDS = "tests.engine.helpers.kinds_of_handlers:handlers"
INLINE = "tests.engine.helpers.inline_handlers:handlers"


def start(workers: Workers, *options: str, name: str = "worker-1") -> Any:
    return workers.start("--sweep-ms", "100", *options, name=name, handlers=KINDS)


def children_of(pid: int) -> set[int]:
    """Processes whose parent is this one, zombies not counted."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.add(int(path.parent.name))
    return found


# -- coroutines


def test_coroutines_run_side_by_side_on_one_loop_and_leave_a_whole_history(queue: Queue, workers: Workers) -> None:
    jobs, blocked = [f"j{number}" for number in range(40)], ["a", "b"]
    put(queue, workers, "async-hold", *jobs)
    put(queue, workers, "hold", *blocked)
    worker = start(workers, "--burst", "--concurrency", "43")
    wait_until(lambda: len(workers.marks("start")) == 42, "all of them run at once")
    put(queue, workers, "thread", "where")
    wait_until(lambda: workers.marks("handlers-async", "where"), "another one runs beside them")
    assert workers.marks("end") == []
    workers.open_gate()
    assert worker.wait(120) == 0
    assert sorted(mark.job for mark in workers.marks("end")) == sorted([*jobs, *blocked])
    counts = queue.counts()
    assert (counts.finished, counts.active, counts.waiting) == (43, 0, 0)
    rows = checked_rows(workers.history())
    assert rows[-1]["kind"] == "close"
    assert len([row for row in rows if row.get("f") == "handle" and row["type"] == "ok"]) == 43


def test_whatever_a_coroutine_does_to_its_task_ends_its_own_run_and_the_loop_goes_on(queue: Queue, workers: Workers) -> None:
    """Each has a task of its own: what one does to it does not reach the job that runs next in its place."""
    errors = {"value": "ValueError: no", "exit": "SystemExit: 3", "interrupt": "KeyboardInterrupt: "}
    errors |= {"cancel": "CancelledError: ", "stray exit": "ValueError: no"}
    tasks = [f"j{number}" for number in range(30)]
    for number, what in enumerate(errors):
        put(queue, workers, "async-raise", f"bad{number}", what=what, attempts=2, backoff_ms=0)
    put(queue, workers, "plain-returns-coroutine", "plain", attempts=1)
    put(queue, workers, "async-task", *tasks, what="cancel")
    put(queue, workers, "thread", "next", delay_ms=300)
    assert start(workers, "--burst", "--concurrency", "1").wait(120) == 0
    bad = [f"bad{number}" for number in range(len(errors))]
    assert [run_of(queue, job).get("error", "") for job in bad] == list(errors.values())
    assert [len(workers.marks("ran", job)) for job in bad] == [2] * len(bad)
    # A plain function that returns a coroutine has not finished either.
    assert run_of(queue, "plain").get("error", "").endswith("returned a coroutine: make it an async function")
    assert (sorted(ids_of(queue, "dead")), sorted(ids_of(queue, "done"))) == ([*bad, "plain"], sorted([*tasks, "next"]))
    assert [[mark.word for mark in workers.marks(job=job)] for job in tasks] == [["ran"]] * 30
    assert workers.marks(job="plain") == []


def test_a_function_that_follows_a_coroutine_runs_while_the_server_stands_still() -> None:
    """What was taken ahead needs no server: no reply is read in the one thread that it runs in."""
    handlers, ran = Handlers(), threading.Event()
    handlers("follows")(lambda job: ran.set())
    # No call gives the server up.
    endless = ConnectOptions(timeout_ms=600_000)
    with EmbeddedServer() as server, Queue("q", url=server.url, connect=endless) as queue:

        @handlers("stops")
        async def stops(job: Job) -> None:
            os.kill(server.pid, signal.SIGSTOP)

        queue.enqueue("stops", {}, priority=10)
        queue.enqueue("follows", {}, timeout_ms=200)
        with at_work(Worker(queue, handlers, concurrency=1, prefetch=8)):
            try:
                assert ran.wait(DEADLINE_S), "it waits for the server"
            finally:
                os.kill(server.pid, signal.SIGCONT)
            wait_until(lambda: queue.counts().finished == 2, "both are finished")


@pytest.mark.slow
def test_a_stop_waits_for_coroutines_and_after_its_grace_cancels_them(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "async-hold", "a")
    worker = start(workers, "--grace-ms", "300")
    wait_until(lambda: workers.marks("start"), "it runs")
    assert stopped(worker) == 71, "its grace was over"
    counts = queue.counts()
    assert (workers.marks("end"), counts.active, counts.waiting) == ([], 0, 1)
    state = run_of(queue, "a")
    assert (state.get("failures"), state.get("crashes"), state["outcome"]) == (None, None, "released")
    assert "job a (async-hold) goes back uncharged: its worker stops\n" in workers.output()
    assert "failed" not in workers.output() and "in hand: their leases" not in workers.output()
    rows = rows_of(workers.history())
    assert rows[-1]["kind"] == "close"
    assert [row["error"] for row in rows if row["f"] == "handle" and row["type"] == "fail"] == ["its worker stopped"]


@pytest.mark.slow
def test_what_a_stop_has_interrupted_goes_back_to_the_front_threads_keep_their_leases(queue: Queue, workers: Workers) -> None:
    """Of the deploy that hit four jobs: they run elsewhere at once, as the same attempt."""
    put(queue, workers, "async-hold", "a", "b", expires_ms=600_000)
    worker = start(workers, "--grace-ms", "300", "--concurrency", "2", "--lease-ms", "600000")
    wait_until(lambda: len(workers.marks("start")) == 2, "they run")
    put(queue, workers, "async-hold", "later")
    assert stopped(worker) == 71 and ids_of(queue, "waiting") == ["a", "b", "later"]
    put(queue, workers, "hold", "c", "d", priority=9)
    for name, options in {"child": ("--processes", "1"), "thread": ()}.items():
        fences = len(workers.marks("start"))
        given = ("--grace-ms", "300", "--concurrency", "1", "--lease-ms", "600000", "--prefetch", "0", *options)
        other = workers.start(*given, handlers=KINDS, name=name)
        wait_until(lambda before=fences: len(workers.marks("start")) > before, "it runs")
        assert stopped(other) == 71
        counts = queue.counts()
        assert (counts.active, counts.waiting) == ((1, 4) if name == "thread" else (0, 5)), name
    assert "stopped with 1 job in hand: leases will run out" in workers.output("thread")
    assert "goes back uncharged" in workers.output("child")


def test_a_generator_is_no_handler() -> None:
    def generator(job: Job) -> Any:
        yield

    async def async_generator(job: Job) -> Any:
        yield

    for made in (generator, async_generator):
        refused(Malformed, "^handler: .*without yield", Handlers()("work"), made)


def test_an_object_with_an_async_call_is_a_coroutine_handler() -> None:
    class Greeter:
        async def __call__(self, job: Job) -> None: ...

    handlers = Handlers()
    handlers("greet")(Greeter())
    handlers("plain")(lambda job: None)
    assert (handlers.is_coroutine("greet"), handlers.is_coroutine("plain")) == (True, False)


# -- child processes


def test_plain_functions_run_and_raise_in_child_processes_and_coroutines_stay(queue: Queue, workers: Workers) -> None:
    errors = {"raise": "ValueError: no", "exit": "SystemExit: 3"}
    put(queue, workers, "hold", "a", "b")
    worker = start(workers, "--burst", "--processes", "2")
    wait_until(lambda: len(workers.marks("start")) == 2, "both run")
    pids = {mark.pid for mark in workers.marks("start")}
    assert len(pids) == 2 and worker.pid not in pids and pids == children_of(worker.pid)
    assert {os.getsid(pid) for pid in pids} == pids, "Ctrl-C is for the worker alone"
    # Before the two end: a burst ends with the last job that it finds.
    put(queue, workers, "plain", "c", "d")
    put(queue, workers, "thread", "e")
    for name in errors:
        put(queue, workers, name, name, attempts=2, backoff_ms=0)
    workers.open_gate()
    wait_until(lambda: len(workers.marks("end")) == 2, "both end")
    assert worker.wait(120) == 0
    assert {mark.pid for mark in workers.marks("ran")} <= pids, "a child runs one job after another, whatever they raise"
    for job, error in errors.items():
        assert run_of(queue, job).get("error", "") == error and len(workers.marks("ran", job)) == 2
    assert workers.output().count("kinds_of_handlers.py") >= 4, "each traceback is logged"
    assert [mark.pid for mark in workers.marks(job="e")] == [worker.pid] and queue.counts().finished == 5
    rows = checked_rows(workers.history())
    assert len([row for row in rows if row.get("f") == "handle" and row["type"] == "ok"]) == 5
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "no child outlives the worker")


@pytest.mark.parametrize("what", ["orphan", pytest.param("", marks=pytest.mark.slow, id="alone")])
def test_a_child_that_dies_is_a_failed_run_of_its_own_job_only(queue: Queue, workers: Workers, what: str) -> None:
    """Also when it leaves a child of its own behind, which keeps the pipe open."""
    put(queue, workers, "hold", "neighbour")
    start(workers, "--processes", "2")
    wait_until(lambda: workers.marks("start", "neighbour"), "a neighbour runs")
    put(queue, workers, "die", "bad", what=what, attempts=2, backoff_ms=0)
    wait_until(lambda: queue.jobs.state("bad") == "dead", "its attempts are used up")
    assert run_of(queue, "bad").get("error", "") == "the process of the handler ended by SIGKILL"
    assert len({mark.pid for mark in workers.marks("ran", "bad")}) == 2, "each run had a process"
    put(queue, workers, "plain", "next")
    wait_until(lambda: workers.marks("ran", "next"), "the place is filled again")
    workers.open_gate()
    wait_until(lambda: queue.counts().finished == 2, "the neighbour was not disturbed")
    assert len(workers.marks("start", "neighbour")) == 1


@pytest.mark.slow
def test_a_function_that_holds_the_interpreter_lock_keeps_its_lease_in_a_child(queue: Queue, workers: Workers) -> None:
    """Rule 14: in a thread it would starve the renewals."""
    put(queue, workers, "grip", "a")
    # Longer than a busy machine stands still.
    start(workers, "--processes", "1", "--lease-ms", "6000")
    wait_until(lambda: len(rows_of(workers.history(), "operation", f="extend", type="ok")) >= 4, "renewals beyond one lease")
    workers.open_gate()
    wait_until(lambda: queue.counts().finished == 1, "it is finished")
    assert len(workers.marks("start")) == 1 and "lease with fence" not in workers.output()


@pytest.mark.parametrize(("names", "handlers", "options"), [
    (("async-hold", "hold"), KINDS, ("--processes", "2")), (("hold",), INLINE, ()),
], ids=["coroutine and child", "inline"])  # fmt: skip
def test_a_handler_hears_that_its_lease_is_lost(
    queue: Queue, workers: Workers, names: tuple[str, ...], handlers: str, options: tuple[str, ...], client: Any
) -> None:
    for name in names:
        put(queue, workers, name, name)
    workers.start("--sweep-ms", "100", "--lease-ms", "600", *options, handlers=handlers)
    wait_until(lambda: {mark.job for mark in workers.marks("start")} == set(names), "they run")
    for name in names:
        write_run(client, queue.model.keys.run(name), nonce="somebody-else")
    wait_until(lambda: workers.output().count("lease with fence") >= len(names), "each loss is logged")
    if "hold" in names:
        wait_until(lambda: workers.marks("lost", "hold"), "the function hears it")
    if "async-hold" in names:
        workers.open_gate()
        wait_until(lambda: workers.marks("lost", "async-hold"), "the coroutine hears it")


def runs_handlers(pid: int) -> bool:
    try:
        return b"handler_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        # It has ended meanwhile.
        return False


def test_a_child_that_does_not_read_holds_up_nobody(tmp_path: Path) -> None:
    """Its pipe takes less than a payload may hold, so the sender waits; those who decide and who stop must not."""
    child, before = Child(lambda said: None), children_of(os.getpid())
    child.start()
    pid = wait_until(lambda: next(filter(runs_handlers, children_of(os.getpid()) - before), 0), "the child")
    lease = Lease("big", 1, "n:1")
    job = LeasedJob(lease, 0, "plain", "main", "main", json.dumps("x" * 480_000).encode(), Options(), 0, 0, 1, 0, 0)
    os.kill(pid, signal.SIGSTOP)
    told: list[object] = []
    handler = ("tests.engine.helpers.kinds_of_handlers", "plain")
    running = threading.Thread(target=lambda: told.append(child.run(handler, job, ())))
    running.start()
    wait_until(lambda: child.busy, "the job is on its way into the pipe")
    child.lose(lease, cancelled=False)
    stopping = threading.Thread(target=child.close)
    stopping.start()
    for thread in (stopping, running):
        thread.join(120)
        assert not thread.is_alive()
    assert told and told[0] is not None


def test_a_failure_whose_text_cannot_be_had_is_named_by_its_type() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert describe(Unspeakable()) == "Unspeakable"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["SIGKILL", "grace"])
def test_no_child_outlives_its_worker(queue: Queue, workers: Workers, end: str) -> None:
    """Also one whose handler holds the interpreter lock, so that it cannot see its pipe close."""
    put(queue, workers, "grip", "a", what="long")
    put(queue, workers, "hold", "b")
    worker = start(workers, "--processes", "2", "--grace-ms", "200")
    wait_until(lambda: len(workers.marks("start")) == 2, "both run")
    pids = {mark.pid for mark in workers.marks("start")}
    if end == "SIGKILL":
        worker.kill()
    else:
        worker.terminate()
    assert worker.wait(120) == (-signal.SIGKILL if end == "SIGKILL" else 71)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the children are gone")


def test_no_child_outlives_a_run_inside_a_process_that_goes_on(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "grip", "a", what="long")
    with at_work(Worker(queue, kinds.handlers, processes=1, sweep_ms=100, grace_ms=100)):
        (mark,) = wait_until(lambda: workers.marks("start"), "it runs")
        assert mark.pid in children_of(os.getpid())
    wait_until(lambda: not Path(f"/proc/{mark.pid}").exists(), "the child is gone")


def test_a_handler_that_a_child_would_not_find_is_refused_before_any_io(queue: Queue) -> None:
    handlers = some_handlers(name="local")
    refused(Malformed, "^handlers: .*functions of importable modules", Worker, queue, handlers, processes=1)
    Worker(queue, handlers)
    coroutines = Handlers()

    @coroutines("local")
    async def local(job: Job) -> None: ...

    Worker(queue, coroutines, processes=1)


@pytest.mark.slow
def test_a_worker_runs_coroutines_and_functions_where_gevent_has_patched_the_process(workers: Workers, queue: Queue) -> None:
    """A Locust consumer is such a process: threads are greenlets there, and each run has a context of its own all the same."""
    put(queue, workers, "leaves", *(f"p{number}" for number in range(5)))
    put(queue, workers, "thread", "c")
    patched = "from gevent import monkey; monkey.patch_all()\nimport sys; sys.argv[0] = 'engine'\n"
    program = patched + "from engine.__main__ import main; sys.exit(main(sys.argv[1:]))"
    worker = workers.start("--burst", "--sweep-ms", "100", "--concurrency", "1", handlers=KINDS, program=program)
    assert worker.wait(120) == 0, workers.output()
    assert len(workers.marks("ran")) == 5 and queue.counts().finished == 6
    assert {mark.pid for mark in workers.marks()} == {worker.pid} != {os.getpid()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fork", "async-fork", "fork-inline", "in a process"])
def test_a_process_that_a_handler_forks_ends_with_the_handler(queue: Queue, workers: Workers, kind: str) -> None:
    """It is no worker: it runs no other job, and what came of it there is not told."""
    name = "fork" if kind == "in a process" else kind
    for what in ("return", "exit", "raise"):
        put(queue, workers, name, *(f"{what}{number}" for number in range(3)), what=what)
    options = ("--burst", "--concurrency", "1", "--sweep-ms", "100")
    processes = ("--processes", "1") if kind == "in a process" else ()
    handlers = INLINE if kind == "fork-inline" else KINDS
    assert workers.start(*options, *processes, handlers=handlers).wait(120) == 0, workers.output()
    counts = queue.counts()
    assert (counts.finished, counts.dead, counts.active) == (9, 0, 0)
    for what, code in {"return": 0, "exit": 3, "raise": 1}.items():
        for number in range(3):
            assert [mark.word for mark in workers.marks("", f"{what}{number}")] == ["ran", f"child-{code}"], workers.output()


def test_concurrency_beside_processes_is_refused_because_it_would_be_dropped(queue: Queue) -> None:
    with pytest.raises(Malformed, match=r"concurrency: 8 .* processes=2 says how many run at once"):
        Worker(queue, kinds.handlers, processes=2, concurrency=8)
    fitting: list[Any] = [{"processes": 2, "concurrency": 2}, {"processes": 0, "concurrency": 8}, {"processes": 2}]
    for settings in fitting:
        assert Worker(queue, kinds.handlers, **settings)
