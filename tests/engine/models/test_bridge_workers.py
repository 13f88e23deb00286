"""Workers of ours in a BridgeMQ keyspace: their registry, the scheduler's lock, and handlers that skip and send on."""

import json
from typing import Any

import pytest

from engine import Handlers, Job, Malformed, Queue, Worker, models
from tests.engine.helpers.bridge_client import KEYS, BridgeClient, client
from tests.engine.using import at_work, lent, wait_until

__all__ = ["client"]

#: No lease ends and no worker is taken for dead that is not meant to, however busy the machine is.
QUICK: dict[str, Any] = {"sweep_ms": 50, "lease_ms": 60_000, "prefetch": 0, "beat_ms": 30_000}


@pytest.fixture
def queue(ironclaim_url: str) -> Any:
    yield from lent(Queue("q", models.Bridge(), url=ironclaim_url))


def handlers(*names: str) -> tuple[Handlers, list[str]]:
    """Handlers that note what they have run; `TypeError` and the like are raised by the payload."""
    made, ran = Handlers(), []

    def run(job: Job) -> str:
        ran.append(job.name)
        if job.payload and "raise" in job.payload:
            raise {"TypeError": TypeError, "MemoryError": MemoryError}[job.payload["raise"]]("as asked")
        return job.name

    for name in names:
        made(name)(run)
    return made, ran


@pytest.mark.feature("BQ02", "BQ03", "BQ04", "BQ31", "BQ36", model="bridge")
def test_a_worker_registers_beats_leads_and_takes_its_leave(queue: Queue, client: BridgeClient) -> None:
    made, _ = handlers("email")
    is_: dict[str, Any] = {"stack": "node", "capabilities": ["sms", "email"], "region": "us-east"}
    with at_work(Worker(queue, made, name="worker-1", **is_, **QUICK)):
        wait_until(lambda: client.redis.exists(KEYS.heartbeat("worker-1")), "the first beat, which is not an interval late")
        about = json.loads(str(client.redis.get(KEYS.worker("worker-1"))))
        assert list(about) == ["serverId", "stack", "region", "capabilities", "lastSeen", "pid", "hostname"]
        assert (about["serverId"], about["stack"], about["region"]) == ("worker-1", "node", "us-east")
        assert about["capabilities"] == ["email", "sms"] and client.redis.smembers(KEYS.workers) == {"worker-1"}
        assert 30_000 < client.redis.pttl(KEYS.heartbeat("worker-1")) <= 90_000
        wait_until(lambda: client.redis.exists(KEYS.scheduler), "it leads")
    assert client.redis.exists(KEYS.worker("worker-1"), KEYS.heartbeat("worker-1"), KEYS.workers, KEYS.scheduler) == 0


@pytest.mark.feature("BQ03", model="bridge")
def test_a_heartbeat_lives_for_30_seconds_unless_told_otherwise(queue: Queue, client: BridgeClient) -> None:
    made, _ = handlers("email")
    with at_work(Worker(queue, made, name="worker-1", **{name: value for name, value in QUICK.items() if name != "beat_ms"})):
        left_ms: list[Any] = []

        def beaten() -> bool:
            left_ms.append(client.redis.pttl(KEYS.heartbeat("worker-1")))
            return left_ms[-1] > 25_000

        wait_until(beaten, "a beat")
        assert left_ms[-1] <= 30_000


@pytest.mark.parametrize("name", ["active", "heartbeat:w"])
def test_a_worker_with_the_name_of_a_key_of_the_registry_is_refused(queue: Queue, client: BridgeClient, name: str) -> None:
    """1.3.12."""
    made, _ = handlers("email")
    client.dispatch()
    with pytest.raises(Malformed, match="worker name"):
        Worker(queue, made, name=name, **QUICK).run()
    assert client.redis.llen(KEYS.waiting) == 1 and not client.redis.exists(KEYS.workers)


@pytest.mark.feature("BQ34", model="bridge")
def test_what_a_job_skips_and_where_it_is_sent_on(queue: Queue, client: BridgeClient) -> None:
    made, ran = handlers("email", "big")
    skipped = client.dispatch(payload={"raise": "TypeError"}, retry={"attempts": 3, "skipOn": ["TypeError"]})
    rerouted = client.dispatch(payload={"raise": "MemoryError"}, retry={"attempts": 0, "rerouteOn": {"MemoryError": "big"}})
    with at_work(Worker(queue, made, **QUICK)):
        wait_until(lambda: client.status(skipped) == client.status(rerouted) == "failed", "both have ended")
        wait_until(lambda: "big" in ran, "it was sent on")
    assert ran.count("email") == 2 and client.redis.exists(KEYS.data(f"{rerouted}>reroute")) == 1


@pytest.mark.feature("BQ29", "BQ30", model="bridge")
def test_a_foreign_job_waits_between_its_runs_and_dies(queue: Queue, client: BridgeClient) -> None:
    made, ran = handlers("email")
    backoff = {"type": "exponential", "delay": 20, "maxDelay": 30}
    job = client.dispatch(payload={"raise": "TypeError"}, retry={"attempts": 2, "backoff": backoff})
    with at_work(Worker(queue, made, **QUICK)):
        wait_until(lambda: client.status(job) == "dead", "it died")
    assert len(ran) == 3 and client.redis.lrange(KEYS.dead, 0, -1) == [job] and client.data(job)["attempts"] == 2
    assert json.loads(str(client.redis.get(KEYS.result(job))))["error"]["message"] == "as asked"


@pytest.mark.feature("BQ36", model="bridge")
def test_a_graceful_stop_leaves_no_job_behind(queue: Queue, client: BridgeClient) -> None:
    """6.4: the original's shutdown in mid-job left status `active`, in no list."""
    made, ran = handlers("email")
    jobs = [client.dispatch() for _ in range(30)]
    with at_work(Worker(queue, made, concurrency=1, **QUICK)):
        wait_until(lambda: ran, "it works")
    left: Any = client.redis.lrange(KEYS.waiting, 0, -1)
    statuses = {job: client.status(job) for job in jobs}
    assert {job for job, status in statuses.items() if status == "waiting"} == {*left}
    assert {*statuses.values()} <= {"waiting", "completed"} and client.redis.scard(KEYS.active) == 0
    assert client.redis.keys("bridge:jobs:lock:*") == []
