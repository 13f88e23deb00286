"""A scripted life of jobs leaves the keyspace that the original's clients leave: `tests/conformance/golden/bridge.json` is
written from the reference dump."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.ops.claims import Failure, Retry
from tests.conformance.desk import ModelDesk
from tests.conformance.keyspace import differences, dump, expected
from tests.engine.helpers.bridge_client import BridgeClient, desk

__all__ = ["desk"]

GOLDEN = Path(__file__).parents[2] / "conformance" / "golden" / "bridge.json"
RETRY: dict[str, Any] = {"attempts": 4, "backoff": "exponential", "backoff_ms": 2000}
ABOUT = {
    **{"name": "worker-1", "host": "vm", "pid": 27943},
    "routing": {"server": "worker-1", "stack": "node", "capabilities": ["email"], "region": "us-east", "routes": ["default"]},
}


def put(desk: ModelDesk, name: str = "email", payload: object = None, **options: Any) -> str:
    return desk.queue.enqueue(name, {"to": "x@y"} if payload is None else payload, **(RETRY | options)).job


@pytest.mark.feature("BQ01", "BQ02", "BQ03", "BQ04", "BQ05", "BQ06", "BQ09", "BQ26", "BQ27", "BQ30", "BQ31", model="bridge")
def test_a_life_of_jobs_leaves_the_keyspace_of_the_dump(desk: ModelDesk) -> None:
    names = {"now": str(desk.now_ms), "later_ms": str(desk.now_ms + 60_000)}
    names["sum"] = put(desk, "sum")
    (job,) = desk.claim("w", classes=("sum",))
    assert desk.finish_with(job.lease, b'{"sum":3}') == [("ok", "finished")]
    names["boom"] = put(desk, "boom", attempts=3)
    for _ in range(3):
        (job,) = desk.claim("w", classes=("boom",))
        desk.run(Retry((Failure(job.lease, "MyErr: boom", 0, "MyErr: boom\n at .."),)))
    names["later"] = put(desk, delay_ms=60_000)
    desk.queue.schedules.put("report", "email", {"to": "x@y"}, cron="*/5 * * * *", zone="America/New_York", **RETRY)
    names["tick"] = str(desk.queue.schedules.get("report").next_ms)  # type: ignore[union-attr]
    names["plain"] = put(desk)
    names["gpu"] = put(desk, priority=9, target={"capabilities": ["gpu"], "mode": "all"})
    (job,) = desk.run(desk.claim_operation("w", lease_ms=90_000, classes=("email",))).jobs
    assert job.lease.job == names["plain"], "a worker without gpu passes the job of priority 9 by"
    desk.beat("w", about=json.dumps(ABOUT), ttl_ms=90_000)
    assert differences(expected(GOLDEN, names), dump(desk.redis, "bridge:*", without=":ironclaim:")) == []


def test_a_foreign_client_finds_nothing_that_it_cannot_read(desk: ModelDesk, ironclaim_url: str) -> None:
    """Its own scripts work on what we wrote, and ours on what it wrote: the same life, hand in hand."""
    client, plain, later = BridgeClient(ironclaim_url), put(desk), put(desk, delay_ms=1_000)
    assert client.process_delayed(desk.now_ms + 1_000) == 1
    for job in (plain, later):
        found = client.claim()
        assert found is not None and found["jobId"] == job
        assert found["retry"] == {"attempts": 3, "backoff": {"type": "exponential", "delay": 2000}}
        assert client.complete(job, {"sum": 3}) == 1
    assert [desk.queue.jobs.state(job) for job in (plain, later)] == ["finished", "finished"]
    assert desk.queue.results.get(plain).value == {"sum": 3}  # type: ignore[union-attr]
    client.close()
