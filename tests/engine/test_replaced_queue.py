"""A test's queue takes the place of those that modules made at import, and `run_all` raises what a handler raised."""

import asyncio
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine import AsyncQueue, Bury, Discard, Job, Malformed, Queue, RetryLater, Task
from engine.testing import run_all, running
from engine.testing.running import QueueInTest
from tests.engine.helpers.producing import refused

#: Nobody listens at port 1.
SHOP = """
from decimal import Decimal
from engine import {kind}, Queue

class Own(Queue):
    pass

queue = {kind}("orders", url="redis://127.0.0.1:1", prefix="shop")
mails = Own("mails", url="redis://127.0.0.1:1")
mails.mine = 7
sent = []

@queue.hooks.before
def stamped(job):
    job.options["headers"] = {{"by": "shop"}}

@queue.job("bill", attempts=2)
def bill(job, amount: Decimal) -> Decimal:
    mail.enqueue(str(amount))
    return amount + len(job.headers)

@mails.job("mail")
def mail(text: str) -> None:
    sent.append(text)

@queue.job("later", delay_ms=86_400_000)
async def later() -> str:
    return "later"
"""


@pytest.fixture(params=["Queue", "AsyncQueue"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "shop_jobs.py").write_text(SHOP.format(kind=request.param))
    monkeypatch.syspath_prepend(tmp_path)
    import shop_jobs  # type: ignore[import-not-found]

    yield shop_jobs
    del sys.modules["shop_jobs"]


def test_tasks_of_modules_run_on_the_server_and_by_the_time_of_the_test(ironclaim_url: str, jobs: Any) -> None:
    before, of_mails, results = vars(jobs.queue), vars(jobs.mails), jobs.queue.results
    queue = QueueInTest(ironclaim_url)
    queue.use_test_clock(4_200_000_000_000)
    assert queue.replaces("shop_jobs:queue") is queue and queue.name == "orders" == jobs.queue.name
    mails = queue.replaces(jobs.mails)
    assert mails is not queue and mails.name == "mails" and jobs.mails.mine == 7 and isinstance(jobs.mails, jobs.Own)
    for again in ("shop_jobs:mails", jobs.queue):
        refused(Malformed, r"^queue: .* each once", queue.replaces, again)
    for wrong in ("shop_jobs:bill", "shop_jobs:nothing", "no_such:queue", 7):
        refused(Malformed, "a Queue or an AsyncQueue, or where one is", queue.replaces, wrong)
    job, late = jobs.bill.enqueue(Decimal(3)), jobs.later.enqueue()
    assert run_all(queue).finished == 2 and queue.results.wait(job.job, jobs.bill).get() == 4
    assert late.srv_us == 4_200_000_000_000_000 and queue.model.now_ms == 4_200_086_400_000
    assert jobs.sent == [] and run_all(jobs.mails).finished == 1 and jobs.sent == ["3"]
    with Queue("orders", url=ironclaim_url, prefix="shop") as theirs:
        assert theirs.counts().finished == 2, "it is the queue that others see under its name"

    async def by_coroutines() -> Any:
        await jobs.bill.aenqueue(Decimal(5))
        await jobs.queue.aio.enqueue_many([jobs.bill.new(Decimal(6))])
        found = await jobs.queue.aio.results.get(job.job)
        await jobs.queue.aclose()
        return found.value

    assert asyncio.run(by_coroutines()) == "4" and queue.counts().waiting == 2
    queue.close()
    # As they were, to the object.
    assert vars(jobs.queue) is before and vars(jobs.mails) is of_mails and jobs.queue.results is results
    assert jobs.queue.url == "redis://127.0.0.1:1" and isinstance(jobs.queue, Queue | AsyncQueue)


@pytest.fixture
def shop(jobs: Any) -> Iterator[Any]:
    yield jobs
    # It is set up before the queue of the test, so that is gone by now.
    assert jobs.queue.url == jobs.mails.url == "redis://127.0.0.1:1"


@pytest.mark.parametrize("amount", [1, 2])
def test_it_is_over_with_the_test(shop: Any, ironclaim_queue: QueueInTest, amount: int) -> None:
    ironclaim_queue.replaces("shop_jobs:queue")
    ironclaim_queue.replaces("shop_jobs:mails")
    shop.bill.enqueue(Decimal(amount))
    assert run_all(ironclaim_queue).finished == 1 and shop.bill.queue is shop.queue is not ironclaim_queue
    assert run_all(shop.mails).finished == 1 and shop.sent == [str(amount)]


class Broken(Exception):
    pass


@pytest.mark.parametrize("kind", ["plain", "coroutine", "batch", "inline"])
def test_what_a_handler_raises_is_raised(ironclaim_queue: Queue, kind: str) -> None:
    queue, ran, failure = ironclaim_queue, list[int](), Broken("no such account")

    def failing(number: int) -> None:
        ran.append(number)
        if number == 2:
            raise failure

    async def waiting(number: int) -> None:
        failing(number)

    def listed(numbers: list[int]) -> None:
        failing(*numbers)

    kinds: dict[str, Any] = {"batch": ({"batch": 1}, listed), "coroutine": ({}, waiting), "inline": ({"inline": True}, failing)}
    options, handler = kinds.get(kind, ({}, failing))
    work: Task[[int], None] = queue.job("work", attempts=2, **options)(handler)
    for number in (1, 2):
        work.with_options(id=str(number), backoff_ms=86_400_000).enqueue(number)
    assert refused(Broken, "", run_all, queue) is failure and sorted(ran) == [1, 2]
    # Its job is as the worker has left it.
    assert queue.jobs.state("1") == "finished" and queue.jobs.state("2") == "delayed"
    counts = run_all(queue, raise_failures=False)
    assert (counts.dead, counts.finished) == (1, 1) and ran.count(2) == 2
    refused(Malformed, "^raise_failures: 1 ", run_all, queue, raise_failures=1)


def test_what_a_handler_decides_is_no_failure_and_what_does_not_fit_is_one(ironclaim_queue: Queue) -> None:
    queue = ironclaim_queue

    @queue.job("decide")
    def decide(job: Job, what: str) -> None:
        if what == "later" and job.claims == 1:
            raise RetryLater(1000)
        if what in ("bury", "discard"):
            raise {"bury": Bury, "discard": Discard}[what]("so it is")

    for what in ("later", "bury", "discard", "nothing"):
        decide.enqueue(what)
    counts = run_all(queue)
    assert (counts.finished, counts.dead) == (2, 1)
    with Queue("test", url=queue.url) as producer:
        producer.model.now_ms = queue.model.now_ms
        producer.enqueue("decide", {"whta": 1})
    refused(Malformed, r"^payload\.whta: ", run_all, queue)


def test_a_queue_at_a_server_that_no_test_has_started_is_not_run(
    jobs: ModuleType, queue: Queue, ironclaim_queue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    queue.job("bill")(lambda job: ran.append(job.id))
    queue.enqueue("bill", {})
    with monkeypatch.context() as patch:
        # A server that somebody else has started.
        patch.setattr(running, "serving", set())
        for strange in (queue, jobs.mails):
            refused(Malformed, f"^queue: '{strange.name} at .* ironclaim_queue.replaces", run_all, strange)
        assert not ran and queue.counts().waiting == 1
        assert run_all(ironclaim_queue, queue.handlers).finished == 0, "it has the test's clock"
        assert run_all(queue, any_server=True).finished == 1
    queue.enqueue("bill", {})
    assert run_all(queue).finished == len(ran) == 2
