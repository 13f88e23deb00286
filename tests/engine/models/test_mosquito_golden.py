"""Golden keyspaces of Mosquito: a scripted life of jobs, and what it must have left."""

from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from engine import Queue, models
from engine.models import Layout
from engine.ops.claims import Bury, Claim, Failure, Finish, LeasedJob, Retry, Value
from tests.conformance.keyspace import differences, dump, expected
from tests.engine.models.crystal import Crystal

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
        (job,) = hopeless.claim()
        hopeless.run(Retry((Failure(job.lease, "no", 50_000),)))
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
