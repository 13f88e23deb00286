"""Bananas jobs in Python: what the wire cannot hold is refused before any I/O, and whatever was written is read or refused.
The environment variables that set up a worker of Bananas."""

import json

import pytest

from engine import Malformed, Queue, Scheduler, ScriptFault, UnsupportedFeature, Worker, models
from engine.bananas_worker import read
from engine.models.foreign.bananas import BananasModel
from tests.engine.using import Lease, LeasedJob, refused, some_handlers

GO = (
    '{"id":"j","name":"img","payload":{"u":1},"status":"pending","priority":"high","routing_key":"gpu",'
    '"created_at":"2026-11-21T03:54:16.07Z","updated_at":"2026-11-21T03:54:16.07Z","attempts":1,"max_retries":5}'
)
SDK = (
    '{"id": "23c7", "name": "img", "description": "", "payload": {"u": 1.0, "e": []}, "status": "scheduled", '
    '"priority": "normal", "created_at": "2026-11-21T03:55:42.047221+00:00", "updated_at": "..", '
    '"attempts": 0, "max_retries": 3, "error": "", '
    '"routing_key": "default", "scheduled_for": "2026-11-21T04:55:42.047337+01:00"}'
)


def decoded(raw: str | bytes, settings: str = "") -> LeasedJob:
    model = BananasModel("q", "bananas", layout="document", settings=settings)
    return model.decode(raw.encode() if isinstance(raw, str) else raw, Lease("j", 1, "n"), 9, (3, 2, 1))


def test_a_job_of_go() -> None:
    job = decoded(GO, "0 1 2 3 4 5000")
    assert (job.name, job.class_name, job.payload, job.enqueued_ms, job.due_ms) == ("img", "img", b'{"u":1}', 1795233256070, 0)
    assert (job.claims, job.failures, job.crashes) == (3, 2, 1)
    options = job.options
    assert (options.priority, options.route, options.attempts, options.timeout_ms) == (8, "gpu", 5, 5000)
    assert (options.backoff, options.backoff_ms, options.jitter) == ("exponential", 2000, 0.0)


def test_a_job_of_the_python_client() -> None:
    job = decoded(SDK)
    assert (job.payload, job.options.route, job.options.priority) == (b'{"u": 1.0, "e": []}', "", 5)
    assert (job.enqueued_ms, job.due_ms) == (1795233342047, 1795233342047)


def test_payload_bytes_are_untouched() -> None:
    for raw, payload in (
        *(('{"name":"a"}', b"null"), (' {\n"payload" : [1,2 , 3] ,"name":"a"\t} ', b"[1,2 , 3]")),
        ('{"name":"a","payload":{"a":"}\\"{"}}', b'{"a":"}\\"{"}'),
        *(('{"payload":1,"name":"a","payload":2}', b"2"), (b'{"name":"a","payload":"\xff"}', b'"\xff"')),
    ):
        assert decoded(raw).payload == payload


def test_what_is_no_job_is_a_script_fault() -> None:
    for raw in ("", "[]", "null", "{", '{"name"}', '{"name":1}', "{}", '{"name":"a"', '{"name":"a",}', '{"a":' * 10**5):
        refused(ScriptFault, "^job j: it cannot be read", decoded, raw)


def test_what_does_not_matter_may_be_anything() -> None:
    for more in (
        *({"created_at": 5}, {"created_at": "yesterday"}, {"created_at": "0001-01-01T00:00:00Z"}),
        *({"priority": 7}, {"max_retries": None}),
    ):
        job = decoded(json.dumps({"name": "a", **more}))
        assert (job.enqueued_ms, job.options.attempts, job.options.priority) == (0, 1, 5)


def test_ids_are_uuids_and_settings_are_checked() -> None:
    assert len(BananasModel("q", "bananas").new_id()) == 36
    for name, value in (("layout", "old"), ("adopt_after_ms", -1), ("timeout_ms", "5"), ("result_ttl_s", 0)):
        refused(Malformed, f"^{name}: ", models.Bananas, **{name: value})


def test_an_option_without_room_on_the_wire_is_refused_before_any_io() -> None:
    """Nothing listens at that port."""
    for options in (
        *({"lifo": True}, {"backoff_ms": 5}, {"timeout_ms": 5}, {"headers": {"a": "b"}}, {"unique": "u"}),
        *({"needs": ["p"]}, {"key": "k"}, {"target": {"stack": ["node"]}}, {"crashes_max": 2}, {"cost": 2}),
    ):
        queue = Queue("q", models.Bananas(), url="redis://127.0.0.1:1")
        refused(UnsupportedFeature, f"bananas.*{next(iter(options))}", queue.enqueue, "work", {}, **options)


@pytest.mark.parametrize(("field", "given"), [("route", {"route": "a:b"}), ("payload", {"payload": "proto:x"})])
def test_what_the_wire_cannot_hold_names_its_field(field: str, given: dict[str, object]) -> None:
    queue = Queue("q", models.Bananas(), url="redis://127.0.0.1:1")
    refused(Malformed, f"^{field}: ", queue.enqueue, "work", **{"payload": {}, **given})


@pytest.mark.feature("BN32", model="bananas")
def test_the_environment_is_read_as_a_whole() -> None:
    plain = read({})
    assert (plain.mode, plain.url, plain.model.timeout_ms) == ("default", "redis://localhost:6379", 300_000)
    assert plain.settings == {"concurrency": 10, "priorities": None, "routes": ("default",), "names": None, "sweep_ms": 1000}
    environ = {"WORKER_MODE": "thin", "WORKER_CONCURRENCY": "1000", "WORKER_PRIORITIES": "low,normal"}
    environ |= {"REDIS_URL": "redis://r:1/2", "WORKER_ROUTING_KEYS": " gpu , mail,", "WORKER_JOB_TYPES": "a"}
    environ |= {"SCHEDULER_INTERVAL": "1m", "JOB_TIMEOUT": "1h1m0.5s"}
    environ |= {"RESULT_BACKEND_TTL_SUCCESS": "2h", "RESULT_BACKEND_TTL_FAILURE": "90s"}
    given = read(environ, layout="live")
    assert given.model == models.Bananas(layout="live", timeout_ms=3_660_500, result_ttl_s=7200, error_ttl_s=90)
    assert given.url == "redis://r:1/2" and given.settings["concurrency"] == 1000 and given.settings["priorities"] == (1, 6)
    assert given.settings["routes"] == ("gpu", "mail") and given.settings["sweep_ms"] == 2000 and given.settings["names"] is None
    with Queue("q", plain.model, url="redis://127.0.0.1:1") as queue:
        modes = [read({"WORKER_MODE": mode}) for mode in ("default", "scheduler-only")]
        assert [type(mode.worker(queue, some_handlers())) for mode in modes] == [Worker, Scheduler]


@pytest.mark.feature("BN26", "BN32", model="bananas")
def test_a_bad_value_names_its_variable() -> None:
    for name, value in (
        ("WORKER_MODE", "fast"), ("WORKER_CONCURRENCY", "0"), ("WORKER_CONCURRENCY", "1001"), ("WORKER_CONCURRENCY", "many"),
        ("WORKER_PRIORITIES", "urgent"), ("WORKER_PRIORITIES", "high,low"), ("SCHEDULER_INTERVAL", "10ms"),
        ("SCHEDULER_INTERVAL", "2m"), ("SCHEDULER_INTERVAL", "soon"), ("JOB_TIMEOUT", "5"), ("RESULT_BACKEND_TTL_SUCCESS", "1ms"),
    ):  # fmt: skip
        refused(Malformed, f"^{name}: ", read, {name: value})


def test_job_specialized_without_job_types_is_refused() -> None:
    refused(Malformed, "^WORKER_JOB_TYPES: ", read, {"WORKER_MODE": "job-specialized", "WORKER_JOB_TYPES": " , "})
