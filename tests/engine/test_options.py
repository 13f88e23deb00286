"""The table of options: every bound from both sides, and the same names wherever options are given or read."""

import inspect
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

import pytest

from engine import JobOptions, Malformed, NewJob, Queue, RetryLater, Target, TimedOut, Worker
from engine.models.envelope import NUMBERS_BYTES, decode, encode
from engine.options import DEFAULTS, OPTIONS, PLAIN, Checked, Choice, Duration, Flag, Whole, checked
from engine.validate import DURATION_MS_MAX, HEADERS_BYTES_MAX, INSTANT_MS_MAX, KEY_CHARS_MAX, ROUTE_CHARS_MAX
from tests.engine.using import Enqueue, Lease, Options, refused, some_handlers

NOT_WHOLE = (True, False, None, "5", b"5", 1.5, math.nan, math.inf, -math.inf, [1], 10**400)
BAD_TEXTS = ("", "two words", "new\n", "ä", "a/b", "{a}", "nul\0", 7, b"bytes", ["a"])
PARENTS = tuple(f"p{at}" for at in range(1_000))
#: Callbacks.
AFTER, AFTER_ALL = NewJob("send", {}), NewJob("send", None, id="mine", priority=1, expires_ms=7, key="k", unique=None)
HEADER_FILL = HEADERS_BYTES_MAX - len(json.dumps({"h": ""}))

#: For each option that is no number, flag or choice: values inside its bound with what the engine reads, and values outside.
EXAMPLES: dict[str, tuple[list[tuple[Any, Any]], list[Any]]] = {
    "headers": (
        [({}, ()), ({"h": "x" * HEADER_FILL}, (("h", "x" * HEADER_FILL),))],
        [{"h": "x" * (HEADER_FILL + 1)}, 7, "a=b", [("a", "b")], {"a": 1}, {1: "a"}, {"a": None}, {"a": b"b"}]),
    "run_at_ms": (
        [(1, 1), (INSTANT_MS_MAX, INSTANT_MS_MAX), (datetime(2026, 1, 1, tzinfo=UTC), 1_767_225_600_000)],
        [0, -1, INSTANT_MS_MAX + 1, datetime(2026, 1, 1), datetime(1969, 1, 1, tzinfo=UTC),
         *(v for v in NOT_WHOLE if v is not None)]),
    "serializer": ([("s" * 128, "s" * 128)], ["s" * 129, *BAD_TEXTS]),
    "key": ([("k" * KEY_CHARS_MAX, "k" * KEY_CHARS_MAX)], ["k" * (KEY_CHARS_MAX + 1), *BAD_TEXTS]),
    "unique": ([("u" * 128, "u" * 128)], ["u" * 129, *BAD_TEXTS]),
    "backoff_delays_ms": (
        [([0], (0,)), ([DURATION_MS_MAX] * 100, (DURATION_MS_MAX,) * 100), ((1, 2.0), (1, 2))],
        [[], [-1], [DURATION_MS_MAX + 1], [1] * 101, [1.5], [True], ["1"], "12", b"12", 7, {1: 2}]),
    "jitter": ([(0, 0.0), (1, 1.0), (0.25, 0.25)], [-0.001, 1.001, math.nan, math.inf, True, "0.5", [0.5]]),
    "needs": (
        [([], ()), (["p" * 128, "a>reroute"], ("p" * 128, "a>reroute")), (list(PARENTS), PARENTS)],
        [["p" * 129], [*PARENTS, "p"], ["p", "p"], "p", b"p", 7, {"p"}, [None], *([text] for text in BAD_TEXTS)]),
    "skip_on": (
        [(["ValueError", "json.JSONDecodeError"], ("ValueError", "json.JSONDecodeError")),
         (["E" * 128], ("E" * 128,)), (ValueError, ("ValueError",)),
         ((KeyError, json.JSONDecodeError, "E"), ("KeyError", "json.decoder.JSONDecodeError", "E"))],
        [["E" * 129], [f"E{at}" for at in range(51)], ["E", "E"], "ValueError", [int], int,
         [KeyError, "KeyError"], ["two words"], ["1st"], 7]),
    "reroute_on": (
        [({"GpuError": "gpu"}, (("GpuError", "gpu"),)), ({"E": "big:gpu:a"}, (("E", "big:gpu:a"),)),
         ({OSError: "gpu"}, (("OSError", "gpu"),))],
        [{"E": ""}, {"E": "big:"}, {"E": ":gpu"}, {"E": None}, {"two words": "gpu"}, {"E": "g" * 129},
         ["E"], "E", {7: "gpu"}, {int: "gpu"}]),
    **dict.fromkeys(("on_success", "on_failure"), ([(AFTER, AFTER), (AFTER_ALL, AFTER_ALL)], ["send", 7, {"name": "send"}])),
    "dedup": ([("d" * 128, "d" * 128)], ["d" * 129, *BAD_TEXTS]),
    "route": ([("r" * ROUTE_CHARS_MAX, "r" * ROUTE_CHARS_MAX), ("default", "")], ["r" * (ROUTE_CHARS_MAX + 1), *BAD_TEXTS]),
    "target": (
        [({"server": "s" * 128}, f'{{"server":"{"s" * 128}"}}'), (Target(), ""),
         ({"stack": ["b", "a", "b"]}, '{"stack":["a","b"]}')],
        ["gpu", 7, ["gpu"], {"speed": 1}]),
}  # fmt: skip
#: Options that an option needs beside it.
COMPANIONS: dict[str, dict[str, Any]] = {
    "dedup": {"dedup_ms": 1}, "dedup_ms": {"dedup": "d"}, "backoff_delays_ms": {"backoff": "custom"},
}  # fmt: skip


def companions(name: str, value: Any) -> dict[str, Any]:
    """What has to be given beside an option of this value."""
    return {"backoff_delays_ms": [5]} if (name, value) == ("backoff", "custom") else COMPANIONS.get(name, {})


def examples_of(name: str) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Good values of a Checked option with what the engine reads, and bad ones."""
    assert name in EXAMPLES, f"{name} is Checked: EXAMPLES needs values inside its bound, what is read, and values outside"
    return EXAMPLES[name]


def cases() -> Iterator[tuple[str, Any, Any]]:
    """Name, value inside the bound, what the engine reads."""
    for name, option in OPTIONS.items():
        match option:
            case Whole(least, most):
                yield from ((name, value, int(value)) for value in (least, most, float(most)) if value or name not in COMPANIONS)
            case Flag():
                yield from ((name, value, value) for value in (False, True))
            case Choice(words):
                yield from ((name, word, word) for word in words)
            case Checked():
                yield from ((name, value, read) for value, read in examples_of(name)[0])


def bad_cases() -> Iterator[tuple[str, Any]]:
    for name, option in OPTIONS.items():
        match option:
            case Whole(least, most):
                yield from ((name, value) for value in (least - 1, most + 1, -(10**18), *NOT_WHOLE))
            case Flag():
                yield from ((name, value) for value in (1, 0, None, "yes"))
            case Choice(words):
                yield from ((name, value) for value in (words[0].upper(), "", None, 0, [words[0]]))
            case Checked():
                yield from ((name, value) for value in examples_of(name)[1])


@pytest.mark.parametrize(("name", "value", "read"), list(cases()))
def test_inside_its_bound(name: str, value: Any, read: Any) -> None:
    taken = getattr(checked({name: value, **companions(name, value)}), name)
    assert taken == read and type(taken) is type(read)


@pytest.mark.parametrize(("name", "value"), list(bad_cases()))
def test_outside_its_bound(nowhere: Queue, name: str, value: Any) -> None:
    given: Any = {name: value, **COMPANIONS.get(name, {})}
    caught = refused(Malformed, f"^{name}: .*it must be", nowhere.enqueue, "work", {}, **given)
    assert caught.field == name and "\n" not in str(caught)
    refused(Malformed, rf"^jobs\[0\]\.{name}: ", nowhere.enqueue_many, [NewJob("work", {}, **given)])


@pytest.mark.parametrize(("name", "companion"), COMPANIONS.items())
def test_an_option_that_needs_another(name: str, companion: dict[str, Any]) -> None:
    alone: Any = {name: 1 if isinstance(OPTIONS[name], Whole) else [1] if name.endswith("_ms") else "d"}
    refused(Malformed, "it must be", checked, alone)
    assert checked(alone | companion) != PLAIN


DURATIONS = sorted(name for name, option in OPTIONS.items() if isinstance(option, Duration))


@pytest.mark.parametrize("name", DURATIONS)
def test_a_length_of_time_may_be_a_timedelta_within_the_same_bounds(name: str) -> None:
    companion = {"dedup_ms": {"dedup": "d"}}.get(name, {})
    for given, ms in ((timedelta(seconds=3), 3000), (timedelta(days=2, milliseconds=1), 172_800_001)):
        assert checked({name: given, **companion}) == checked({name: ms, **companion})
    for bad in (timedelta(microseconds=1), timedelta(milliseconds=-1), timedelta(days=40_000)):
        refused(Malformed, f"^{name}: ", checked, {name: bad, **companion})


def test_every_option_in_ms_takes_a_timedelta_but_the_instants() -> None:
    assert {name for name in OPTIONS if name.endswith("_ms")} - {*DURATIONS} == {"run_at_ms", "timestamp_ms", "backoff_delays_ms"}
    assert checked({"backoff": "custom", "backoff_delays_ms": [timedelta(seconds=1), 5]}).backoff_delays_ms == (1000, 5)
    for name in ("run_at_ms", "timestamp_ms"):
        refused(Malformed, f"^{name}: ", checked, {name: timedelta(seconds=1)})


def test_queues_schedules_and_workers_take_a_timedelta_wherever_ms_are_asked_for(ironclaim_url: str) -> None:
    second = timedelta(seconds=1)
    with Queue("spans", url=ironclaim_url, replica_wait_ms=second) as queue:
        queue.pause("work", length_ms=second)
        queue.set_limit("work", rate=3, per_ms=timedelta(minutes=1))
        queue.set_retention(done_age_ms=second, dead_age_ms=timedelta(days=1))
        queue.schedules.put("s", "work", None, every_ms=timedelta(hours=1), late_ms=second, delay_ms=timedelta())
        assert queue.schedules.list()[0].timing.every_ms == 3_600_000
        assert queue.clean("dead", older_than_ms=second) == 0 and queue.dead.clear(older_than_ms=second) == 0
        lock: Any = queue.locks.acquire("l", ttl_ms=timedelta(minutes=1))
        queue.locks.extend(lock, ttl_ms=timedelta(minutes=1))
        assert list(queue.events.read("0", wait_ms=timedelta())) == []
        queue.enqueue("work", None, id="w", delay_ms=timedelta(hours=1))
        assert (info := queue.jobs.get("w")) is not None and info.due_ms - info.enqueued_ms == 3_600_000
        refused(TimedOut, "", queue.results.wait, "w", wait_ms=timedelta(milliseconds=1))
        handlers = some_handlers(lambda job: None)
        Worker(queue, handlers, lease_ms=second, sweep_ms=timedelta(milliseconds=100), grace_ms=second, beat_ms=second)
        refused(Malformed, "^lease_ms: ", Worker, queue, handlers, lease_ms=timedelta(days=2))
    assert RetryLater(second).delay_ms == 1000


@pytest.mark.parametrize("others", [{"delay_ms": 500}, {"delay_ms": 501}, {"run_at_ms": 1}])
def test_an_expiry_before_the_job_is_due_is_refused_by_name(others: dict[str, Any]) -> None:
    refused(Malformed, r"^expires_ms: 500 ", checked, {"expires_ms": 500, **others})
    assert checked({"expires_ms": 500, "delay_ms": 499}).expires_ms == 500


def test_the_table_the_callers_type_and_the_engines_type_have_the_same_names() -> None:
    assert set(OPTIONS) == set(get_type_hints(JobOptions)) == {field.name for field in fields(Options)}
    defaults = {name: None if isinstance(option, Checked) else getattr(PLAIN, name) for name, option in OPTIONS.items()}
    assert checked(defaults) == PLAIN == Options() and {name: value for name, value in asdict(PLAIN).items() if value} == DEFAULTS
    assert {name for name, option in OPTIONS.items() if isinstance(option, Checked)} == set(EXAMPLES)


def test_a_new_job_takes_what_enqueue_takes() -> None:
    def parameters(function: Any) -> list[tuple[str, Any, Any, Any]]:
        return [(p.name, p.kind, p.default, p.annotation) for p in inspect.signature(function).parameters.values()]

    assert parameters(NewJob) == [p for p in parameters(Queue.enqueue)[1:] if p[0] != "intended_ns"]


#: Those that do not travel with the job: they decide what becomes of the enqueue.
STAY = {"dedup", "dedup_ms", "delay_ms", "run_at_ms", "on_success", "on_failure"}


@pytest.mark.parametrize(("name", "value", "read"), [case for case in cases() if case[0] not in STAY])
def test_it_travels_in_the_envelope(name: str, value: Any, read: Any) -> None:
    options = checked({name: value, **companions(name, value)})
    head, tail = encode(Enqueue("j", "work", b"{}", b"nonce---", options, not_after_ms=1000))
    job = decode(head + bytes(NUMBERS_BYTES) + tail, Lease("j", 1, "n"), 0, (1, 0, 0))
    assert getattr(job.options, name) == read and (job.options, job.payload) == (options, b"{}")
