"""The environment variables that set up a worker of Bananas."""

import pytest

from engine import Malformed, Queue, Scheduler, Worker, models
from engine.bananas_worker import read
from tests.engine.helpers.producing import refused, some_handlers


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
