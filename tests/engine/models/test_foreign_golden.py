"""Golden keyspaces of Mosquito, Bridge and Bull (tests/conformance/golden, written from the reference dumps): a scripted life of
jobs, and what it must have left, of Bull after each step."""

import json
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from engine import Queue, models
from engine.models import Layout
from engine.outcomes import backoff_delay_ms
from tests.conformance.desk import ModelDesk
from tests.conformance.keyspace import differences, dump, expected
from tests.engine.helpers.bridge_client import BridgeClient, desk
from tests.engine.helpers.bull_desk import START_MS, BullDesk, bull
from tests.engine.models.crystal import Crystal
from tests.engine.using import Bury, Claim, Failure, Finish, LeasedJob, NoteProgress, Retry, Value, altered

__all__ = ["bull", "desk"]

GOLDEN = Path(__file__).parents[2] / "conformance" / "golden"


class Hand:
    """One queue, worked off step by step."""

    def __init__(self, name: str, layout: Layout, url: str) -> None:
        self.name = name
        self.queue = Queue(name, models.Mosquito(layout=layout, success_ttl_s=600), url=url)
        self._counter = count(1)

    def run(self, operation: Any) -> Any:
        return self.queue.driver.run(self.queue.model.call(operation))

    def claim(self, limit: int = 1) -> list[LeasedJob]:
        void_ms = self.queue.driver.server_now_ms() + 5000
        return list(self.run(Claim("1" * 16, next(self._counter), limit, 9000, void_ms, "worker", 1000, (self.name,))).jobs)

    def fail(self, delay_ms: int) -> None:
        (job,) = self.claim()
        self.run(Retry((Failure(job.lease, "no", delay_ms),)))

    def enqueue(self, payload: dict[str, Any], **options: Any) -> str:
        return self.queue.enqueue(self.name, payload, **options).job


@pytest.fixture(params=["live", "document"])
def layout(request: pytest.FixtureRequest) -> Layout:
    return request.param


def live_through(layout: Layout, url: str) -> dict[str, str]:
    """The scripted life; the ids that the file calls by name."""
    ids: dict[str, str] = {}
    with ExitStack() as stack:
        flaky, hopeless, limited, ok = (Hand(f"{name}_job", layout, url) for name in ("flaky", "hopeless", "limited", "ok"))
        for hand in (flaky, hopeless, limited, ok):
            stack.callback(hand.queue.close)
        ids["flaky"] = flaky.enqueue({"user_id": 7})
        flaky.fail(0)
        flaky.fail(8000)
        ids["hopeless"] = hopeless.enqueue({})
        for _ in range(4):
            hopeless.fail(0)
        hopeless.fail(50_000)
        limited.queue.set_limit("limited_job", rate=1, per_ms=3_600_000)
        ids["limited"], ids["kept_back"] = limited.enqueue({}), limited.enqueue({})
        (job,) = limited.claim(10)
        limited.run(Finish((job.lease,), None, (Value(0, b"null", 0, 12),)))
        ids["in_hand"] = ok.enqueue({"user_id": "7", "subject": "hi"})
        ok.claim()
        ids["waiting"] = ok.enqueue({"ratio": 1e21, "last": False, "big": 9007199254740993})
        ids["behind"] = ok.enqueue({})
        ids["delayed"] = ok.enqueue({"user_id": "7", "subject": "hi"}, delay_ms=3_600_000)
    return ids


@pytest.mark.feature("MQ01", "MQ02", "MQ03", "MQ20", model="mosquito")
def test_a_life_of_jobs_leaves_what_the_file_says(layout: Layout, ironclaim_url: str, raw: Any) -> None:
    assert models.Mosquito().success_ttl_s == 1, "as in the original; here it is longer than a busy machine takes to look"
    ids = live_through(layout, ironclaim_url)
    assert differences(expected(GOLDEN / f"mosquito_{layout}.json", ids), dump(raw, "mosquito:*", without=":ironclaim:")) == []


def test_the_engines_own_keys_stand_apart(layout: Layout, ironclaim_url: str, client: Any) -> None:
    live_through(layout, ironclaim_url)
    assert all(key.startswith("mosquito:") for key in client.scan_iter(count=1000))
    ours = {key.split(":")[2] for key in client.scan_iter("mosquito:ironclaim:*", count=1000)}
    assert ours <= {"ids", "layout", "queues", "ok_job", "flaky_job", "hopeless_job", "limited_job"}


@pytest.mark.feature("MQ25", model="mosquito")
def test_a_global_prefix_stands_before_all_keys(layout: Layout, ironclaim_url: str, client: Any) -> None:
    with Queue("ok_job", models.Mosquito(layout=layout), prefix="app:mosquito", url=ironclaim_url) as queue:
        id = queue.enqueue("ok_job", {}).job
    assert all(key.startswith("app:mosquito:") for key in client.scan_iter(count=1000))
    theirs = Crystal(ironclaim_url, "ok_job", layout, prefix="app:mosquito")
    assert theirs.take() == id
    theirs.close()


def test_bury_leaves_the_same_as_the_last_failure(layout: Layout, ironclaim_url: str, client: Any) -> None:
    hand = Hand("ok_job", layout, ironclaim_url)
    id = hand.enqueue({})
    (job,) = hand.claim()
    hand.run(Bury((Failure(job.lease, "never"),)))
    assert client.type("mosquito:dead:ok_job") == ("list" if layout == "live" else "zset")
    assert 86_000 < client.ttl(f"mosquito:job_run:{id}") <= 86_400
    hand.queue.close()


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
    assert desk.finish_with(desk.one("w", classes=("sum",)).lease, b'{"sum":3}') == [("ok", "finished")]
    names["boom"] = put(desk, "boom", attempts=3)
    for _ in range(3):
        desk.run(Retry((Failure(desk.one("w", classes=("boom",)).lease, "MyErr: boom", 0, "MyErr: boom\n at .."),)))
    names["later"] = put(desk, delay_ms=60_000)
    desk.queue.schedules.put("report", "email", {"to": "x@y"}, cron="*/5 * * * *", zone="America/New_York", **RETRY)
    names["tick"] = str(desk.queue.schedules.get("report").next_ms)  # type: ignore[union-attr]
    names["plain"] = put(desk)
    names["gpu"] = put(desk, priority=9, target={"capabilities": ["gpu"], "mode": "all"})
    (job,) = desk.run(desk.claim_operation("w", lease_ms=90_000, classes=("email",))).jobs
    assert job.lease.job == names["plain"], "a worker without gpu passes the job of priority 9 by"
    desk.beat("w", about=json.dumps(ABOUT), ttl_ms=90_000)
    assert differences(expected(GOLDEN / "bridge.json", names), dump(desk.redis, "bridge:*", without=":ironclaim:")) == []


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


PAYLOAD = {"msg": "hello", "n": 1}
#: Bull divides scores by 4096 where it publishes times: the id's low bits stay behind the point.
NAMES = {
    "now": str(START_MS), "score3": str((START_MS + 60000) * 4096 + 3), "again4": str((START_MS + 2000) * 4096 + 4),
    "eta3": f"{START_MS + 60000}.0007", "eta4": f"{START_MS + 2000}.001",
}  # fmt: skip


def failing(desk: BullDesk, job: LeasedJob) -> str:
    """One failed run, with the wait that a worker would compute; how the lease ended."""
    wait_ms = backoff_delay_ms(job.options, job.failures, lambda: 0.5)
    ((result, outcome),) = desk.run(Retry((Failure(job.lease, "Error: boom", wait_ms, "    at handler.js:7"),))).items
    assert result == "ok"
    return outcome


@pytest.mark.feature("BL01", "BL02", "BL03", "BL04", "BL05", "BL08", "BL09", "BL10", "BL11", "BL12", model="bull")
@pytest.mark.feature("BL13", "BL14", "BL15", "BL16", "BL20", "BL23", "BL32", model="bull")
def test_each_step_leaves_what_the_original_leaves(bull: BullDesk) -> None:
    told: Any = expected(GOLDEN / "bull.json", NAMES)

    def holds(step: str) -> None:
        """The keyspace is that of the file, and what was published."""
        assert differences(told[step], dump(bull.bytes, "bull:*", without="ironclaim")) == [], step
        assert step not in told["published"] or bull.published() == told["published"][step], step

    bull.add(PAYLOAD)
    bull.add(PAYLOAD, lifo=True)
    bull.add(PAYLOAD, delay_ms=60000)
    bull.add(PAYLOAD, attempts=3, backoff="exponential", backoff_ms=2000, timeout_ms=9000)
    holds("added")
    bull.pause().add(PAYLOAD)
    holds("paused")

    (second,) = bull.resume().take(1).values()
    assert second.options.lifo and json.loads(second.payload) == PAYLOAD
    bull.run(NoteProgress(second.lease, 1, b'"percent":42,"message":null,"data":null}'))
    holds("in flight")

    others = bull.take()
    assert (list(others), others["4"].options.timeout_ms, others["4"].options.attempts) == (["1", "4", "5"], 9000, 3)
    assert failing(bull, others["4"]) == "retried"
    holds("failed once")

    bull.finished(others["1"].lease).finish_with(second.lease, {"ok": True})
    bull.finish_with(others["5"].lease, "str")
    assert failing(bull.tick(2000), bull.take()["4"]) == "retried" and bull.tick(5999).take() == {}
    assert failing(bull.tick(1), bull.take()["4"]) == "buried"
    holds("ended")

    altered(bull, "requeue", "dead", "4")
    holds("retried")
    again = bull.take()["4"]
    assert again.failures == 2 and failing(bull, again) == "buried"
    holds("failed again")
