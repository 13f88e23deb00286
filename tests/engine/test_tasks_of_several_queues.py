"""Tasks of several queues: one worker for all of them, registries that are joined, a function that is a job of two queues, and
tasks that functions and coroutines enqueue alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
import redis
import redis.asyncio

from engine import AsyncQueue, ConnectOptions, Handlers, Job, Malformed, NewJob, Queue, Task, Worker, WorkerGroup, models
from engine.queue.settings import asynchronous, synchronous
from engine.testing import run_all
from tests.engine.using import at_work, ids_of, raises, refused


@pytest.fixture
def mails(ironclaim_url: str) -> Iterator[Queue]:
    with Queue("mails", url=ironclaim_url) as made:
        yield made


@pytest.fixture
def bills(ironclaim_url: str) -> Iterator[Queue]:
    with Queue("bills", url=ironclaim_url) as made:
        yield made


def adding(queue: Queue | AsyncQueue, ran: list[Any], name: str = "add") -> Task[[int], int]:
    @queue.job(name, attempts=5)
    def add(number: int) -> int:
        ran.append((queue.name, number))
        return number + 1

    return add


# -- one worker


@pytest.mark.parametrize("kinds", [(Queue, Queue), (AsyncQueue, Queue), (AsyncQueue, AsyncQueue)])
def test_a_group_gives_each_queue_its_own_tasks(ironclaim_url: str, kinds: tuple[Any, Any]) -> None:
    ran: list[Any] = []
    pair = [kind(name, url=ironclaim_url) for kind, name in zip(kinds, ("mails", "bills"), strict=True)]
    for number, add in enumerate([adding(queue, ran) for queue in pair]):
        add.enqueue(number)
    # One name, two functions: each queue has its own.
    assert WorkerGroup(pair, sweep_ms=50).run(burst=True) == "empty"
    assert sorted(ran) == [("bills", 1), ("mails", 0)]
    for queue in pair:
        asyncio.run(queue.aclose())


def test_a_group_may_run_some_of_the_names(mails: Queue, bills: Queue) -> None:
    ran: list[Any] = []
    for queue, names in ((mails, ("send", "count")), (bills, ("pay", "count"))):
        for name in names:
            adding(queue, ran, name).enqueue(1)
    WorkerGroup([mails, bills], names=["send", "pay"], sweep_ms=50).run(burst=True)
    assert sorted(ran) == [("bills", 1), ("mails", 1)] and mails.counts().waiting == bills.counts().waiting == 1
    with pytest.raises(Malformed, match=r"^names: \['nothing'\] is not allowed, it must be some of .*: count, pay, send"):
        WorkerGroup([mails, bills], names=["nothing"])
    with pytest.raises(Malformed, match=r"names that leave each queue a handler: bills has pay, count"):
        WorkerGroup([mails, bills], names=["send"])
    refused(Malformed, r"^handlers: 'none' .* the jobs of empty ", WorkerGroup, [mails, Queue("empty", url=mails.url)])


def test_queues_of_one_name_under_two_prefixes_are_two(ironclaim_url: str) -> None:
    ran: list[Any] = []
    pair = [Queue("mails", url=ironclaim_url, prefix=prefix) for prefix in ("shop", "bank")]
    for number, queue in enumerate(pair):
        adding(queue, ran).enqueue(number)
    assert WorkerGroup(pair, sweep_ms=50).run(burst=True) == "empty" and sorted(ran) == [("mails", 0), ("mails", 1)]
    for queue in pair:
        queue.close()


def test_a_worker_takes_an_async_queue_with_all_its_settings(ironclaim_url: str) -> None:
    ran: list[Any] = []
    queue = AsyncQueue(
        "mails", models.Mosquito(layout="live"), url=ironclaim_url, prefix="shop", connect=ConnectOptions(timeout_ms=7_000)
    )
    assert adding(queue, ran).enqueue(3).created
    worker = Worker(queue, sweep_ms=50)
    assert (worker.queue.model, worker.queue.endpoint.options.timeout_ms) == (queue.model, 7_000)
    assert worker.run(burst=True) == "empty" and ran == [("mails", 3)]
    refused(Malformed, "^queue: 'mails' is not allowed, it must be a Queue or an AsyncQueue", Worker, "mails")


# -- functions and coroutines


def test_a_task_is_enqueued_by_functions_and_by_coroutines(mails: Queue) -> None:
    ran: list[Any] = []
    add, seen = adding(mails, ran), list[str]()
    mails.hooks.before(lambda job: seen.append(job.name))

    async def ask() -> list[Any]:
        sent = await add.with_options(id="by-coroutine").aenqueue(2)
        answer = await add.acall(3)
        with pytest.raises(Malformed, match="^number: a str of length 1 "):
            await add.aenqueue("x")  # type: ignore[arg-type]
        await mails.aclose()
        return [sent.job, answer]

    with at_work(Worker(mails, sweep_ms=50)):
        assert add.call(1) == 2
        # A loop of its own each time, as every test of a service has.
        assert asyncio.run(ask()) == ["by-coroutine", 4] and asyncio.run(add.acall(4)) == 5
        asyncio.run(mails.aclose())
    assert sorted(ran) == [("mails", number) for number in (1, 2, 3, 4)] and seen == ["add"] * 4


def test_both_faces_are_one_queue(mails: Queue, ironclaim_url: str) -> None:
    face = asynchronous(mails)
    assert asynchronous(mails) is face and synchronous(face) is mails and synchronous(mails) is mails
    for part in ("hooks", "handlers", "model", "serializers"):
        assert getattr(face, part) == getattr(mails, part), part
    for url, client in ((f"{ironclaim_url}?client_name=a", None), ("", redis.Redis.from_url(ironclaim_url))):
        queue = Queue("mails", url=url) if client is None else Queue("mails", client=client)
        adding(queue, [])
        assert asyncio.run(asynchronous(queue).enqueue("add", {"number": 1})).created
        asyncio.run(queue.aclose())
    other = AsyncQueue("mails", client=redis.asyncio.Redis.from_url(ironclaim_url))
    assert synchronous(other).enqueue("add", {"number": 1}).created
    asyncio.run(other.aclose())


def test_a_client_that_cannot_be_made_anew_is_refused(ironclaim_url: str) -> None:
    class Own(redis.Connection):
        pass

    pool = redis.ConnectionPool.from_url(ironclaim_url, connection_class=Own)
    queue = Queue("mails", client=redis.Redis(connection_pool=pool))
    refused(Malformed, r"^client: .*Own is not one of redis-py's own", asyncio.run, adding(queue, []).aenqueue(1))
    assert adding(queue, [], "sync").enqueue(1).created
    queue.close()


def test_the_time_of_a_test_holds_for_both_faces(ironclaim_queue: Queue) -> None:
    ran: list[Any] = []
    asyncio.run(adding(ironclaim_queue, ran).with_options(delay_ms=60_000).aenqueue(1))
    assert run_all(ironclaim_queue).finished == 1 and ran == [("test", 1)]
    asyncio.run(ironclaim_queue.aclose())


# -- another queue


def test_a_task_is_enqueued_on_another_queue(mails: Queue, bills: Queue) -> None:
    ran: list[Any] = []
    add = adding(mails, ran).with_options(queue=bills, priority=9)
    told = bills.jobs.get(add.enqueue(1).job)
    assert told and (told.name, told.options.attempts, told.options.priority) == ("add", 5, 9)
    elsewhere = AsyncQueue("slips", url=mails.url)
    assert add.with_options(queue=elsewhere, id="a").enqueue(2).created
    assert not asyncio.run(add.with_options(queue=elsewhere, id="a").aenqueue(2)).created
    assert (mails.counts().waiting, bills.counts().waiting) == (0, 1)
    refused(Malformed, "^queue: 'bills' is not allowed, it must be a Queue or an AsyncQueue", add.with_options, queue="bills")
    asyncio.run(elsewhere.aclose())


def test_a_function_is_a_job_of_two_queues(mails: Queue, bills: Queue) -> None:
    ran: list[Any] = []

    @mails.job("send", attempts=7)
    @bills.job("post", priority=9)
    def send(job: Job, number: int) -> int:
        ran.append((job.name, job.priority, job.attempt, number))
        return number

    post = bills.job("post-again")(send)
    send.enqueue(1)
    post.enqueue(2)
    bills.enqueue("post", {"number": 3})
    WorkerGroup([mails, bills], sweep_ms=50).run(burst=True)
    assert sorted(ran) == [("post", 5, 1, 3), ("post-again", 5, 1, 2), ("send", 5, 1, 1)]
    assert (send.options, post.options) == ({"attempts": 7}, {}) and send(1) == 1
    # A child process finds the one handler by the function's name.
    assert mails.handlers.find("send") is bills.handlers.find("post") is bills.handlers.find("post-again")

    @mails.job("many", batch=10)
    def many(numbers: list[int]) -> None:
        ran.append(numbers)

    assert bills.job("more", batch=20)(many).payload(1) == {"numbers": 1} and bills.handlers.batches == {"more": 20}
    for decorator, task in ((bills.job("one"), many), (bills.job("one", batch=5), send)):
        refused(Malformed, "^batch: .* given for both queues of the function or for none", decorator, task)


# -- new jobs


def test_new_jobs_have_ids_for_bulk_and_for_needs(mails: Queue) -> None:
    ran: list[Any] = []
    add = adding(mails, ran)
    parents = [add.new(number) for number in range(3)]
    assert len({job.id for job in parents}) == 3 and parents[0].options == {"attempts": 5}
    last = add.with_options(needs=[*parents[:2], str(parents[2].id)], id="last").new(9)
    assert last.id == "last"
    sent = mails.enqueue_many([*parents, last])
    assert [one.job for one in sent] == [job.id for job in (*parents, last)]
    child = add.with_options(needs=[last]).enqueue(10)
    Worker(mails, concurrency=1, sweep_ms=50).run(burst=True)
    assert {number for _, number in ran[:3]} == {0, 1, 2} and [number for _, number in ran[3:]] == [9, 10]
    assert set(ids_of(mails, "done")) == {child.job, *(one.job for one in sent)}
    refused(Malformed, "^number: a str of length 1 ", add.new, "x")
    with pytest.raises(
        Malformed, match=r"^needs: \[None\] is not allowed, it must be a list of at most 1000 different ids of jobs"
    ):
        add.with_options(needs=[NewJob("add", {})])


@pytest.mark.parametrize("hooked", [False, True])
def test_a_new_job_has_the_id_of_the_job_that_is_there(ironclaim_url: str, hooked: bool) -> None:
    """Where the server draws the ids, and where another job keeps it out."""
    with Queue("mails", models.Bull(), url=ironclaim_url) as queue, Queue("bills", url=ironclaim_url) as bills:
        if hooked:
            queue.hooks.before(lambda job: None)
            bills.hooks.before(lambda job: None)
        new = adding(queue, []).new(1)
        assert new.id == "" and [one.job for one in queue.enqueue_many(iter([new]))] == ["1"] and new.id == "1"
        add = adding(bills, [])
        one, other = add.with_options(unique="u").new(1), add.with_options(unique="u").new(2)
        plain = NewJob("add", {"number": 3}, id="plain")
        bills.enqueue_many([one, plain])
        assert bills.enqueue_many([other])[0].result == "duplicate" and other.id == one.id != "" and plain.id == "plain"


@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_a_new_job_stands_for_its_id_and_its_type_when_its_result_is_asked_for(ironclaim_url: str, kind: Any) -> None:
    queue: Queue | AsyncQueue = kind("mails", url=ironclaim_url)

    @queue.job("half")
    def half(amount: Decimal) -> Decimal:
        return amount / 2

    jobs = [half.new(Decimal(number)) for number in range(3)]

    async def halves() -> list[Any]:
        await queue.aio.enqueue_many(jobs)
        first = [(await queue.aio.results.wait(job)).get() for job in jobs]
        again = [await queue.aio.results.get(job) for job in jobs]
        return [*first, *(one.value if one else None for one in again)]

    with at_work(Worker(queue, sweep_ms=50)):
        assert asyncio.run(halves()) == [Decimal(0), Decimal("0.5"), Decimal(1)] * 2


# -- every call in a coroutine


async def test_each_call_of_a_queue_can_be_awaited(mails: Queue) -> None:
    add = adding(mails, [])
    await mails.aio.enqueue_many([add.new(1), add.new(2)])
    await mails.aio.schedules.put("daily", add, add.payload(3), cron="0 4 * * *")
    assert (await mails.aio.counts()).waiting == mails.counts().waiting == 2
    assert [one.name for one in await mails.aio.schedules.list()] == [one.name for one in mails.schedules.list()] == ["daily"]
    assert 'ironclaim_jobs{queue="mails",state="waiting"} 2' in await mails.aio.metrics()
    assert mails.aio is mails.aio and mails.aio.aio is mails.aio
    await mails.aclose()


def public(part: object) -> set[str]:
    return {name for name in dir(part) if not name.startswith("_")}


def test_a_queue_for_coroutines_lacks_nothing(mails: Queue) -> None:
    assert public(mails.aio) == public(mails)
    for part in ("jobs", "dead", "results", "schedules", "events", "history", "workers", "locks"):
        assert public(getattr(mails.aio, part)) == public(getattr(mails, part))


async def test_a_handler_awaits_the_queue_that_its_service_uses_meanwhile(ironclaim_url: str) -> None:
    """The worker has an event loop of its own, beside that of the service."""
    queue = AsyncQueue("mails", url=ironclaim_url)

    @queue.job("plan")
    async def plan(tenant: int) -> int:
        await queue.schedules.put(f"tenant-{tenant}", "report", cron="0 4 * * *")
        await note.aenqueue(tenant)
        return await note.acall(tenant)

    @queue.job("note")
    async def note(tenant: int) -> int:
        return len(await queue.schedules.list()) + tenant

    with at_work(Worker(queue, sweep_ms=50)):
        assert await plan.acall(7) == 8
        assert await asyncio.gather(*(note.acall(number) for number in range(20))) == list(range(1, 21))
    assert [one.name for one in await queue.schedules.list()] == ["tenant-7"]
    await queue.aclose()


# -- registries


def test_registries_are_joined(mails: Queue, bills: Queue) -> None:
    ran, waits = list[Any](), {"outer": 1, "inner": 2}
    outer = Handlers(backoff=lambda failures, error: waits["outer"])
    inner = Handlers(backoff=lambda failures, error: waits["inner"])

    def around(name: str) -> Any:
        @contextmanager
        def enter(job: Job) -> Iterator[None]:
            ran.append(f"{name} in")
            yield
            ran.append(f"{name} out")

        return enter

    for name, handlers in (("outer", outer), ("inner", inner)):
        handlers.hooks.around(around(name))
        handlers.hooks.after(lambda job, error, name=name: ran.append(f"{name} after"))
    inner("batch", batch=5)(lambda jobs: ran.append(len(jobs)))
    inner("inline", inline=True)(lambda job: ran.append("inline"))

    @inner("coroutine")
    async def coroutine(job: Job) -> None:
        ran.append("coroutine")

    outer("own")(lambda job: ran.append("own"))
    adding(bills, ran)
    outer.include(inner, bills.handlers)
    assert (outer.batches, outer.inline, outer.coroutines) == ({"batch": 5}, {"inline"}, {"coroutine"})
    run = ["outer in", "inner in", None, "inner out", "outer out", "inner after", "outer after"]
    for name, said in (("batch", 1), ("inline", "inline"), ("coroutine", "coroutine")):
        ran.clear()
        mails.enqueue(name, {})
        Worker(mails, outer, sweep_ms=50).run(burst=True)
        assert ran == [said if word is None else word for word in run]
    ran.clear()
    mails.enqueue("own", {})
    mails.enqueue("add", {"number": 1})
    Worker(mails, outer, concurrency=1, sweep_ms=50).run(burst=True)
    assert sorted(map(str, ran)) == sorted(["('bills', 1)", "own", *["outer in", "outer out", "outer after"] * 2])


def test_a_failed_run_waits_as_its_own_registry_says(mails: Queue) -> None:
    waits: list[str] = []

    def backoff(name: str) -> Any:
        return lambda failures, error: waits.append(name)

    outer, inner, plain = Handlers(backoff=backoff("outer")), Handlers(backoff=backoff("inner")), Handlers()
    for handlers, name in ((outer, "a"), (inner, "b"), (plain, "c")):
        handlers(name)(raises(ValueError()))
        mails.enqueue(name, {}, attempts=1, priority=8 - ord(name) + ord("a"))
    outer.include(inner, plain)
    Worker(mails, outer, concurrency=1, prefetch=0, sweep_ms=50).run(burst=True)
    assert waits == ["outer", "inner", "outer"]


def test_names_that_two_registries_have_are_refused(mails: Queue, bills: Queue) -> None:
    adding(mails, [])
    adding(bills, [])
    adding(bills, [], "free")
    joined = Handlers()
    refused(Malformed, "^name: 'add' is not allowed", joined.include, mails.handlers, bills.handlers)
    refused(Malformed, "^handlers: ", joined.include, mails)
    assert joined.by_name == {}
    joined.include(mails.handlers)
    refused(Malformed, "^name: 'add' is not allowed", joined.include, bills.handlers)
    assert [*joined.by_name] == ["add"]


def test_a_task_is_a_handler_of_a_registry(mails: Queue, bills: Queue) -> None:
    ran: list[Any] = []
    handlers, add = Handlers(), adding(mails, ran)
    assert handlers("sum")(add) is add  # type: ignore[arg-type]
    bills.enqueue("sum", {"number": 4}, id="s")
    Worker(bills, handlers, sweep_ms=50).run(burst=True)
    assert ran == [("mails", 4)] and bills.results.wait("s").get() == 5


def test_run_all_takes_an_async_queue(ironclaim_url: str) -> None:
    ran, queue = list[Any](), AsyncQueue("mails", url=ironclaim_url)
    adding(queue, ran).enqueue(1)
    assert run_all(queue).finished == 1 and ran == [("mails", 1)]
    asyncio.run(queue.aclose())
