"""BridgeMQ's JSON: what we write is what the original's client writes, and what anybody has written is read for what it says."""

import json
from typing import Any

import pytest

from chaos.foreign_keys import BridgeKeys
from engine import Malformed, Queue, ScriptFault, UnsupportedFeature, models
from engine.calendar import calendar
from engine.models.foreign.bridge import BridgeModel
from engine.models.foreign.foreign import pack, unpack
from engine.options import checked
from engine.outcomes import backoff_delay_ms
from tests import golden
from tests.engine.using import Beat, Claim, Enqueue, Lease, LeasedJob, Options, Timing, refused

MODEL = BridgeModel("q", "bridge")
#: The first job of the reference dump, from its type to the time of its enqueue.
DUMPED = (
    ',"type":"email","payload":{"to":"x@y"},"schedule":{},"retry":{"attempts":3,"backoff":{"type":"exponential","delay":2000}},'
    '"priority":5,"dependsOn":[],"target":{},"metadata":{},"createdAt":'
)
AS_DUMPED: dict[str, Any] = {"attempts": 4, "backoff": "exponential", "backoff_ms": 2000}


def encoded(payload: bytes = b'{"to":"x@y"}', **options: Any) -> list[str]:
    return [field.decode() for field in unpack(MODEL.encode(Enqueue("a", "email", payload, b"12345678", checked(options))))]


def decoded(payload: bytes = b"null", **members: Any) -> LeasedJob:
    whole = {"jobId": "a", "type": "email", "payload": None, "createdAt": 7} | members
    return MODEL.decode([json.dumps(whole).encode(), payload], Lease("a", 1, "n"), 9, (1, 0, 0))


@pytest.mark.feature("BQ28", model="bridge")
def test_a_job_is_written_as_in_the_dump() -> None:
    assert encoded(**AS_DUMPED) == ["5", DUMPED, ',"attempts":0}']


def test_what_is_asked_for_is_written() -> None:
    some: list[dict[str, Any]] = [{"delay_ms": 60_000}, {"run_at_ms": 1_795_233_316_071}, {"priority": 9}]
    targets = ({"capabilities": ["gpu"], "mode": "all"}, {"capabilities": ["gpu"]}, {"server": "w1", "stack": ["node"]})
    some += [{"target": target} for target in (*targets, {"region": ["eu"]})] + [{"headers": {"trace": "ü/1"}}]
    some += [{"backoff_ms": 5, "backoff_max_ms": 9}, {"backoff": "linear", "jitter": 0.25}, {"skip_on": ["TypeError"]}]
    some += [{"reroute_on": {"MemoryError": "big"}}, {"needs": ["p1", "p2"]}]
    golden.same("engine/bridge_jobs.txt", "".join(f"{options}: {encoded(**options)}\n" for options in some))


def test_the_payload_keeps_its_bytes() -> None:
    payload = b'{"n":9007199254740993,"f":1.0,"e":[],"x":1e21}'
    assert f'"payload":{payload.decode()},' in encoded(payload)[1] and decoded(payload).payload == payload


def test_an_option_without_room_on_the_wire_is_refused() -> None:
    options: Any
    for options, name in (
        ({"backoff": "geometric"}, "backoff=geometric"), ({"backoff": "custom", "backoff_delays_ms": [1]}, "backoff_delays_ms"),
        ({"lifo": True}, "lifo"), ({"unique": "u"}, "unique"), ({"dedup": "d", "dedup_ms": 5}, "dedup"),
        ({"timeout_ms": 5}, "timeout_ms"), ({"key": "k"}, "key"), ({"route": "r"}, "route"), ({"crashes_max": 5}, "crashes_max"),
        ({"result_ttl_ms": 5}, "result_ttl_ms"), ({"on_parent_failure": "ignore"}, "on_parent_failure"), ({"cost": 2}, "cost"),
    ):  # fmt: skip
        queue = Queue("q", models.Bridge(), url="redis://127.0.0.1:1")
        refused(UnsupportedFeature, f"^bridge has no .*{name}", queue.enqueue, "email", {}, **options)


@pytest.mark.feature("BQ28", "BQ29", model="bridge")
def test_retries_are_read_as_the_original_counts_them() -> None:
    options = decoded(retry={"attempts": 3, "backoff": {"type": "exponential", "delay": 2000}}).options
    assert options.attempts == 4
    assert [backoff_delay_ms(options, failures, lambda: 0.0) for failures in range(3)] == [2000, 4000, 8000]


@pytest.mark.feature("BQ29", model="bridge")
def test_back_off_of_foreign_jobs() -> None:
    capped = {"type": "exponential", "delay": 100, "maxDelay": 300}
    some: list[Any] = [*({"type": kind, "delay": 100} for kind in ("fixed", "linear", "fibonacci")), capped, {}, None, "fixed"]
    some += [{**capped, "delay": "100", "maxDelay": "300"}]
    read = [decoded(retry={"attempts": 3, "backoff": one}).options for one in some]
    waits = [[backoff_delay_ms(options, failures, lambda: 0.5) for failures in range(3)] for options in read]
    golden.same("engine/bridge_backoffs.txt", "".join(f"{one!r}: {found}\n" for one, found in zip(some, waits, strict=True)))


@pytest.mark.feature("BQ29", model="bridge")
def test_jitter_is_a_quarter_to_both_sides_and_may_exceed_the_cap() -> None:
    """6.4: the original adds it after `maxDelay`."""
    options = decoded(retry={"backoff": {"type": "fixed", "delay": 1000, "maxDelay": 1000, "jitter": True}}).options
    assert backoff_delay_ms(options, 0, lambda: 0.0) == 750 and backoff_delay_ms(options, 0, lambda: 1.0) == 1250


@pytest.mark.feature("BQ34", model="bridge")
def test_skip_and_reroute_are_read() -> None:
    options = decoded(retry={"attempts": 1, "skipOn": ["TypeError", 7], "rerouteOn": {"MemoryError": "big", "x": 1}}).options
    assert options.skip_on == ("TypeError",) and options.reroute_on == (("MemoryError", "big"),)


def test_what_a_foreign_client_got_wrong_counts_as_absent() -> None:
    nothing = dict.fromkeys(("retry", "target", "metadata", "dependsOn", "priority", "schedule", "rateLimit", "createdAt"))
    plain = decoded()
    assert plain.options == Options(attempts=1, backoff_ms=0, jitter=0.0, result_ttl_ms=86_400_000)
    assert decoded(**nothing)._replace(enqueued_ms=7) == plain
    read = Options(priority=9, attempts=3, backoff_ms=0, jitter=0.0, result_ttl_ms=86_400_000)
    assert decoded(priority="9", retry={"attempts": "2"}).options == read
    assert decoded(retry={"attempts": 1e400}, priority=99, unknown={"a": [None]}).options.priority == 10


def test_what_cannot_be_read_is_a_fault_of_the_job() -> None:
    for raw in (*([b"{oops", b"1"], [b"[]", b"1"], [b"{}", b"1"], [b"1"], [b"[" * 100_000, b"1"], [b"\xff", b"1"]),):
        refused(ScriptFault, "data of job a", MODEL.decode, raw, Lease("a", 1, "n"), 9, (1, 0, 0))


@pytest.mark.feature("BQ09", model="bridge")
def test_a_template_is_read_back_whoever_has_made_it() -> None:
    job = Enqueue("a", "email", b'{"to":1.0}', b"12345678", checked(AS_DUMPED))
    for raw in (MODEL.template(job), pack(b"", pack(5, b"", b'{"type":"email","payload":{"to":1.0},"retry":{"attempts":3}}'))):
        read = MODEL.read_template(raw)
        assert (read.name, json.loads(read.payload), read.options.attempts) == ("email", {"to": 1.0}, 4)
    for broken in (b"", pack(b"", pack(5, b"", b"{oops")), pack(b"")):
        refused(ScriptFault, None, MODEL.read_template, broken)


@pytest.mark.feature("BQ01", model="bridge")
def test_ids_are_uuids_and_keys_begin_with_the_namespace() -> None:
    assert MODEL.new_id()[14] == "4" and len(MODEL.new_id()) == 36
    assert BridgeModel("q", "app:mine").keys.active == "app:mine:ironclaim:active"
    assert BridgeKeys(MODEL.keys.wire).lock("a") == "bridge:jobs:lock:a"


def test_a_worker_may_not_be_called_as_a_key_of_the_registry() -> None:
    """1.3.12: `workers:active` is the set of all workers."""
    for name in ("active", "heartbeat:w1"):
        claim = Claim("0" * 16, 1, 1, 1000, 0, name, 1000, ("email",))
        for operation in (claim, Beat("0" * 16, 1, 30_000, 1, 9_000, 1_000, json.dumps({"name": name}))):
            refused(Malformed, "worker name", MODEL.call, operation)


@pytest.mark.feature("BQ10", model="bridge")
def test_the_next_tick_is_the_one_that_the_original_computes() -> None:
    """6.4: across the gap of 2026-03-08 in New York."""
    ticks = calendar(Timing(cron="*/30 * * * *", zone="America/New_York"))
    found = [1_772_951_400_000 - 1]
    for _ in range(3):
        found.append(ticks.after(found[-1], 0))
    assert found[1:] == [1_772_951_400_000, 1_772_953_200_000, 1_772_955_000_000]
