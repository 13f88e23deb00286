"""Jobs that need other jobs, by both faces and in a real worker: fan-out with a join, refusals, and what a producer is told."""

import json
from decimal import Decimal
from typing import Any

import pytest

from engine import Enqueued, Handlers, Job, Malformed, NewJob, PartlyEnqueued, Queue, ServerUnavailable, UnknownParent, Worker
from tests.engine.helpers.producing import raises, refused, some_handlers

pytestmark = pytest.mark.feature("BQ35")


#: Nobody connects to it: a child process finds the handlers of its tasks here.
prices = Queue("prices", url="redis://127.0.0.1:1")


@prices.job("price")
def price(amount: Decimal) -> Decimal:
    if amount < 0:
        raise ValueError("below zero")
    return amount


@prices.job("nothing")
def nothing() -> None: ...


@prices.job("add-up", attempts=1)
def add_up(job: Job) -> list[str]:
    of = job.results.of
    return [f"{type(value).__name__} {value}" for value in (*of(price).values(), *of(nothing).values())]


def blocked(queue: Queue) -> list[str]:
    return [job for job, _ in queue.snapshot().states["blocked"]]


def test_a_fan_out_and_its_join_in_one_call(face: Any, queue: Queue) -> None:
    parts = [NewJob("part", number, id=f"part-{number}") for number in range(100)]
    join = NewJob("join", None, id="join", needs=[f"part-{number}" for number in range(100)])
    items = face.enqueue_many([*parts, join, NewJob("after", None, id="after", needs=["join"])])
    assert [item.result for item in items] == ["created"] * 102
    assert (sorted(blocked(queue)), face.counts().blocked, face.counts().waiting) == (["after", "join"], 2, 100)

    ran, handlers = list[str](), Handlers()

    @handlers("part")
    @handlers("after")
    def work(job: Job) -> None:
        ran.append(job.id)

    @handlers("join")
    async def gather(job: Job) -> None:
        ran.append(f"join of {len(job.parents)} from {job.parents[0]}")

    Worker(queue, handlers, sweep_ms=50).run(burst=True)
    assert sorted(ran[:100]) == sorted(f"part-{number}" for number in range(100))
    assert ran[100:] == ["join of 100 from part-0", "after"]
    assert (queue.counts().blocked, queue.counts().finished) == (0, 102)


def test_a_join_of_a_thousand_and_a_chord_in_pieces(queue: Queue) -> None:
    @queue.job("part")
    def part(number: int) -> int:
        return number

    @queue.job("total")
    def total(job: Job) -> int:
        return sum(job.results.values())

    parts = [part.new(number) for number in range(2_100)]
    pieces = [total.with_options(needs=parts[at : at + 1_000]).new() for at in range(0, 2_100, 1_000)]
    whole = total.with_options(needs=pieces).new()
    assert {item.result for item in queue.enqueue_many([*parts, *pieces, whole])} == {"created"}
    assert (queue.counts().blocked, queue.counts().waiting) == (4, 2_100)
    Worker(queue, sweep_ms=50).run(burst=True)
    assert queue.results.wait(whole).get() == sum(range(2_100)) and queue.counts().finished == 2_104
    many = [str(number) for number in range(1_001)]
    refused(Malformed, "^needs: .* at most 1000 different ids", total.with_options, needs=many)
    # As many as the envelope holds, whatever their ids and names are.
    longest = [NewJob("n" * 20, None, id=f"{number:0>13}") for number in range(1_000)]
    assert queue.enqueue("total", {}, id="full", needs=parts[:1_000], headers={"h": "x" * 8_000}).created
    longest[-1] = NewJob("n" * 9_000, None, id="last")
    refused(Malformed, r"^needs: '\d+ bytes' .* 40960 bytes as JSON", total.with_options, needs=longest)


@pytest.mark.parametrize("processes", [0, 1])
def test_results_of_parents_have_the_types_of_their_tasks(queue: Queue, processes: int) -> None:
    before = price.with_options(queue=queue, id="price-2").enqueue(Decimal(2)).job
    jobs = [*(price.new(Decimal(amount)) for amount in ("3", "4.5")), price.with_options(attempts=1).new(Decimal(-1))]
    jobs += [price.with_options(result_ttl_ms=0).new(Decimal(9)), nothing.new()]
    more = add_up.with_options(needs=[*jobs, before], on_parent_failure="ignore", id="sum")
    queue.enqueue_many([*jobs, more.new()])
    Worker(queue, prices.handlers, processes=processes, sweep_ms=50).run(burst=True)
    assert queue.results.wait("sum", add_up).get() == ["Decimal 3", "Decimal 4.5", "Decimal 2", "NoneType None"]
    later = add_up.with_options(needs=[NewJob("price", None, id="nothing-like-it")], id="other")
    queue.enqueue("raw", None, id="nothing-like-it", attempts=1)
    queue.enqueue_many([later.new()])
    raw = Handlers()
    raw.include(prices.handlers)
    raw("raw")(lambda job: {"no": "price"})
    Worker(queue, raw, sweep_ms=50).run(burst=True)
    assert queue.results.wait("other").error.startswith("Malformed: result: ")


def test_results_of_parents_by_the_ids_of_their_enqueues_and_not_by_mere_texts(face: Any, queue: Queue) -> None:
    handlers = Handlers()
    handlers.include(prices.handlers)
    first = face.enqueue("price", {"amount": "3"}, id="first").job
    again = face.enqueue("price", {"amount": "3"}, id="first").job
    keyed = face.enqueue(price, {"amount": "4"}, unique="one").job
    other = face.enqueue("raw", None, unique="one").job
    assert (first, keyed) == (again, other) and {first: 1} == {"first": 1} and json.dumps([first]) == '["first"]'
    sums = [face.enqueue("add-up", {}, needs=needs).job for needs in ([again, keyed], [keyed, "first"], [other])]
    Worker(queue, handlers, sweep_ms=50).run(burst=True)
    assert queue.results.wait(sums[0]).get() == ["Decimal 3", "Decimal 4"]
    for sum, text in zip(sums[1:], ("first", other), strict=True):
        said = f"Malformed: needs: '{text}' is not allowed, it must be what task.new(...) or enqueue(...).job"
        assert said in queue.results.wait(sum).error
    assert [job.failures for job in queue.dead.list()] == [0, 0], "no other run finds more"


def test_one_parent_with_more_children_than_one_call_tells(face: Any, queue: Queue) -> None:
    face.enqueue("first", None, id="p")
    face.enqueue_many([NewJob("child", number, needs=["p"]) for number in range(250)])
    assert queue.counts().blocked == 250
    ran, handlers = list[int](), some_handlers(name="first", inline=True)
    handlers("child", inline=True)(lambda job: ran.append(job.payload))
    Worker(queue, handlers, sweep_ms=50).run(burst=True)
    assert sorted(ran) == list(range(250))


def test_a_parent_that_nobody_knows(face: Any, queue: Queue) -> None:
    face.enqueue("work", None, id="known")
    said, needs = "^job child needs nobody, of .* in the same enqueue_many$", ["known", "nobody"]
    caught = refused(UnknownParent, said, face.enqueue, "work", None, id="child", needs=needs)
    assert (caught.job, caught.parent) == ("child", "nobody")
    refused(UnknownParent, "", face.enqueue_many, [NewJob("work", None, id="child", needs=["nobody"])])
    assert (queue.counts().waiting, queue.counts().blocked) == (1, 0)
    face.enqueue("work", None, id="nobody")
    assert face.enqueue("work", None, id="child", needs=needs).created, "a new call, so not the refused one"


def test_a_bulk_that_names_an_unknown_parent_says_which_jobs_are_there(face: Any, queue: Queue) -> None:
    jobs = [NewJob("work", 0, id="a"), NewJob("work", 1, id="b", needs=["nobody"]), NewJob("work", 2, id="c", needs=["a"])]
    first, second, third = refused(PartlyEnqueued, "needs nobody", face.enqueue_many, jobs).results
    assert isinstance(first, Enqueued) and first.created and isinstance(second, UnknownParent)
    assert isinstance(third, Enqueued | ServerUnavailable)
    jobs[1].options["needs"] = ["a"]
    assert [item.result in ("created", "duplicate") for item in face.enqueue_many(jobs)] == [True] * 3
    assert sorted(blocked(queue)) == ["b", "c"]


def test_a_failed_parent_buries_its_child_while_the_worker_runs(face: Any, queue: Queue) -> None:
    face.enqueue("fails", None, id="p", attempts=1)
    face.enqueue("child", None, id="strict", needs=["p"])
    face.enqueue("child", None, id="easy", needs=["p"], on_parent_failure="ignore")
    ran: list[str] = []
    handlers = some_handlers(lambda job: ran.append(job.id), "child")
    handlers("fails")(raises(ValueError("no")))
    Worker(queue, handlers, sweep_ms=50).run(burst=True)
    assert ran == ["easy"] and sorted(job for job, _ in queue.snapshot().states["dead"]) == ["p", "strict"]
