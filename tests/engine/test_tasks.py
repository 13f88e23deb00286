"""Functions that are jobs: typed parameters on both ways, the same by decorator and by name, in every kind of worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import AsyncQueue, Handlers, Job, Malformed, NewJob, Queue, Worker
from engine.kinds import kind_of
from engine.testing import free_port
from engine.wire.operations import Enqueued
from tests.engine.helpers import tasks
from tests.engine.helpers.processes import Workers
from tests.engine.helpers.producing import ids_of, raw_client

USER = UUID(int=7)
AT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))


@dataclass
class Point:
    x: int
    tags: set[str] | None = None


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Odd(Enum):
    ONE = 1.5


# -- values


@pytest.mark.feature("MQ03")
@pytest.mark.parametrize(
    ("annotation", "value", "travels"),
    [
        (int, 2**70, 2**70),
        (float, 1, 1.0),
        (bool, True, True),
        (str, "ä", "ä"),
        (bytes, b"\x00\xff", "AP8="),
        (datetime, AT, "2026-02-03T04:05:06+02:00"),
        (date, date(2026, 2, 3), "2026-02-03"),
        (time, time(4, 5), "04:05:00"),
        (timedelta, timedelta(minutes=1, microseconds=1), 60.000001),
        (UUID, USER, "00000000-0000-0000-0000-000000000007"),
        (Decimal, Decimal("1.10"), "1.10"),
        (Level, Level.HIGH, 2),
        (Point, Point(1, {"a"}), {"x": 1, "tags": ["a"]}),
        (list[Point], [Point(1)], [{"x": 1, "tags": None}]),
        (dict[str, Decimal], {"a": Decimal(2)}, {"a": "2"}),
        (tuple[int, str], (1, "a"), [1, "a"]),
        (tuple[int, ...], (1, 2, 3), [1, 2, 3]),
        (frozenset[int], frozenset([1]), [1]),
        (int | None, None, None),
        (Literal["a", 1], 1, 1),
        (None, None, None),
        (Any, {"any": [1]}, {"any": [1]}),
        (list, [1, "a"], [1, "a"]),
    ],
)
def test_what_travels_arrives(annotation: Any, value: Any, travels: Any) -> None:
    kind = kind_of(annotation)
    written = json.loads(json.dumps(kind.write(value)))
    assert written == travels and kind.read(written) == value
    assert annotation in (Any, float) or type(kind.read(written)) is type(value)


@given(
    st.datetimes(timezones=st.just(UTC)),
    st.decimals(allow_nan=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.binary(),
)
def test_any_value_arrives(at: datetime, amount: Decimal, ratio: float, data: bytes) -> None:
    for annotation, value in ((datetime, at), (Decimal, amount), (float, ratio), (bytes, data)):
        kind = kind_of(annotation)
        assert kind.read(json.loads(json.dumps(kind.write(value)))) == value


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, True), (int, 1.0), (int, "1"), (float, "1"), (float, True), (bool, 1), (str, b"a"), (bytes, "a"), (datetime, "2"),
        (date, AT), (UUID, "no"), (Level, 1), (Point, {"x": 1}), (list[int], ["a"]), (list[int], "12"), (tuple[int, str], (1,)),
        (dict[str, int], {1: 1}), (Literal["a"], "b"), (Literal[1], True), (None, 0),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_not_written(annotation: Any, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        kind_of(annotation).write(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "1"), (int, 1.5), (datetime, "yesterday"), (datetime, 5), (UUID, "no"), (Level, 3), (Point, {"y": 1}), (Point, {}),
        (Point, []), (bytes, "?"), (Decimal, "x"), (timedelta, "1"), (tuple[int, str], [1]), (set[int], 5), (dict[str, int], []),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_not_read(annotation: Any, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        kind_of(annotation).read(value)


@pytest.mark.parametrize(
    "annotation", [Queue, UUID | str, complex, Odd, dict[int, str], list[complex], Literal[b"a"], "what", [int]]
)
def test_types_that_do_not_travel(annotation: Any) -> None:
    with pytest.raises(TypeError):
        kind_of(annotation)


# -- functions


def test_a_function_whose_parameters_cannot_travel_is_refused_when_it_is_registered(nowhere: Queue) -> None:
    def many(*users: int) -> None: ...
    def more(**users: int) -> None: ...
    def odd(where: Queue) -> None: ...
    def later(where: "NotThere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    for function in (many, more, odd, later):
        with pytest.raises(Malformed, match="^handler: "):
            nowhere.job("work")(function)
    assert nowhere.handlers.by_name == {}
    with pytest.raises(Malformed, match="^attempts: 0"):
        nowhere.job("work", attempts=0)
    with pytest.raises(Malformed, match="^name: "):
        nowhere.job(lambda: None)  # type: ignore[arg-type]


def test_methods_and_parameters_without_a_type_are_refused_when_they_are_registered(nowhere: Queue) -> None:
    class Service:
        def send(self, user: int) -> None: ...
        @classmethod
        def tell(cls, user: int) -> None: ...

    def untyped(user: int, at) -> None: ...  # type: ignore[no-untyped-def]
    def batches(jobs: list[Job], users) -> None: ...  # type: ignore[no-untyped-def]

    for method in (Service.send, Service().send, Service.tell):
        with pytest.raises(Malformed, match="^handler: .* must be a function, not a method"):
            nowhere.job("work")(method)
    with pytest.raises(Malformed, match="whose parameters have types, unlike at "):
        nowhere.job("work")(untyped)
    with pytest.raises(Malformed, match="whose parameters have types, unlike users "):
        nowhere.job("work", batch=5)(batches)
    assert nowhere.handlers.by_name == {}
    # The context needs none.
    nowhere.job("work")(lambda job: None)
    assert [*nowhere.handlers.by_name] == ["work"]


def test_arguments_that_do_not_fit_are_refused_before_any_io(nowhere: Queue) -> None:
    @nowhere.job("work")
    def work(user: int, at: date | None = None) -> int:
        return user + 1

    calls: list[Any] = [
        (lambda: work.enqueue("3"), "user: '3' is not allowed, it must be a value of type int"),  # type: ignore[arg-type]
        (lambda: work.enqueue(3, at=AT), "at: .* it must be a value of type date or None"),
        (lambda: work.enqueue(), "arguments: .*missing a required argument: 'user'"),  # type: ignore[call-arg]
        (lambda: work.enqueue(3, when=AT), "arguments: .*unexpected keyword argument 'when'"),  # type: ignore[call-arg]
        (lambda: work.with_options(priority=11), "priority: 11"),
        (lambda: work.with_options(id="two words"), "id: "),
    ]
    for call, message in calls:
        with pytest.raises(Malformed, match=f"^{message}"):
            call()
    assert work(3) == 4 and work.payload(3, date(2026, 2, 3)) == {"user": 3, "at": "2026-02-03"}


@pytest.mark.feature("MQ03", "MQ01")
@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_worker_calls_it_with_its_types_enqueued_by_decorator_or_by_name(
    queue: Queue, workers: Workers, processes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(workers.folder)
    monkeypatch.setattr(tasks.typed, "_queue", queue)
    monkeypatch.setattr(tasks.with_job, "_queue", queue)
    sent = tasks.typed.with_options(id="t", priority=9).enqueue(folder, USER, at=AT, to=[tasks.Address("A", 3)])
    assert sent.created and sent.job == "t"
    assert tasks.with_job.with_options(backoff_ms=0, id="c").enqueue(folder, 5).created
    with raw_client(workers.url) as client:
        assert b'{"folder":' in client.get(queue.model.keys.job("t")).encode()  # type: ignore[union-attr]
    options = ("--burst", "--sweep-ms", "50", "--processes", processes)
    worker = workers.start(*options, handlers="tests.engine.helpers.tasks:queue.handlers")
    assert worker.wait(120) == 0, workers.output()
    told = json.loads(Path(folder, "typed").read_text())
    assert told == [
        *(f"UUID:{USER}", f"datetime:{AT}", "Colour:Colour.RED"),
        *("Address:Address(street='A', number=3)", "int:3"),
    ]
    assert json.loads(Path(folder, "with-job-2").read_text()) == ["str:c", "int:5"]
    by_name = {"folder": folder, "user": str(USER), "at": "2026-01-01", "colour": "blue", "to": [{"street": "B"}]}
    queue.enqueue("typed", by_name, id="named")
    queue.enqueue("typed", {**by_name, "user": "no"}, id="bad", attempts=1)
    queue.enqueue("typed", {**by_name, "more": 1}, id="more", attempts=1)
    assert workers.start(*options, handlers="tests.engine.helpers.tasks:queue.handlers").wait(120) == 0
    assert json.loads(Path(folder, "typed").read_text())[2:] == [
        "Colour:Colour.BLUE",
        "Address:Address(street='B', number=None)",
        "NoneType:None",
    ]
    assert sorted(ids_of(queue, "done")) == ["c", "named", "t"] and sorted(ids_of(queue, "dead")) == ["bad", "more"]
    assert "user: 'no' is not allowed, it must be a value of type UUID" in workers.output()


async def send_async(task: Any, queue: AsyncQueue, folder: str) -> Enqueued:
    task._queue = queue
    async with queue:
        with pytest.raises(Malformed, match="^data: "):
            await task.aenqueue(folder, "text")
        return await task.with_options(attempts=1).aenqueue(folder, b"\x00")


@pytest.mark.feature("MQ03")
def test_a_coroutine_of_an_async_queue(queue: Queue, workers: Workers) -> None:
    import asyncio

    sent = asyncio.run(send_async(tasks.typed_async, AsyncQueue("q", url=workers.url), str(workers.folder)))
    assert sent.created
    assert workers.start("--burst", "--sweep-ms", "50", handlers="tests.engine.helpers.tasks:async_queue.handlers").wait(120) == 0
    assert json.loads((workers.folder / "typed-async").read_text()) == ["bytes:b'\\x00'"]


def test_its_options_and_those_of_a_call(queue: Queue) -> None:
    ran: list[Any] = []

    @queue.job("work", priority=9, inline=True, headers={"a": "b"})
    def work(job: Job, count: int = 1) -> None:
        ran.append((job.priority, job.headers, job.attempts, count))

    work.enqueue()
    work.with_options(attempts=7, priority=8).enqueue(2)
    work.with_options(attempts=7).with_options(priority=7).enqueue(3)
    queue.enqueue_many([NewJob(work.name, work.payload(4), priority=1)])
    work(5)
    Worker(queue, sweep_ms=50).run(burst=True)
    own = {"a": "b"}
    assert ran == [(9, own, 3, 5), (9, own, 3, 1), (8, own, 7, 2), (7, own, 7, 3), (1, {}, 3, 4)]
    assert work.__doc__ is None and "work" in repr(work) and queue.handlers.inline == {"work"}


def test_a_worker_without_any_handlers_says_so(queue: Queue) -> None:
    with pytest.raises(Malformed, match="^handlers: 'none'"):
        Worker(queue)
    with pytest.raises(Malformed, match="^handlers: "):
        Worker(queue, {})  # type: ignore[arg-type]
    assert isinstance(queue.handlers, Handlers)
