"""Bad input: every bound from both sides. The message names field, value and bound, and nothing is sent."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any

import pytest

from engine import EngineError, Handlers, Job, Malformed, NewJob, Queue, RetryLater, Worker, models, validate
from engine.channel import contents
from engine.options import OPTIONS
from engine.parameters import Parameters
from tests.engine.using import Lease, LeasedJob, Options, producing, some_handlers

NAMES = ("a", "A-z_0.9:", "q" * 128)
BAD_NAMES = ("", "q" * 129, "two words", "new\n", "ä", "a/b", "{a}", "a|b", "nul\0", None, 7, b"bytes", ["a"])
NOT_WHOLE = (True, False, None, "5", b"5", 1.5, math.nan, math.inf, -math.inf, [1], 10**400)


@pytest.fixture
def queue(nowhere: Queue) -> Queue:
    return nowhere


def refused(field: str, value: object, call: Any, *arguments: object, **options: Any) -> str:
    """The message of the Malformed that the call must raise; it names the field, the value and a bound."""
    with pytest.raises(Malformed) as caught:
        call(*arguments, **options)
    assert caught.value.field == field and caught.value.bound
    message = str(caught.value)
    assert message.startswith(f"{field}: ") and "it must be" in message and "\n" not in message
    assert repr(value)[:60] in message
    return message


@pytest.mark.parametrize("name", NAMES)
def test_names_and_ids_inside_their_bounds(name: str) -> None:
    assert validate.queue_name(name) == name and validate.job_id(name) == name
    assert validate.job_name(name) == name and validate.worker_name(name) == name


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_and_ids_outside_their_bounds(queue: Queue, name: Any) -> None:
    refused("queue", name, Queue, name)
    refused("name", name, queue.enqueue, name, {})
    if isinstance(name, str) and name:
        # Another model may have such a name, so it is the worker that refuses it.
        handlers = Handlers()
        handlers(name)(lambda job: None)
        refused("name", name, Worker, queue, handlers)
    else:
        refused("name", name, Handlers(), name)
    if name is not None:
        refused("id", name, queue.enqueue, "work", {}, id=name)
    if name:
        refused("worker name", name, Worker, queue, Handlers(), name=name)


def test_ids_of_schedules_are_not_for_callers(queue: Queue) -> None:
    assert "cron:" in refused("id", "cron:nightly:1", queue.enqueue, "work", {}, id="cron:nightly:1")
    assert validate.job_id("my-cron:1") == "my-cron:1"


def test_the_greatest_payload_and_one_byte_more(queue: Queue) -> None:
    text = "x" * (validate.PAYLOAD_BYTES_MAX - 2)
    assert len(validate.payload_bytes(text)) == validate.PAYLOAD_BYTES_MAX
    message = refused("payload", f"{validate.PAYLOAD_BYTES_MAX + 1} bytes", queue.enqueue, "work", text + "x")
    assert "524288 bytes" in message
    # Bytes, not characters.
    refused("payload", f"{validate.PAYLOAD_BYTES_MAX + 2} bytes", queue.enqueue, "work", "ä" * (validate.PAYLOAD_BYTES_MAX // 2))


@pytest.mark.parametrize("payload", [None, True, 0, -(2**63), 1e300, "", "ä\0\x7f", [], {}, {"a": [None, {"b": "c"}]}])
def test_payloads_that_serialise(payload: object) -> None:
    assert json.loads(validate.payload_bytes(payload)) == payload


def circle() -> object:
    nested: dict[str, object] = {}
    nested["a"] = [nested]
    return nested


def levels_of(count: int) -> object:
    found: object = 0
    for level in range(count):
        found = {"a": found} if level % 2 else [found]
    return found


@pytest.mark.parametrize(
    "payload", [{"a": b"bytes"}, {1, 2}, object(), math.nan, math.inf, {"a": -math.inf}, {(1, 2): 3}, "\ud800", circle()]
)
def test_payloads_that_do_not_serialise(queue: Queue, payload: object) -> None:
    with pytest.raises(Malformed, match=r"^payload: .* must be a JSON value of at most 524288 bytes") as caught:
        queue.enqueue("work", payload)
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize("make", [lambda: levels_of(200_000), lambda: 10**5000, Unprintable], ids=["deep", "huge", "mute"])
def test_values_that_cannot_even_be_printed(queue: Queue, make: Callable[[], Any]) -> None:
    value = make()
    producing.refused(Malformed, "^payload: ", queue.enqueue, "work", value)
    producing.refused(Malformed, "^priority: ", queue.enqueue, "work", {}, priority=value)


@pytest.mark.parametrize(("setting", "least", "most"), [
    ("lease_ms", 100, 86_400_000), ("concurrency", 1, validate.CONCURRENCY_MAX), ("prefetch", 0, validate.CONCURRENCY_MAX),
    ("grace_ms", 0, 86_400_000), ("sweep_ms", 10, 9000),
])  # fmt: skip
def test_settings_of_a_worker(queue: Queue, setting: str, least: int, most: int) -> None:
    for value in (least, most):
        options: dict[str, Any] = {setting: value} | ({"sweep_ms": 10} if setting == "lease_ms" else {})
        Worker(queue, some_handlers(), **options)
    for value in (least - 1, most + 1, *NOT_WHOLE):
        refused(setting, value, Worker, queue, some_handlers(), **{setting: value})


def test_a_sweep_that_would_come_later_than_a_lease_lasts(queue: Queue) -> None:
    refused("sweep_ms", 2001, Worker, queue, some_handlers(), lease_ms=2000, sweep_ms=2001)
    Worker(queue, some_handlers(), lease_ms=2000, sweep_ms=2000)
    # A short lease alone needs no other setting.
    Worker(queue, some_handlers(), lease_ms=100)


def test_nothing_is_written(ironclaim_url: str, client: Any) -> None:
    """Beside a queue where nothing listens: the same on a server, which hears nothing at all."""
    queue = Queue("q", url=ironclaim_url)
    before = client.info("stats")["total_connections_received"]
    for options in ({"id": ""}, {"priority": 11}, {"delay_ms": -1}, {"delay_ms": math.nan}, {"headers": 7}):
        producing.refused(Malformed, None, queue.enqueue, "work", {}, **options)
    producing.refused(Malformed, None, queue.enqueue, "work", object())
    assert client.dbsize() == 0 and client.info("stats")["total_connections_received"] == before
    queue.close()


def test_a_queue_may_have_another_limit_of_payloads(ironclaim_url: str) -> None:
    small = Queue("q", url=ironclaim_url, payload_bytes_max=7)
    try:
        assert small.enqueue("work", {"a": 1}).created
        producing.refused(Malformed, "^payload: '8 bytes' .* at most 7 bytes", small.enqueue, "work", {"a": 12})
        assert small.counts().waiting == 1
    finally:
        small.close()
    for bad in (0, 64 * 1024 * 1024 + 1, "1", None, True):
        producing.refused(Malformed, "^payload_bytes_max: ", Queue, "q", payload_bytes_max=bad)


def without_argument() -> None: ...


def with_two(_job: object, _more: object) -> None: ...


@pytest.mark.parametrize("wrong", [without_argument, with_two, 7, None, "work"])
def test_a_handler_that_cannot_be_called_with_a_job(wrong: Any) -> None:
    """Else every run of its jobs fails, until they are dead."""
    handlers = Handlers()
    refused("handler", wrong, handlers("work"), wrong)
    assert not handlers.by_name


@pytest.mark.parametrize("right", [print, lambda job, times=2: None, lambda *jobs: None, Handlers().find, dict])
def test_a_handler_that_takes_more_than_it_must(right: Any) -> None:
    assert some_handlers(right).by_name["work"] is right


def test_what_redis_py_says_of_a_url_is_told(queue: Queue) -> None:
    for url in ("redis://localhost?socket_timeout=soon", "redis://localhost?no_such=1", "sentinel://one/mails?no_such=2"):
        assert url.partition("?")[2].partition("=")[0] in refused("url", url, Queue, "q", url=url).partition("it must be")[2]


def test_a_job_says_what_it_is() -> None:
    leased = LeasedJob(Lease("j1", 7, ""), 0, "work", "work", "work", b"1", Options(), 0, 0, 1, 0, 0)
    assert repr(Job(leased)) == "<Job j1 (work), fence 7>"


def test_public_names_show_before_their_first_use() -> None:
    subprocess.run([sys.executable, "-c", "import engine; assert set(engine.__all__) <= set(dir(engine))"], check=True)


class Lying(dict[str, int]):
    """Fails when it is looked into."""

    def items(self) -> Any:
        raise LookupError("no items")


class Colour(IntEnum):
    RED = 1


#: What JSON makes equal or cannot say, and a word of the reason.
UNSAYABLE: tuple[tuple[Any, str], ...] = (
    *(({1: "int", "1": "text"}, "1 and '1'"), ({"1": "text", 1: "int"}, "'1' and 1"), ({-1: 0, "-1": 1}, "-1")),
    *(({True: 0, "true": 1}, "True and 'true'"), ({None: 0, "null": 1}, "None and 'null'")),
    *(({1.5: 0, "1.5": 1}, "1.5 and '1.5'"), ({1e300: 0, "1e+300": 1}, "1e\\+300"), ({Colour.RED: 0, "1": 1}, "RED")),
    *(([{"a": ({"b": {0: 0, "0": 1}},)}], "0 and '0'"), ({(1, 2): 0}, "tuple"), ({b"a": 0}, "bytes"), ({1, 2}, "set")),
    *(({math.nan: 0}, "nan|NaN|JSON compliant"), (math.nan, "JSON compliant"), ([math.inf], "JSON compliant")),
    *(("\ud800", "surrogates"), ({"\udcff": 0}, "surrogates"), ([10**5000], "digits"), ({10**5000: 0}, "digits")),
    *((levels_of(501), "deep|recursion"), (levels_of(100_000), "recursion"), (Lying(a=1), "no items")),
)
#: What it can say, though a key or a text looks like one of those.
SAYABLE: tuple[Any, ...] = (
    *({1: "int", "2": "text"}, {"a": '{"1":2,\\"1\\":3}', "1": 0, "true": 1, "null": None}, {Colour.RED: Colour.RED}),
    *([{str(number): number} for number in range(600)], ['[{"1":' * 600], OrderedDict(a=(1, 2))),
    *(levels_of(validate.NESTING_MAX - 1), levels_of(validate.NESTING_MAX)),
)


def test_what_json_makes_equal_or_cannot_say_is_refused_by_name_wherever_values_travel(queue: Queue) -> None:
    leased = LeasedJob(Lease("a", 1, "n"), 0, "work", "work", "work/", b"1", Options(result_ttl_ms=1000), 0, 0, 0, 0, 0)
    job = Job(leased)

    def anything(a: Any) -> None: ...

    typed = Parameters(anything, Job)
    #: Every place that takes a value of the caller, by the field that it names.
    places: tuple[tuple[str, Callable[[Any], object]], ...] = (
        ("payload", lambda value: queue.enqueue("work", value)),
        ("payload", lambda value: queue.enqueue("work", value, serializer="json")),
        ("jobs[1].payload", lambda value: queue.enqueue_many([NewJob("work", 0), NewJob("work", value)])),
        ("on_success.payload", lambda value: queue.enqueue("work", 0, on_success=NewJob("more", value))),
        ("payload", lambda value: queue.schedules.put("s", "work", value, every_ms=1000)),
        ("payload", lambda value: queue.enqueue("work", typed.write((value,), {}))),
        *(("progress", lambda value: job.progress(1, data=value)), ("result", job.encode_result)),
        *(("attributes", lambda value: validate.attributes({"a": value})), ("content", contents.written)),
    )
    for field, place in places:
        for value, reason in (*UNSAYABLE, (circle(), "[Cc]ircular")):
            with pytest.raises(Malformed) as caught:
                place(value)
            assert caught.value.field == field and re.search(reason, str(caught.value)), (field, reason, str(caught.value))
            assert caught.value.__cause__ is not None and len(str(caught.value)) < 1500
    for value in SAYABLE:
        assert json.loads(validate.payload_bytes(value)) == json.loads(json.dumps(value))


def test_a_text_of_json_that_would_not_come_back_as_it_was_said_is_refused() -> None:
    for text in (
        '{"a":1,"a":1}', '[{"b":{"a":1,"c":2,"a":3}}]', "NaN", "[-Infinity]", "1e400", '"\\ud800"', '{"\\udc00":1}', "[" * 10**5,
    ):  # fmt: skip
        producing.refused((ValueError, RecursionError), None, validate.json_value, text)
    producing.refused(ValueError, "the key 'a' comes twice", validate.json_value, b'{"b":1,"a":1,"a":2}')
    assert validate.json_value('{"a":[1.5,{"b":"\\ud83d\\ude00"}]}') == {"a": [1.5, {"b": "😀"}]}


class Evil:
    """Whatever is done with it raises."""

    def _no(self, *_: object) -> Any:
        raise LookupError("evil")

    __repr__ = __str__ = __int__ = __float__ = __index__ = __len__ = __iter__ = __eq__ = __getitem__ = _no  # type: ignore[assignment]
    __hash__ = object.__hash__


class NoList(Sequence[object]):
    """A sequence that cannot be read."""

    def __len__(self) -> int:
        raise LookupError("no length")

    def __getitem__(self, at: Any) -> Any:
        raise LookupError("no item")


class NoMapping(Mapping[str, object]):
    """The same as a mapping."""

    __len__ = __getitem__ = __iter__ = Evil._no  # type: ignore[assignment]


class NoZone(tzinfo):
    """A zone that raises."""

    def utcoffset(self, dt: datetime | None) -> Any:
        raise ArithmeticError("no zone")


class Shouting:
    """Its repr is large, and no UTF-8."""

    def __repr__(self) -> str:
        return "\ud800" * 10**6


@dataclass
class Strict:
    """A value with a validator of its own, which raises what no conversion expects."""

    size: int

    def __post_init__(self) -> None:
        raise {1: ZeroDivisionError("own"), 2: KeyError("own"), 3: RecursionError("own")}.get(self.size, AssertionError("own"))


class Word(Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise ArithmeticError("own")


HOSTILE: tuple[Any, ...] = (
    10**400, 10**5000, -(10**5000), math.inf, math.nan, Decimal("Infinity"), Fraction(1, 3), timedelta.max, b"\xff", Evil(),
    NoList(), NoMapping(), Shouting(), circle(), {"a": Evil()}, [Evil()], [[]], {1: 2}, "\ud800", "\0", "x" * 10**6, object(),
    datetime(2030, 1, 1, tzinfo=NoZone()), datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))), (10**5000,),
)  # fmt: skip


def test_whatever_a_value_of_the_caller_raises_its_field_is_named(queue: Queue) -> None:
    def converts(
        a: float, b: timedelta, c: Decimal, e: Word, f: float | str, g: list[Strict] | None, h: dict[str, float], d: Any = None
    ) -> None: ...

    # With a default, so that a sound call leaves it out.
    converts.__annotations__["d"] = Strict
    typed = Parameters(converts, Job)
    sound = {"a": 1.0, "b": 1.0, "c": "1", "e": "a", "f": 1.0, "g": None, "h": {}}
    sound_values = {**sound, "b": timedelta(1), "c": Decimal(1), "e": Word.A}
    wrong: tuple[tuple[str, Any, type[BaseException]], ...] = (
        ("a", 10**400, OverflowError), ("b", 1e300, OverflowError), ("b", 10**400, OverflowError), ("c", "no", ValueError),
        ("d", {"size": 1}, ZeroDivisionError), ("d", {"size": 2}, KeyError), ("d", {"size": 3}, RecursionError),
        ("d", {"size": 4}, AssertionError), ("e", "b", ArithmeticError), ("f", 10**400, TypeError),
        ("g", [{"size": 1}], TypeError), ("h", {"x": 10**400}, OverflowError),
    )  # fmt: skip
    for name, value, cause in wrong:
        with pytest.raises(Malformed) as caught:
            typed.item({**sound, name: value})
        assert caught.value.field == f"payload.{name}" and isinstance(caught.value.__context__, cause)
        # Texts of these quote the value, and traces with their causes are stored.
        assert (caught.value.__cause__ is None) == issubclass(cause, TypeError | ValueError)
        if name in "ah":
            with pytest.raises(Malformed) as caught:
                typed.write((), {**sound_values, name: value})
            assert caught.value.field == name and isinstance(caught.value.__cause__, OverflowError)
    queue.driver.deadline_ms = 0
    worker = ("concurrency", "lease_ms", "attributes", "names", "priorities", "routes", "stack", "capabilities", "gate")
    places: dict[str, Callable[[Any], object]] = {
        **{name: lambda value, name=name: queue.enqueue("work", 1, **{name: value}) for name in OPTIONS},
        **{f"worker {name}": lambda value, name=name: Worker(queue, some_handlers(), **{name: value}) for name in worker},
        "serializers": lambda value: Queue("q", serializers=value), "durability": lambda value: Queue("q", durability=value),
        "rules": lambda value: models.Dsps(rules=value), "coordinate": lambda value: models.Mosquito(coordinate=value),
        "cron": lambda value: queue.schedules.put("s", "work", 1, cron=value),
        "every_ms": lambda value: queue.schedules.put("s", "work", 1, every_ms=value),
        "start_ms": lambda value: queue.schedules.put("s", "work", 1, every_ms=1000, start_ms=value), "delay": RetryLater,
    }  # fmt: skip
    for name, place in places.items():
        for value in HOSTILE:
            try:
                place(value)
            except EngineError as error:
                # It is refused, or it was taken, and the server is away. Whatever it is, the text can be shown.
                assert len(str(error)) < 2_000 and str(error).encode(), (name, type(value))
