"""The four published scripts of BridgeMQ: a foreign client that calls ours gets the replies of the reference dump, and what the
original stumbles over holds nothing up and leaves nothing behind."""

import json
import re
from typing import Any

import pytest

from engine import models
from tests.conformance.desk import ModelDesk
from tests.engine.helpers.bridge_client import BridgeClient, client, published, waiting

__all__ = ["client"]

pytestmark = pytest.mark.feature("BQ01", model="bridge")

SLOTS = {
    "claim_job": (
        "waiting active paused", "workerId stack capabilities region currentTime lockTTL dataPrefix lockPrefix ratePrefix"),
    "process_delayed": ("delayed waiting", "currentTime batchSize"), "release_lock": ("lock active rate", "workerId jobId"),
    "process_cron": ("cron waiting dataPrefix", "currentTime batchSize"),
}  # fmt: skip


def active(client: BridgeClient) -> set[str]:
    return client.redis.smembers("bridge:jobs:active")


@pytest.mark.parametrize("name", SLOTS)
def test_the_published_slots_are_those_of_the_seed(name: str) -> None:
    header = (published() / f"{name}.lua").read_text().split("-- REPLY")[0]
    keys, _, arguments = header.partition("-- KEYS\n")[2].partition("-- ARGV\n")
    assert tuple(" ".join(re.findall(r"^--   (\w+) ", part, re.MULTILINE)) for part in (keys, arguments)) == SLOTS[name]


@pytest.mark.feature("BQ35", model="bridge")
def test_the_published_claim_takes_a_child_before_its_parent_has_run(client: BridgeClient, ironclaim_url: str) -> None:
    """What the finding `bridge-children-wait-in-the-list` declares."""
    desk = ModelDesk(ironclaim_url, models.Bridge())
    desk.queue.enqueue("email", {}, id="parent", delay_ms=60_000)
    desk.queue.enqueue("email", {}, id="child", needs=["parent"])
    assert waiting(client) == ["child"] and desk.claim("a", classes=("email",)) == []
    taken = client.claim()
    assert taken is not None and (taken["jobId"], taken["dependsOn"]) == ("child", ["parent"])
    desk.close()


@pytest.mark.feature("BQ12", "BQ15", "BQ19", model="bridge")
def test_the_claim_of_the_dump(client: BridgeClient) -> None:
    """A worker without gpu passes the job of priority 9 by and takes the one of priority 5."""
    plain = client.dispatch()
    gpu = client.dispatch(priority=9, target={"capabilities": ["gpu"], "mode": "all"})
    assert waiting(client) == [gpu, plain]
    assert client.claim(lock_s=300, capabilities=["email"], stack=["node"], region=["us-east"]) == client.data(plain)
    assert (waiting(client), active(client)) == ([gpu], {plain})
    lock = f"bridge:jobs:lock:{plain}"
    assert client.redis.get(lock) == "worker-1" and 200_000 < client.redis.pttl(lock) <= 300_000
    assert client.redis.get("bridge:ratelimit:concurrent:email") == "1"
    assert client.status(plain) == "waiting", "the original's claim leaves the status to its client"
    assert not client.redis.exists(f"bridge:jobs:lock:{gpu}") and client.claim(capabilities=["email"]) is None


@pytest.mark.feature("BQ20", model="bridge")
def test_release_frees_what_its_owner_holds(client: BridgeClient) -> None:
    job = client.dispatch()
    client.claim()
    assert client.release(job, "worker-2") == 0 and active(client) == {job} and client.release(job) == 1
    assert active(client) == set() and client.redis.get("bridge:ratelimit:concurrent:email") == "0"
    assert client.release(job) == 0 and client.redis.get("bridge:ratelimit:concurrent:email") == "0"


def test_release_creates_no_counter_and_counts_what_it_frees(client: BridgeClient) -> None:
    client.redis.set("bridge:jobs:lock:a", "worker-1")
    assert client.release("a") == 1 and not client.redis.exists("bridge:ratelimit:concurrent:email")


def test_release_after_the_lock_ran_out_leaves_nothing_behind(client: BridgeClient) -> None:
    """1.3.2: the reply is 0 as ever, but the member and the count of a job that has ended go; those of one that has not stay
    for the sweep, which runs it again."""
    ended, lost = client.dispatch(), client.dispatch()
    assert client.claim() and client.claim()
    client.redis.delete(f"bridge:jobs:lock:{ended}", f"bridge:jobs:lock:{lost}")
    assert client.complete(ended, {"sum": 3}) == 0 and client.release(lost) == 0
    assert active(client) == {lost} and client.redis.get("bridge:ratelimit:concurrent:email") == "1"


@pytest.mark.feature("BQ06", "BQ08", model="bridge")
def test_promotion_moves_what_is_due_and_leaves_the_status(client: BridgeClient) -> None:
    jobs, later = [client.delay(1_000 + at) for at in range(5)], client.delay(9_000)
    assert client.process_delayed(999) == 0 and client.process_delayed(5_000, 3) == 3
    assert waiting(client) == jobs[:3] and client.process_delayed(5_000) == 2
    assert waiting(client) == jobs and client.redis.zrange("bridge:jobs:delayed", 0, -1) == [later]
    assert client.status(jobs[0]) == "delayed"


def test_promotion_into_a_key_of_another_type_moves_nothing(client: BridgeClient) -> None:
    client.delay(1_000)
    client.redis.set("bridge:jobs:waiting", "x")
    with pytest.raises(Exception, match="WRONGTYPE"):
        client.process_delayed(5_000)
    assert client.redis.zcard("bridge:jobs:delayed") == 1


@pytest.mark.feature("BQ10", model="bridge")
def test_cron_tells_its_client_what_to_reschedule(client: BridgeClient) -> None:
    assert client.process_cron(1_000) == "{}", "an object, not an array, as the original"
    job = client.cron(1_000)
    told = {"jobId": job, "cronExpression": "*/5 * * * *", "timezone": "America/New_York"}
    assert json.loads(client.process_cron(1_000)) == [told]
    assert re.search(r'"cronExpression":"\*\\/5 \* \* \* \*"', client.process_cron(1_000))
    assert client.redis.zscore("bridge:jobs:cron", job) == 1_000


def test_cron_does_not_enqueue_again_what_still_waits_or_runs(client: BridgeClient) -> None:
    """1.3.3: each pass put the same id into the list once more until the client had moved its score; the reply is the same
    each time."""
    job, first = client.cron(1_000), client.process_cron(1_000)
    assert json.loads(client.process_cron(2_000)) == json.loads(first) and waiting(client) == [job] and client.claim() is not None
    assert json.loads(client.process_cron(3_000)) == json.loads(first) and waiting(client) == []
    assert client.complete(job, None) == 1
    client.process_cron(4_000)
    assert waiting(client) == [job]


@pytest.mark.parametrize(
    "garbage", ["", "{oops", "[]", "7", '{"type":"email"}', '{"schedule":null}', '{"schedule":{"cron":null}}']
)
def test_cron_passes_what_it_cannot_read_by(client: BridgeClient, garbage: str) -> None:
    """6.4: an entry without `schedule` was pushed, then the script gave up, and no later entry was reached."""
    client.redis.zadd("bridge:jobs:cron", {"bad": 1_000, "gone": 1_000})
    client.redis.set("bridge:jobs:data:bad", garbage)
    job = client.cron(2_000)
    assert [entry["jobId"] for entry in json.loads(client.process_cron(5_000, 10))] == [job] and waiting(client) == [job]
    assert client.redis.zscore("bridge:jobs:cron", "bad") == 65_000 and client.redis.zscore("bridge:jobs:cron", "gone") is None


STUMBLES: dict[str, dict[str, Any]] = {
    "null target": {"target": None}, "null capabilities": {"target": {"capabilities": None, "mode": "all"}},
    "null server": {"target": {"server": None}}, "null rate limit": {"rateLimit": None},
    "null maximum": {"rateLimit": {"maxConcurrent": None}}, "maximum as text": {"rateLimit": {"maxConcurrent": "1"}},
    "stack as text": {"target": {"stack": "node"}}, "target as text": {"target": "node"},
}  # fmt: skip


@pytest.mark.parametrize("members", STUMBLES.values(), ids=STUMBLES)
def test_null_and_text_where_more_is_meant_stop_no_claim(client: BridgeClient, members: dict[str, Any]) -> None:
    """1.3.7 and 6.4: the script of the original aborted and left its lock for 30 s."""
    client.redis.set("bridge:ratelimit:concurrent:email", 5)
    job, found = client.dispatch(**members), client.claim(stack=["node"])
    assert found is not None and found["jobId"] == job


DEEP = '{"jobId":"bad","type":"email","payload":' + "[" * 1_100 + "]" * 1_100 + "}"


@pytest.mark.parametrize("garbage", ["", "{oops", "7", "null", "[]", '{"jobId":"bad"}', '{"type":null}', '{"type":{}}', DEEP])
def test_a_claim_passes_what_it_cannot_read_by_and_keeps_no_lock(client: BridgeClient, garbage: str) -> None:
    client.redis.set("bridge:jobs:data:bad", garbage)
    client.redis.hset("bridge:jobs:data:hash", "a", "b")
    client.redis.rpush("bridge:jobs:waiting", "bad", "hash", "gone")
    job, found = client.dispatch(), client.claim()
    assert found is not None and found["jobId"] == job
    assert waiting(client) == ["bad", "hash"], "ids without data leave the list, as in the original"
    assert client.redis.keys("bridge:jobs:lock:*") == [f"bridge:jobs:lock:{job}"]


def test_a_claim_of_what_is_active_already_does_not_count_it_twice(client: BridgeClient) -> None:
    job = client.dispatch()
    client.claim()
    client.redis.delete(f"bridge:jobs:lock:{job}")
    client.redis.rpush("bridge:jobs:waiting", job)
    assert client.claim("worker-2") is not None and client.redis.get("bridge:ratelimit:concurrent:email") == "1"


@pytest.mark.feature("BQ22", "BQ24", model="bridge")
def test_limits_and_pauses_are_by_type(client: BridgeClient) -> None:
    first, second = (client.dispatch(rateLimit={"maxConcurrent": 1}) for _ in range(2))
    assert client.claim() is not None and client.claim() is None
    client.complete(first, 1)
    client.redis.sadd("bridge:queues:paused", "email")
    assert client.claim() is None
    client.redis.srem("bridge:queues:paused", "email")
    assert (client.claim() or {})["jobId"] == second


@pytest.mark.feature("BQ18", model="bridge")
def test_the_window_is_100_ids(client: BridgeClient) -> None:
    for _ in range(100):
        client.dispatch(target={"server": "elsewhere"})
    job = client.dispatch()
    assert client.claim() is None
    client.redis.lpop("bridge:jobs:waiting")
    assert (client.claim() or {})["jobId"] == job
