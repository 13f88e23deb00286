"""A server that refuses, stands still, restarts, or holds keys that are not the engine's: the operation says which, nothing is
lost, and a worker goes on by itself when the cause is gone (rules 1 and 2)."""

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from engine import ConnectOptions, OutcomeUnknown, Queue, ServerUnavailable
from engine.ops.claims import Bury, Drop, Extend, Failure, Finish, Release, Retry
from engine.testing import EmbeddedServer, server_binary, start_guarded
from tests.engine.using import DEADLINE_S, LEASE_MS, Desk, Workers, bound, kill, raw_client, refused, wait_until

#: How a state begins and ends: generators that stop in the middle.
State = Callable[[EmbeddedServer, Any], Iterator[None]]


def out_of_memory(_server: EmbeddedServer, client: Any) -> Iterator[None]:
    client.config_set("maxmemory", 1)
    yield
    client.config_set("maxmemory", 0)


def read_only(_server: EmbeddedServer, client: Any) -> Iterator[None]:
    """A replica of a server that is not there keeps its data and refuses writes."""
    with bound(0) as nobody:
        client.execute_command("REPLICAOF", *nobody.getsockname())
        yield
        client.execute_command("REPLICAOF", "NO", "ONE")


def busy_script(server: EmbeddedServer, client: Any) -> Iterator[None]:
    client.config_set("busy-reply-threshold", 20)

    def loop() -> None:
        with raw_client(server.url) as other, contextlib.suppress(redis.RedisError):
            other.eval("while true do end", 0)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()

    wait_until(lambda: "BUSY" in said(client), "the script runs")
    yield
    client.script_kill()
    thread.join(DEADLINE_S)


def said(client: Any) -> str:
    """The error of a read, nothing if there is none."""
    try:
        client.get("any")
    except redis.RedisError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def cannot_save(server: EmbeddedServer, client: Any) -> Iterator[None]:
    """A failed snapshot makes the server refuse writes."""
    folder = Path(client.config_get("dir")["dir"])
    shutil.rmtree(folder)
    client.config_set("save", "3600 1")
    client.set("changed", 1)
    with contextlib.suppress(redis.RedisError):
        client.bgsave()
    wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "the snapshot has failed")
    yield
    client.config_set("save", "")
    folder.mkdir()


def scripts_flushed(_server: EmbeddedServer, client: Any) -> Iterator[None]:
    stop = threading.Event()

    def flush() -> None:
        while not stop.wait(0.01):
            client.script_flush()

    thread = threading.Thread(target=flush)
    thread.start()
    yield
    stop.set()
    thread.join()


STATES: dict[str, tuple[State, str]] = {
    "OOM": (out_of_memory, "OOM"), "READONLY": (read_only, "READONLY"), "BUSY": (busy_script, "BUSY"),
    "MISCONF": (cannot_save, "MISCONF"), "NOSCRIPT": (scripts_flushed, ""),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", STATES)
@pytest.mark.feature("BL33", "BN30")
def test_a_worker_goes_on_by_itself_after_the_server_has_refused(name: str, tmp_path: Path) -> None:
    """A handler ends while the server refuses, jobs wait and fall due: each is run once and finished once."""
    state, word = STATES[name]
    (tmp_path / "server").mkdir()
    with EmbeddedServer(folder=tmp_path / "server") as server, raw_client(server.url) as client:
        payload = {"folder": str(tmp_path)}
        with Workers(tmp_path, server.url) as workers, Queue("q", url=server.url) as queue:
            # The server refuses for less than a lease, however long that takes here.
            worker = workers.start("--sweep-ms", "100", "--lease-ms", "600000")
            queue.enqueue("hold", payload, id="runs")
            wait_until(lambda: workers.marks("start"), "a handler runs")
            queue.enqueue("mark", payload, id="due", delay_ms=300)
            entered = state(server, client)
            next(entered)
            if word:
                with Queue("q", url=server.url, connect=IMPATIENT) as hurried:
                    enqueue = partial(hurried.enqueue, "mark", payload, id="refused")
                    wait_until(lambda: word in refusal(enqueue), "the refusal says why")
            workers.open_gate()
            wait_until(lambda: workers.marks("end"), "its handler ends")
            if word not in ("", "OOM"):
                wait_until(lambda: word in workers.output(), "the worker says why")
            next(entered, None)
            queue.enqueue("mark", payload, id="later")
            wait_until(lambda: queue.counts().finished == 3, "all are finished")
            assert worker.poll() is None
            assert sorted(mark.job for mark in workers.marks() if mark.word in ("ran", "end")) == ["due", "later", "runs"]
            counts = queue.counts()
            assert (counts.waiting, counts.delayed, counts.active, counts.dead) == (0, 0, 0, 0)


#: Of calls that fail. On a busy machine the last error before the deadline may be that there was no answer.
IMPATIENT = ConnectOptions(deadline_ms=200)


def refusal(use: Callable[[], object]) -> str:
    """What a call says that fails."""
    return str(refused((ServerUnavailable, OutcomeUnknown), "", use))


@pytest.mark.slow
def test_a_worker_waits_for_a_server_that_loads_its_data(tmp_path: Path, closed_port: int) -> None:
    """The server is killed with a snapshot behind it, and loads that slowly: LOADING is a state like any other."""
    port, folder = closed_port, tmp_path / "server"
    folder.mkdir()
    payload, jobs = {"folder": str(tmp_path), "filler": "x" * 3000}, [f"j{number}" for number in range(100)]
    with Workers(tmp_path, f"redis://127.0.0.1:{port}/0") as workers:
        # A server that loads looks at its clients each so many bytes: a snapshot that is small is loaded without a look.
        with EmbeddedServer(port=port, folder=folder, flags=("--rdbcompression", "no")) as server:
            queue = Queue("q", url=server.url)
            queue.pause()
            queue.enqueue_many([{"name": "mark", "payload": payload, "id": job} for job in jobs])
            worker = workers.start("--sweep-ms", "100")
            wait_until(lambda: queue.workers.list(), "the worker is there")
            with raw_client(server.url) as client:
                client.save()
        # 20 s, unless the test is through with it before.
        slow = ("--key-load-delay", "200000", "--loading-process-events-interval-bytes", "1024")
        with _started_slowly(port, folder, slow) as client:
            wait_until(lambda: "BusyLoading" in said(client), "it loads")
            hurried = Queue("q", url=workers.url, connect=IMPATIENT)
            wait_until(lambda: "LOADING" in refusal(hurried.counts), "the refusal says why")
            client.config_set("key-load-delay", 0)
            wait_until(lambda: "BusyLoading" not in said(client), "it has loaded")
            queue = Queue("q", url=workers.url)
            queue.resume()
            wait_until(lambda: queue.counts().finished == len(jobs), "all are finished")
            assert worker.poll() is None and sorted(mark.job for mark in workers.marks("ran")) == sorted(jobs)


@contextlib.contextmanager
def _started_slowly(port: int, folder: Path, flags: tuple[str, ...]) -> Iterator[Any]:
    """A server that does not answer at once, which an EmbeddedServer is not left before."""
    words = [str(server_binary(None)), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *flags]
    with (folder / "slow.log").open("wb") as log:
        process = start_guarded(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        with raw_client(f"redis://127.0.0.1:{port}/0") as client:
            yield client
    finally:
        kill(process)


# -- keys of another type


def leased(desk: Desk, *jobs: str) -> Any:
    return tuple(job.lease for job in desk.leased(*jobs))


def taken(desk: Desk, which: str, job: str) -> str:
    """The key of this job or of its run, which holds a list of somebody else now; what was there is aside."""
    key = getattr(desk.keys, which)(job)
    if desk.redis.exists(key):
        desk.redis.rename(key, "aside")
    desk.redis.rpush(key, "x")
    return key


#: What ends or keeps leases, and the answers about one whose job or run cannot be read: what the run does not say is not applied.
ANSWERS = {
    "finish": ("ok", "stale"), "retry": ("stale", "stale"), "bury": ("ok", "stale"),
    "release": ("stale", "stale"), "extend": ("ok", "stale"), "drop": ("stale", "stale"),
}  # fmt: skip


@pytest.mark.parametrize("which", ["job", "run"])
@pytest.mark.parametrize("by", ANSWERS)
def test_what_ends_or_keeps_leases_is_applied_to_the_neighbours_of_an_unreadable_one(desk: Desk, by: str, which: str) -> None:
    bad, good = leased(desk, "bad", "good")
    key = taken(desk, which, "bad")
    operation: Any = {
        "finish": Finish((bad, good)), "retry": Retry((Failure(bad, "no", 0), Failure(good, "no", 0))),
        "bury": Bury((Failure(bad, "no", 0), Failure(good, "no", 0))), "release": Release((bad, good)),
        "extend": Extend((bad, good), 1, LEASE_MS, desk.now_ms + LEASE_MS), "drop": Drop((bad, good), ("discarded", "discarded")),
    }[by]  # fmt: skip
    assert (told := [item[0] for item in desk.run(operation).items]) == [ANSWERS[by][which == "run"], "ok"]
    if (by, which) != ("finish", "job"):
        assert desk.redis.lrange(key, 0, -1) == [b"x"], "it belongs to somebody else"
        desk.redis.rename("aside", key)
    # The same call again: it ends the one that it could not read, now that its key is back, and the other one not twice.
    assert [item[0] for item in desk.run(operation).items] == ["ok" if told[0] == "stale" else "repeated", "repeated"]


@pytest.mark.parametrize("which", ["job", "run"])
def test_a_sweep_takes_the_leases_beside_one_that_cannot_be_read(desk: Desk, which: str) -> None:
    leased(desk, "bad", "good")
    key = taken(desk, which, "bad")
    desk.sweep_past(LEASE_MS + 1)
    assert [job.lease.job for job in desk.claim("b")] == ["good"] and desk.redis.zrange(desk.keys.dead, 0, -1) == [b"bad"]
    assert desk.redis.lrange(key, 0, -1) == [b"x"], "it belongs to somebody else"


@pytest.mark.parametrize("which", ["job", "run"])
def test_admin_actions_reach_the_jobs_beside_one_that_cannot_be_read(desk: Desk, which: str) -> None:
    for first, second in (("bad", "good"), ("bad2", "good2")):
        bad, good = leased(desk, first, second)
        desk.run(Bury((Failure(bad, "no", 0), Failure(good, "no", 0))))
        taken(desk, which, first)
    queue = desk.queue
    assert queue.dead.requeue_all() == 2 and [job.lease.job for job in desk.claim("b")] == ["good", "good2"]
    assert sorted(desk.redis.zrange(desk.keys.dead, 0, -1)) == [b"bad", b"bad2"]
    assert queue.dead.discard("bad").result == "done" and queue.dead.clear() == 1
    for job in ("bad", "bad2"):
        assert desk.redis.lrange(getattr(desk.keys, which)(job), 0, -1) == [b"x"], "it belongs to somebody else"


@pytest.mark.parametrize("which", ["job", "run"])
def test_a_claim_sets_a_job_aside_whose_key_it_cannot_read_and_leases_its_neighbour(desk: Desk, which: str) -> None:
    desk.enqueue("j1", "j2")
    key = taken(desk, which, "j1")
    assert [job.lease.job for job in desk.claim()] == ["j2"] and desk.redis.zrange(desk.keys.dead, 0, -1) == [b"j1"]
    assert desk.redis.lrange(key, 0, -1) == [b"x"], "it belongs to somebody else"
    (info,) = desk.queue.dead.list()
    assert info.id == "j1" and (info.unreadable if which == "job" else "cannot be read" in info.last_error)
    # Its own key is back: it can be run again.
    desk.redis.delete(key)
    if which == "job":
        desk.redis.rename("aside", key)
    assert desk.queue.dead.requeue("j1") and [job.lease.job for job in desk.claim()] == ["j1"]


def test_a_worker_sends_a_finish_until_the_foreign_key_is_gone(queue: Queue, workers: Workers, client: Any) -> None:
    payload = {"folder": str(workers.folder)}
    worker = workers.start("--sweep-ms", "100", "--lease-ms", "600000")
    queue.enqueue("hold", payload, id="a")
    wait_until(lambda: workers.marks("start"), "the handler runs")
    client.set(queue.model.keys.done, "somebody else's")
    workers.open_gate()
    wait_until(lambda: f"the key {queue.model.keys.done} is a string, it must be a zset" in workers.output(), "it is named")
    queue.enqueue("mark", payload, id="b")
    client.delete(queue.model.keys.done)
    wait_until(lambda: queue.counts().finished == 2, "both are finished")
    assert [mark.job for mark in workers.marks("start")] == ["a"] and len(workers.marks("ran")) == 1
    assert workers.output().count("WRONGTYPE") < 10, "the same reason is not told with each try"
    assert worker.poll() is None


# -- half of a job


@pytest.mark.parametrize("state", ["lane", "due", "active"])
def test_an_index_entry_without_a_job_is_skipped_and_forgotten(desk: Desk, state: str) -> None:
    desk.enqueue("gone", delay_ms=50 if state == "due" else 0)
    if state == "active":
        desk.claim()
    desk.redis.delete(desk.keys.job("gone"), desk.keys.run("gone"))
    desk.enqueue("good").past(LEASE_MS + 1).sweep()
    assert [job.lease.job for job in desk.claim("b")] == ["good"]
    assert desk.redis.zcard(desk.keys.active) == 1 and desk.redis.zcard(desk.keys.due) == 0
    assert desk.redis.zcard(desk.keys.lane("main")) == 0 and desk.places("gone") == set()
