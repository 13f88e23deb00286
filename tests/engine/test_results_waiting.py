"""Waiting for results: no wake-up is lost, whenever a job ends and whatever becomes of the connection; both faces."""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine import AsyncQueue, Bury, Discard, Handlers, Job, JobFailed, Malformed, Queue, Worker
from engine.errors import ServerUnavailable, TimedOut, UnknownJob, WrongKeyType
from engine.queue import results
from engine.testing import EmbeddedServer
from tests.engine.using import DEADLINE_S, Relay, Seen, Workers, at_work, refused, wait_until

pytestmark = pytest.mark.feature("BN06", "BN15")


handlers = Handlers()


@handlers("add")
@handlers("add-inline", inline=True)
def add(job: Job) -> object:
    """What a plain function returns."""
    return job.payload["a"] + job.payload["b"]


@handlers("add-async")
async def add_async(job: Job) -> object:
    return add(job)


@handlers("nothing")
def nothing(job: Job) -> None:
    pass


ERRORS = {"raise": ValueError("no such luck"), "discard": Discard("not wanted"), "bury": Bury("beyond help")}


@handlers("raise")
@handlers("discard")
@handlers("bury")
def throw(job: Job) -> None:
    raise ERRORS[job.name]


@handlers("unspeakable")
def unspeakable(job: Job) -> object:
    return {1, 2}


@handlers("steps")
def steps(job: Job) -> None:
    """Tell the progress, and wait until the queue that it names has it."""
    bad: dict[str, Any]
    for bad in ({"percent": 101}, {"percent": True}, {"percent": 1, "message": 7}, {"percent": 1, "data": {1, 2}}):
        refused(Malformed, None, job.progress, **bad)
    with Queue("q", url=job.payload) as queue:
        for percent in range(0, 99, 7):
            job.progress(percent)
        job.progress(99.5, "nearly", {"rows": []})
        wait_until(lambda: (found := queue.results.progress(job.id)) and found.percent == 99.5, "it is noted")
        wait_until(lambda: queue.results.get("may-end"), "somebody has seen it")


@handlers("steps-async")
async def steps_async(job: Job) -> None:
    await asyncio.to_thread(steps, job)


@pytest.fixture
def worker(queue: Queue) -> Any:
    """A worker in a thread of this process."""
    with Queue("q", url=queue.url) as own, at_work(made := Worker(own, handlers, sweep_ms=100)):
        yield made


async def test_a_job_whose_end_cannot_be_read_stops_no_other_wait(queue: Queue, worker: Worker, client: Any) -> None:
    for id in ("bad", "odd", "good"):
        queue.enqueue("add", {"a": 1, "b": 2}, id=id)
        queue.results.wait(id)
    client.set(queue.model.keys.result("bad"), b"[" * 100_000)
    client.delete(queue.model.keys.result("odd"))
    client.lpush(queue.model.keys.result("odd"), "x")
    async with AsyncQueue("q", url=queue.url) as many:
        await many.enqueue("add", {"a": 1, "b": 2}, id="late", delay_ms=50)
        waits = [many.results.wait(id) for id in ("bad", "odd", "good", "none", "late")]
        found: list[Any] = await asyncio.gather(*waits, return_exceptions=True)
    bad, odd, good, none, late = found
    assert "cannot be read" in bad.unreadable and isinstance(odd, WrongKeyType) and isinstance(none, UnknownJob)
    assert (good.value, late.value) == (3, 3)


@pytest.mark.parametrize("name", ["add", "add-inline", "add-async"])
def test_a_call_returns_what_the_handler_returned(worker: Worker, face: Any, name: str) -> None:
    for number in range(20):
        assert face.call(name, {"a": number, "b": 1}) == number + 1
    assert face.call(name, {"a": ["ä"], "b": [None]}, id="mine") == ["ä", None]
    assert face.results.get("mine").value == ["ä", None] and face.call("nothing", 1) is None


def test_a_call_of_a_job_that_is_there_waits_for_that_one(worker: Worker, face: Any) -> None:
    assert face.call("add", {"a": 1, "b": 1}, id="mine") == face.call("add", {"a": 5, "b": 5}, id="mine") == 2
    assert face.call("add", {"a": 1, "b": 2}, dedup="d", dedup_ms=60_000) == 3
    assert face.call("add", {"a": 9, "b": 9}, dedup="d", dedup_ms=60_000) == 3


def test_a_call_of_a_job_that_dies_raises_its_error(worker: Worker, face: Any) -> None:
    failed = refused(JobFailed, "ValueError: no such luck", face.call, "raise", 1, attempts=1, id="mine")
    assert (failed.job, failed.outcome) == ("mine", "dead")
    # A result that is no JSON: the handler has run, and its run has failed all the same.
    said = "Malformed: result: .* must be a JSON value of at most 524288 bytes"
    refused(JobFailed, said, face.call, "unspeakable", 1, attempts=1)
    assert face.call("unspeakable", 1, attempts=1, result_ttl_ms=0) is None


def test_a_wait_that_comes_to_nothing_says_why(face: Any) -> None:
    refused(UnknownJob, "job none", face.results.wait, "none")
    assert face.results.get("none") is None
    before_s = time.monotonic()
    refused(TimedOut, "150 ms", face.results.wait, face.enqueue("add", 1).job, wait_ms=150)
    assert time.monotonic() - before_s >= 0.15
    timed_out = refused(TimedOut, "", face.call, "add", 1, wait_ms=0)
    # The job goes on, and this is how to find it again: an id that nobody knows would be UnknownJob.
    again = refused(TimedOut, "", face.results.wait, timed_out.job, wait_ms=1)
    assert again.job == timed_out.job and (timed_out.wait_ms, again.wait_ms) == (0, 1)
    for bad in ("", "two words", 7, "x" * 257):
        refused(Malformed, "id", face.results.wait, bad)
    for bad in (-1, None, "1"):
        refused(Malformed, "wait_ms", face.results.wait, "none", wait_ms=bad)


def test_a_wait_is_not_over_before_its_last_part_of_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(results, "time", SimpleNamespace(monotonic=lambda: now_s))
    waiting, pending, away = results.Waiting("j", 125), Seen(1, "pending", 0, 0, b"", ""), ServerUnavailable("away")
    assert (waiting.block_ms, results.Waiting("j", 60_000).block_ms) == (125, results.BLOCK_MS)
    now_s += 0.1245
    waiting.failed(away)
    assert waiting.take(pending) is None and (waiting.left_ms, waiting.block_ms) == (1, 1)
    now_s += 0.001
    refused(ServerUnavailable, "^away$", waiting.failed, away)
    refused(TimedOut, "125 ms", waiting.take, pending)


@pytest.mark.slow
def test_the_pool_of_processes_brings_results_back(workers: Workers, queue: Queue) -> None:
    workers.start("--processes", "1", handlers="tests.engine.test_results_waiting:handlers")
    assert queue.call("add", {"a": 20, "b": 22}, wait_ms=120_000) == 42, "it starts first"
    refused(JobFailed, "no such luck", queue.call, "raise", 1, attempts=1)
    refused(JobFailed, "Malformed: result", queue.call, "unspeakable", 1, attempts=1)


@pytest.mark.slow
@pytest.mark.feature("BQ25", "BL11")
@pytest.mark.parametrize("name", ["steps", "steps-async", "in a process"])
def test_progress_is_seen_while_the_handler_runs(
    name: str, request: pytest.FixtureRequest, face: Any, queue: Queue, workers: Workers
) -> None:
    if name == "in a process":
        workers.start("--processes", "2", handlers="tests.engine.test_results_waiting:handlers")
        name = "steps"
    else:
        request.getfixturevalue("worker")
    job = queue.enqueue(name, queue.url, attempts=1).job
    found = wait_until(lambda: (seen := face.results.progress(job)) and seen.percent == 99.5 and seen, "it is seen")
    assert (found.message, found.data, found.at_ms > 10**12) == ("nearly", {"rows": []}, True)
    queue.call("nothing", 1, id="may-end")
    assert queue.results.wait(job).get() is None and face.results.progress(job) is None


ENDS = {"nothing": "finished", "discard": "discarded", "bury": "dead", "cancelled": "cancelled"}


@pytest.mark.usefixtures("late_looks")
@pytest.mark.parametrize(("name", "outcome"), ENDS.items())
def test_whatever_ends_a_job_wakes_who_waits_for_it(
    name: str, outcome: str, queue: Queue, request: pytest.FixtureRequest, client: Any
) -> None:
    job = queue.enqueue(name, 1).job
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.results.wait, job)
        wait_until(lambda: client.exists(f"{queue.model.keys.prefix}waits:{job}"), "it waits")
        if name == "cancelled":
            assert queue.jobs.cancel(job).done
        else:
            request.getfixturevalue("worker")
        assert waiting.result(DEADLINE_S).outcome == outcome


@pytest.mark.usefixtures("late_looks")
def test_no_wake_up_is_lost_whenever_the_wait_begins(worker: Worker, queue: Queue) -> None:
    """A lost one would cost the minute until the next look."""
    dice, longest = random.Random(7), list[float]()

    def wait(ids: list[str], results: Queue) -> None:
        for job in ids:
            before_s = time.monotonic()
            assert results.results.wait(job).ok
            longest.append(time.monotonic() - before_s)

    ids = [queue.enqueue("add", {"a": 1, "b": 1}, delay_ms=dice.choice((0, 0, 1, 5, 20))).job for _ in range(400)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda start: wait(ids[start::4], queue), range(4)))
    assert len(longest) == 400 and max(longest) < DEADLINE_S


@pytest.mark.usefixtures("late_looks")
def test_no_wake_up_is_lost_when_many_tasks_wait_over_one_connection(worker: Worker, queue: Queue) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        async with AsyncQueue("q", url=queue.url) as made:

            async def one(number: int) -> None:
                await asyncio.sleep(random.Random(number).random() / 5)
                assert await made.call("add", {"a": number, "b": 1}) == number + 1

            await asyncio.gather(*[one(number) for number in range(400)])
            # Two that wait for the same job.
            job = (await made.enqueue("add", {"a": 1, "b": 1}, delay_ms=50)).job
            values = [result.value for result in await asyncio.gather(made.results.wait(job), made.results.wait(job))]
            assert values == [2, 2] and not cast("Any", made.results)._listeners["q"]._of_loops.here()._by_job
            listening: Any = await made.driver._connections.take(0)  # pyright: ignore[reportPrivateUsage]
            await listening.send_command("CLIENT", "LIST")
            lines = (await listening.read_response()).decode().splitlines()
            assert sum("cmd=xread" in line and " flags=b" in line for line in lines) <= 1
            await listening.disconnect()
        assert asyncio.all_tasks() == before, "the one that listened has ended"

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


def test_tasks_of_two_loops_wait_over_a_connection_for_each(queue: Queue, client: Any) -> None:
    loops = [asyncio.new_event_loop() for _ in range(2)]
    threads = [threading.Thread(target=loop.run_forever, daemon=True) for loop in loops]
    for thread in threads:
        thread.start()
    made = AsyncQueue("q", url=f"{queue.url}?client_name=of-loops")

    async def waits(job: str) -> tuple[str, str]:
        result = await made.results.wait(job)
        return result.job, result.outcome

    listening = list[int]()

    def blocked() -> int:
        listening.append(sum(each["cmd"] == "xread" and "b" in each["flags"] for each in client.client_list()))
        return listening[-1]

    jobs, waiting = [queue.enqueue("add", number).job for number in range(10)], list[Any]()
    for number, job in enumerate(jobs):
        waiting.append(asyncio.run_coroutine_threadsafe(waits(job), loops[number % 2]))
        wait_until(lambda job=job: client.exists(queue.model.keys.prefix + "waits:" + job), "it waits")
    # What has looked listens already, or begins to at once.
    client.ping()
    wait_until(lambda: blocked() == 2, "both listen")
    for job in jobs:
        assert queue.jobs.cancel(job).done
    assert [each.result(DEADLINE_S) for each in waiting] == [(job, "cancelled") for job in jobs]
    assert max(listening) == 2, "ten waits"
    for loop, thread in zip(loops, threads, strict=True):
        asyncio.run_coroutine_threadsafe(made.close(), loop).result(DEADLINE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE_S)
        loop.close()
    wait_until(lambda: "of-loops" not in {one["name"] for one in client.client_list()}, "its connections are closed")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_wait_outlives_its_connections(worker: Worker, queue: Queue, ironclaim_server: EmbeddedServer, kind: str) -> None:
    """All of them are cut again and again; a wake-up that was on its way is read again."""
    over = threading.Event()
    with Relay(ironclaim_server.port) as relay:

        def cut() -> None:
            # Each time a little later than the last one: on a slow machine nothing comes through in the first moments.
            pause_s = 0.05
            while not over.wait(pause_s):
                pause_s *= 1.1
                relay.down()
                relay.up()

        cutting = threading.Thread(target=cut)
        cutting.start()
        try:
            jobs = [queue.enqueue("add", {"a": number, "b": 1}, delay_ms=number * 10).job for number in range(60)]
            if kind == "sync":
                with Queue("q", url=relay.url) as cut_off:
                    values = [cut_off.results.wait(job).value for job in jobs]
            else:

                async def main() -> list[Any]:
                    async with AsyncQueue("q", url=relay.url) as made:
                        return [result.value for result in await asyncio.gather(*map(made.results.wait, jobs))]

                values = asyncio.run(main())
        finally:
            over.set()
            cutting.join()
    assert values == [number + 1 for number in range(60)]


def test_nothing_is_left_of_waits_but_what_expires(worker: Worker, queue: Queue, client: Any) -> None:
    # Held back until the call has registered: a job that has ended before needs no stream.
    queue.pause()
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(queue.call, "add", {"a": 1, "b": 1})
        wait_until(lambda: client.keys("*:waits:*"), "the call has registered")
        queue.resume()
        assert called.result(DEADLINE_S) == 2
    wait_until(lambda: not client.keys("*:waits:*"), "the registration is taken back")
    (stream,) = client.keys("*:wait:*")
    assert 0 < client.pttl(stream) <= 60_000
