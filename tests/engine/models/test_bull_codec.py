"""Bull's jobs in Python: opts exactly as Node writes them, and what other clients have written there read as Node reads it."""

import json
from typing import Any

import pytest

from engine import Malformed, Queue, ScriptFault, UnsupportedFeature, models
from engine.models.foreign.bull import UNNAMED, BullModel
from engine.models.foreign.foreign import unpack
from engine.options import checked
from engine.outcomes import backoff_delay_ms
from tests import golden
from tests.engine.using import Enqueue, Lease, Options, refused

MODEL = BullModel("q", "bull")


def encoded(name: str = UNNAMED, **options: Any) -> list[str]:
    job = Enqueue("", name, b'{"n":1}', b"nonce---", checked({"attempts": 1, **options}))
    return [field.decode() for field in unpack(MODEL.encode(job))]


def decoded(opts: object = None, attempts: str = "1", timestamp: str = "5") -> Options:
    text = opts if isinstance(opts, str) else json.dumps({} if opts is None else opts)
    return MODEL.decode([b"{}", text.encode(), attempts.encode(), timestamp.encode()], Lease("1", 1, "n"), 0, (1, 0, 0)).options


@pytest.mark.feature("BL07", "BL08", "BL09", "BL10", model="bull")
def test_opts_are_those_of_node() -> None:
    some: list[dict[str, Any]] = [{}, {"lifo": True}, {"delay_ms": 60000}, {"run_at_ms": 60000, "lifo": True, "attempts": 2}]
    some += [{"attempts": 3, "backoff": "exponential", "backoff_ms": 2000, "timeout_ms": 9000}]
    some += [{"attempts": 2, "backoff_ms": 0}, {"timestamp_ms": 77}]
    golden.same("engine/bull_opts.txt", "".join(f"{options}: {encoded(**options)}\n" for options in some))


def test_another_name_travels_in_opts() -> None:
    assert encoded("send", timeout_ms=5)[1] == '{"timeout":5,"name":"send"}'
    job = MODEL.decode([b"1", b'{"name":"send"}', b"", b""], Lease("1", 1, "n"), 9, (1, 2, 3))
    assert job[2:6] == ("send", "send", "send", b"1")


def test_what_is_written_is_read_again() -> None:
    options: Any
    for options in ({"attempts": 4, "backoff_ms": 700}, {"timeout_ms": 9000, "lifo": True}, {"timestamp_ms": 5}, {}):
        _, head, rest, attempts, timestamp, _ = encoded(**options)
        found = decoded(head + rest, attempts, timestamp)
        wanted = checked({"attempts": 1, **options})
        for field in ("attempts", "backoff", "timeout_ms", "lifo"):
            assert getattr(found, field) == getattr(wanted, field), field
        assert found.attempts == 1 or found.backoff_ms == wanted.backoff_ms


@pytest.mark.feature("BL09", model="bull")
def test_waits_are_those_of_node() -> None:
    some: list[Any] = [
        {"type": "exponential", "delay": 2000}, {"type": "exponential", "delay": "2000"}, {"type": "exponential", "delay": 0},
        {"type": "exponential"}, {"type": "fixed", "delay": 500}, {"type": "geometric", "delay": 500}, 300, "300", -5, 1e300,
        True, None, "soon", [7], {},
    ]  # fmt: skip
    waits = [[backoff_delay_ms(decoded({"backoff": one}, "9"), failures, lambda: 0.5) for failures in range(4)] for one in some]
    golden.same("engine/bull_backoffs.txt", "".join(f"{one!r}: {found}\n" for one, found in zip(some, waits, strict=True)))


def test_an_exponential_wait_has_a_bound() -> None:
    options = decoded({"backoff": {"type": "exponential", "delay": 1e9}}, "1000")
    assert backoff_delay_ms(options, 900, lambda: 0.5) == max(options.backoff_delays_ms) <= 2**43


def test_opts_without_meaning_are_none() -> None:
    for opts in ("null", "7", "[]", '"x"', "true", '{"timeout":null,"backoff":null}', '{"timeout":"x"}', '{"more":{}}'):
        assert decoded(opts) == Options(attempts=1, backoff_ms=0)


def test_numbers_as_texts() -> None:
    assert decoded({"timeout": "9000"}).timeout_ms == 9000 and decoded({"timeout": 1.5}).timeout_ms == 1
    assert [decoded(attempts=text).attempts for text in ("3abc", "", "NaN", "-2", "9" * 500)] == [3, 1, 1, 1, 2**31 - 1]
    assert MODEL.decode([b"{}", b"{}", b"1", b"9" * 500], Lease("1", 1, "n"), 0, (1, 0, 0)).enqueued_ms == 2**47


def test_what_cannot_be_read_is_said_of_its_job() -> None:
    for raw in (*([b"{}", text, b"1", b"5"] for text in (b"{oops", b"[" * 200_000, b"\xff")), [b"{}"], b"x"):
        refused(ScriptFault, "job 7 of Bull's", MODEL.decode, raw, Lease("7", 1, "n"), 0, (1, 0, 0))


def test_ids_that_are_bulls_own() -> None:
    names = ("wait", "active", "paused", "delayed", "completed", "failed", "id", "meta-paused", "jobs")
    for id in ("1", "0042", *names, "7:lock", "ironclaim:x"):
        refused(Malformed, "id", MODEL.check_id, id)


def test_ids_of_ones_own() -> None:
    assert [MODEL.check_id(id) for id in ("order-7", "a:b", "7a")] == ["order-7", "a:b", "7a"] and MODEL.new_id() == ""


def test_what_bull_has_no_room_for_is_refused_before_anything_is_sent() -> None:
    options: Any
    for options in ({"priority": 7}, {"unique": "u"}, {"headers": {"a": "b"}}, {"backoff": "linear"}, {"jitter": 0.5}):
        queue = Queue("q", models.Bull(), url="redis://127.0.0.1:1")
        refused(UnsupportedFeature, "bull has no", queue.enqueue, "work", {}, **options)
        queue.close()
