"""Payloads, arguments, results and contents: in no text of an error, of a line that is logged, or of a stored failure."""

from __future__ import annotations

import json
import logging
import random
import traceback
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import httpx
import pytest

from engine import Channel, Handlers, Malformed, NewJob, Queue, Worker, models, outbox, validate
from engine.errors import EngineError, describe, outlined, shown
from engine.http.settings import HttpSettings
from tests.engine.helpers.producing import refused
from tests.engine.http.serving import served

MARK = "hunter2"


class Card:
    """What a service may hand over by mistake; its text has all of it."""

    def __repr__(self) -> str:
        return f"Card({MARK})"


class Colour(Enum):
    RED = "red"


class Quoting:
    """A serializer whose errors quote what it cannot write."""

    name = "quoting"

    def dumps(self, value: object) -> bytes:
        raise ValueError(f"cannot write {value!r}")

    def loads(self, data: bytes) -> object:
        return data


def unfit(dice: random.Random, depth: int = 0) -> Any:
    """A value with the mark in it that is no JSON."""
    inner = dice.choice([object(), Card(), {MARK}, MARK.encode(), float("nan"), Decimal("1.5"), "\ud800"])
    value: Any = unfit(dice, depth + 1) if depth < 3 and dice.random() < 0.5 else inner
    shape = dice.randrange(3)
    return {"card": MARK, "more": value} if shape == 0 else [MARK, value] if shape == 1 else (MARK, {"n": 4111, "v": value})


def written(error: BaseException) -> str:
    """What a program shows of an error of the engine: its text, its repr, and what is stored of it. Its causes are the
    caller's own errors, shown by the traceback of who logs them."""
    return "".join([*traceback.format_exception_only(error), repr(error), describe(error)])


def calls(queue: Queue, channel: Channel) -> dict[str, Any]:
    """Every way by which a program gives values of its own away."""

    @queue.job(name="pay")
    def pay(card: int, until: timedelta, id: UUID) -> None: ...

    mosquito = Queue("m", models.Mosquito(), url=queue.url)
    return {
        "enqueue": lambda value: queue.enqueue("a", value),
        "raw": lambda value: queue.enqueue("a", value, serializer="raw"),
        "a serializer": lambda value: queue.enqueue("a", value, serializer="quoting"),
        "as a name": lambda value: queue.enqueue({"card": value}, None),  # type: ignore[arg-type]
        "many": lambda value: queue.enqueue_many([NewJob("a", 1), NewJob("a", value)]),
        "no jobs": lambda value: queue.enqueue_many([{"name": "a", "payload": value}]),  # type: ignore[list-item]
        "no job": lambda value: queue.enqueue_many([("a", MARK, value)]),  # type: ignore[list-item]
        "no option": lambda value: queue.enqueue("a", None, card=value),  # type: ignore[call-arg]
        "no callback": lambda value: queue.enqueue("a", None, on_success=("b", MARK, value)),  # type: ignore[arg-type]
        "no headers": lambda value: queue.enqueue("a", None, headers=[MARK, value]),  # type: ignore[arg-type]
        "no pair": lambda value: channel.publish_many([("m", MARK, value)]),  # type: ignore[list-item]
        "no messages": lambda value: channel.publish_many(MARK),  # type: ignore[arg-type]
        "a callback": lambda value: queue.enqueue("a", None, on_success=NewJob("b", value)),
        "a schedule": lambda value: queue.schedules.put("s", "a", value, every_ms=60_000),
        "an argument": lambda value: pay.enqueue(value, timedelta(1), UUID(int=1)),
        "another argument": lambda value: pay.enqueue(1, value, UUID(int=1)),
        "by name": lambda value: pay.enqueue(card=1, until=timedelta(1), id=value),
        "too many": lambda value: pay.enqueue(1, timedelta(1), UUID(int=1), value),  # type: ignore[call-arg]
        "a task's name": lambda value: queue.enqueue("pay", {"card": value, "until": 1, "id": MARK}),
        "mosquito": lambda value: mosquito.enqueue("a", {"card": MARK, "v": value}),
        "mosquito's parameters": lambda value: mosquito.enqueue("a", [MARK]),
        "a message": lambda value: channel.publish("m", value),
        "messages": lambda value: channel.publish_many([("m", 1), ("n", value)]),
        "a row": lambda value: outbox.row(pay, value, timedelta(1), UUID(int=1)),
    }


def test_no_error_of_a_call_has_what_the_caller_gave_away(ironclaim_url: str) -> None:
    dice = random.Random(11)
    with Queue("q", url=ironclaim_url, serializers=[Quoting()]) as queue, Channel("c", url=ironclaim_url) as channel:
        failed = dict.fromkeys(ways := calls(queue, channel), 0)
        for _ in range(120):
            for way, call in ways.items():
                caught = refused((EngineError, TypeError), "", call, unfit(dice))
                assert MARK not in written(caught), way
                failed[way] += isinstance(caught, EngineError)
        assert min(failed.values()) > 0 and sum(failed.values()) >= 2_000 and queue.counts().waiting == 0


def test_no_failure_and_no_line_tells_a_result_or_a_progress(ironclaim_url: str, caplog: pytest.LogCaptureFixture) -> None:
    dice = random.Random(12)
    with Queue("q", url=ironclaim_url) as queue, caplog.at_level(logging.DEBUG):
        handlers = Handlers()
        handlers("result")(lambda job: unfit(dice))
        handlers("progress")(lambda job: job.progress(1, data=unfit(dice)))
        handlers("message")(lambda job: job.progress(1, unfit(dice)))

        @queue.job(name="typed")
        def typed(card: int) -> int:
            return [card, MARK]  # type: ignore[return-value]

        @queue.job(name="choice")
        def choice(colour: Colour, day: date) -> None: ...

        names = ("result", "progress", "message") * 5
        queue.enqueue_many([NewJob(name, None, id=f"{name}-{at}", attempts=1) for at, name in enumerate(names)])
        queue.enqueue("typed", {"card": 1}, id="typed-result", attempts=1)
        # Past the check of who enqueues, as another program would.
        with Queue("q", url=ironclaim_url) as other:
            other.enqueue("choice", {"colour": MARK, "day": "2026-11-29"}, id="choice-a", attempts=1)
            other.enqueue("choice", {"colour": "red", "day": MARK}, id="choice-b", attempts=1)
        Worker(queue, handlers, sweep_ms=50).run(burst=True)
        Worker(queue, sweep_ms=50).run(burst=True)
        dead = queue.dead.list()
        assert len(dead) == len(names) + 3
        for one in dead:
            info = queue.jobs.get(one.id)
            assert info is not None and info.last_error.startswith("Malformed: "), info
            assert MARK not in f"{info.last_error} {info.errors}"
    assert "Malformed" in caplog.text and MARK not in caplog.text


def test_no_answer_over_http_has_a_payload_that_was_refused(ironclaim_url: str) -> None:
    with Queue("q", url=ironclaim_url), served(HttpSettings(url=ironclaim_url, allow_changes=True)) as url:
        deep = f'{{"name": "pay", "payload": {"[" * (validate.NESTING_MAX + 1)}"{MARK}"{"]" * (validate.NESTING_MAX + 1)}}}'
        for body in (deep, f'{{"name": "pay", "payload": "{MARK}}}', *map(json.dumps, (
            {"name": {"card": MARK}, "payload": 1}, {"name": "pay", "payload": {"card": 1}, "more": {"n": MARK}},
            {"name": "pay", "attempts": {"card": MARK}}, {"name": "pay", "payload": MARK, "needs": {"card": MARK}}, [MARK],
        ))):  # fmt: skip
            answer = httpx.post(f"{url}/api/queues/q/jobs", content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code in (400, 422) and MARK not in answer.text, (answer.status_code, answer.text)


def test_what_is_not_shown_is_outlined_by_type_and_size() -> None:
    for value, text in (
        ("hunter2", "a str of length 7"), (b"hunter2", "a bytes of length 7"), ({"a": 1}, "a dict of length 1"),
        ([1, 2], "a list of length 2"), (4111, "an int"), (None, "None"), (Card(), "a Card"),
    ):  # fmt: skip
        assert outlined(value) == text
        error = Malformed("card", value, "another one", private=True).within("jobs[3]")
        assert (str(error), error.value) == (f"jobs[3].card: {text} is not allowed, it must be another one", value)
    for value, text in (
        ([1, "a", None], "[1, 'a', None]"), ({"a": 1}, "a dict of length 1"), ([{}], "a list of length 1"),
        (int, "<class 'int'>"),
    ):  # fmt: skip
        assert shown(value) == text
