"""Claims from a BridgeMQ keyspace: who may claim what, next to foreign clients that claim by the published script."""

import json
from dataclasses import replace
from typing import Any

import pytest

from engine import UnknownParent
from engine.ops.claims import Bury, Drop, DropOutcome, Extend, Failure, LeasedJob
from engine.routing import Attributes
from tests.conformance.desk import ModelDesk
from tests.engine.helpers.bridge_client import KEYS, BridgeClient, client, desk, waiting

__all__ = ["client", "desk"]


def claim(desk: ModelDesk, worker: str = "a", limit: int = 10, **attributes: Any) -> list[LeasedJob]:
    """What a worker with these attributes gets."""
    operation = desk.claim_operation(worker, limit, classes=("email", "main"))
    return list(desk.run(replace(operation, worker=Attributes(worker, **attributes))).jobs)


def ids(jobs: list[LeasedJob]) -> list[str]:
    return [job.lease.job for job in jobs]


NODE, HAS_GPU, HAS_BOTH = {"stack": "node"}, {"capabilities": frozenset({"gpu"})}, {"capabilities": frozenset({"gpu", "email"})}
TWO: dict[str, Any] = {"capabilities": ["gpu", "email"]}
TARGETS: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "server": ({"server": "a"}, {}, True), "another server": ({"server": "b"}, {}, False),
    "server before all else": ({"server": "a", "stack": ["python"]}, NODE, True),
    "stack": ({"stack": ["node", "python"], "mode": "all"}, NODE, True), "another stack": ({"stack": ["python"]}, NODE, False),
    "region": ({"region": ["eu"]}, {"region": "eu"}, True), "another region": ({"region": ["eu"]}, {"region": "us"}, False),
    "one capability of two, any": (TWO | {"mode": "any"}, HAS_GPU, True),
    "one capability of two, all": (TWO | {"mode": "all"}, HAS_GPU, False),
    "both capabilities, all": (TWO | {"mode": "all"}, HAS_BOTH, True), "no mode means any": (TWO, HAS_GPU, True),
    "no mode, and no capability of them": ({"capabilities": ["video"]}, HAS_GPU, False),
    "a null mode means all": (TWO | {"mode": None}, HAS_GPU, False),
    "an unknown mode means all": (TWO | {"mode": "most"}, HAS_GPU, False), "null target": (None, {}, True),
    "any is about capabilities alone": (
        {"capabilities": ["gpu"], "region": ["eu"], "mode": "any"}, HAS_GPU | {"region": "us"}, False),
    "empty lists ask for nothing": ({"stack": [], "capabilities": [], "region": []}, {}, True),
    "null capabilities": ({"capabilities": None, "mode": "all"}, {}, True), "null server": ({"server": None}, {}, True),
    "null mode": ({"capabilities": ["gpu"], "mode": None}, HAS_GPU, True),
    "one text where a list is meant": ({"stack": "node"}, NODE, True),
    "another text where a list is meant": ({"stack": "python"}, NODE, False), "a target that is a text": ("gpu", {}, True),
}  # fmt: skip


@pytest.mark.feature("BQ13", "BQ14", "BQ15", "BQ16", "BQ17", model="bridge")
@pytest.mark.parametrize(("target", "attributes", "matches"), TARGETS.values(), ids=TARGETS)
def test_our_claim_and_the_published_one_route_alike(desk: Any, client: Any, target: Any, attributes: Any, matches: bool) -> None:
    """1.3.5, 1.3.6, 1.3.7 and 6.4: categories are ANDed, `mode` is about capabilities, null is nothing."""
    job = client.dispatch(target=target)
    assert ids(claim(desk, **attributes)) == ([job] if matches else [])
    other = client.dispatch(target=target)
    stack, region = ([attributes[name]] if name in attributes else [] for name in ("stack", "region"))
    if not matches:
        client.redis.lrem(KEYS.waiting, 0, job)
    found = client.claim("a", stack=stack, region=region, capabilities=sorted(attributes.get("capabilities", ())))
    assert (found or {}).get("jobId") == (other if matches else None)


@pytest.mark.feature("BQ18", model="bridge")
def test_what_stands_behind_jobs_for_others_is_found(desk: ModelDesk, client: BridgeClient) -> None:
    """1.3.8: 100 unmatched ids at the head starved every later job."""
    for _ in range(250):
        client.dispatch(target={"server": "elsewhere"})
    job = client.dispatch()
    assert client.claim() is None and [job] in [ids(claim(desk)) for _ in range(5)]


@pytest.mark.feature("BQ11", model="bridge")
def test_priorities_from_seven_on_go_to_the_head(desk: ModelDesk) -> None:
    for label, priority in (("five", 5), ("one", 1), ("seven", 7), ("ten", 10), ("six", 6)):
        desk.put(label, priority=priority)
    assert list(desk.take()) == ["ten", "seven", "five", "one", "six"]


@pytest.mark.feature("BQ12", "BQ19", model="bridge")
def test_two_kinds_of_workers_never_claim_one_job(desk: ModelDesk, client: BridgeClient) -> None:
    jobs, ours, theirs = {client.dispatch() for _ in range(60)}, list[str](), list[str]()
    for at in range(20):
        ours += ids(claim(desk, "ab"[at % 2], 2))
        theirs += [found["jobId"] for found in (client.claim(),) if found]
    assert len(ours) + len(theirs) == len({*ours, *theirs}) == 60 and {*ours, *theirs} == jobs
    for job in ours:
        # One that was put into the list once more, as a foreign cron pass does it.
        client.redis.lpush(KEYS.waiting, job)
    assert client.claim() is None and claim(desk, "c") == [] and client.redis.get(KEYS.running("email")) == "60"


def test_a_lock_of_a_foreign_client_holds_us_off(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.dispatch()
    client.redis.set(KEYS.lock(job), "worker-9", ex=30)
    assert claim(desk) == []
    client.redis.delete(KEYS.lock(job))
    assert ids(claim(desk)) == [job]


@pytest.mark.feature("BQ19", "BQ21", model="bridge")
def test_the_lock_names_the_worker_and_lives_as_long_as_the_lease(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.dispatch()
    (leased,) = desk.run(desk.claim_operation(lease_ms=60_000, classes=("email",))).jobs
    assert client.redis.get(KEYS.lock(job)) == "a" and 30_000 < client.redis.pttl(KEYS.lock(job)) <= 60_000
    client.redis.persist(KEYS.lock(job))
    (item,) = desk.run(Extend((leased.lease,), 1, 120_000, desk.now_ms + 3_000)).items
    assert item == ("ok", desk.now_ms + 120_000) and 60_000 < client.redis.pttl(KEYS.lock(job)) <= 120_000
    client.redis.delete(KEYS.lock(job))
    (item,) = desk.run(Extend((leased.lease,), 2, 60_000, desk.now_ms + 3_000)).items
    assert item[0] == "ok" and client.redis.get(KEYS.lock(job)) == "a", "what only ran out is taken again"
    assert client.release(job, "worker-1") == 0


def test_what_a_foreign_client_has_taken_over_is_ours_no_more(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.dispatch()
    (leased,) = claim(desk)
    client.redis.set(KEYS.lock(job), "worker-9", ex=30)
    assert desk.finish(leased.lease) == [("stale", "")]
    assert desk.run(Extend((leased.lease,), 1, 9_000, desk.now_ms + 3_000)).items == (("stale", 0),)
    assert client.status(job) == "active" and client.redis.get(KEYS.lock(job)) == "worker-9"


@pytest.mark.feature("BQ22", model="bridge")
def test_a_type_runs_as_often_at_once_as_its_jobs_allow(desk: ModelDesk, client: BridgeClient) -> None:
    jobs, leased = [client.dispatch(rateLimit={"maxConcurrent": 2}) for _ in range(4)], claim(desk)
    assert ids(leased) == jobs[:2] and client.redis.get(KEYS.running("email")) == "2"
    assert claim(desk, "b") == [] and client.claim() is None
    desk.finish(leased[0].lease)
    assert (client.claim() or {})["jobId"] == jobs[2] and claim(desk, "b") == []
    client.complete(jobs[2], 1)
    assert ids(claim(desk, "b")) == jobs[3:]


@pytest.mark.feature("BQ23", model="bridge")
def test_a_type_is_claimed_as_often_a_minute_as_its_jobs_allow(desk: ModelDesk, client: BridgeClient) -> None:
    jobs = [client.dispatch(rateLimit={"maxPerMinute": 2}) for _ in range(3)]
    other = client.dispatch("main")
    assert ids(claim(desk)) == [*jobs[:2], other] and claim(desk, "b") == []
    assert client.redis.get(KEYS.minute("email")) == "2" and 0 < client.redis.ttl(KEYS.minute("email")) <= 60
    client.redis.delete(KEYS.minute("email"))
    assert ids(claim(desk, "b")) == jobs[2:]


ODD_LIMITS: list[Any] = [None, "2", [], {"maxConcurrent": None}, {"maxConcurrent": "1"}, {"maxPerMinute": None}]


@pytest.mark.parametrize("limit", ODD_LIMITS)
def test_a_limit_that_is_none_limits_nothing(desk: ModelDesk, client: BridgeClient, limit: Any) -> None:
    client.redis.set(KEYS.running("email"), 5)
    job = client.dispatch(rateLimit=limit)
    assert ids(claim(desk)) == [job]


@pytest.mark.feature("BQ24", model="bridge")
def test_a_pause_holds_both_sides_and_either_may_end_it(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.dispatch()
    desk.queue.pause("email")
    assert client.redis.smembers(KEYS.paused) == {"email"} and claim(desk) == [] and client.claim() is None
    client.redis.srem(KEYS.paused, "email")
    assert ids(claim(desk)) == [job]
    client.dispatch()
    client.redis.sadd(KEYS.paused, "email")
    assert claim(desk, "b") == []
    desk.queue.resume("email")
    assert client.redis.scard(KEYS.paused) == 0 and len(claim(desk, "b")) == 1


@pytest.mark.feature("BQ35", model="bridge")
def test_a_job_waits_for_those_that_it_depends_on(desk: ModelDesk, client: BridgeClient) -> None:
    first, second = client.dispatch(), client.dispatch("main")
    desk.put("child", needs=[first, second])
    foreign = client.dispatch(dependsOn=[first, None, 7])
    leased = {job.lease.job: job for job in claim(desk)}
    assert set(leased) == {first, second} and ids(claim(desk.finished(leased[first].lease))) == [foreign]
    assert ids(claim(desk.finished(leased[second].lease))) == [desk.ids["child"]]


@pytest.mark.feature("BQ35", model="bridge")
def test_a_job_whose_parent_died_is_dead(desk: ModelDesk, client: BridgeClient) -> None:
    parent = client.dispatch()
    (leased,) = claim(desk.put("child", needs=[parent]))
    assert claim(desk.did(Bury((Failure(leased.lease, "no more"),)))) == []
    child = desk.ids["child"]
    assert client.status(child) == "dead" and client.redis.lrange(KEYS.dead, 0, -1) == [child, parent]
    assert parent in json.loads(str(client.redis.get(KEYS.result(child))))["error"]["message"]


@pytest.mark.feature("BQ35", model="bridge")
@pytest.mark.parametrize("outcome", ["skipped", "discarded"])
def test_a_job_whose_parent_was_skipped_is_dead(desk: ModelDesk, client: BridgeClient, outcome: DropOutcome) -> None:
    """As in other models: `skip_on` ends a job for good, and without its work."""
    parent = client.dispatch()
    (leased,) = claim(desk.put("child", needs=[parent]))
    desk.run(Drop((leased.lease,), (outcome,)))
    assert client.status(parent) == "failed", "the format has no other word for either"
    assert claim(desk) == [] and client.status(desk.ids["child"]) == "dead"


@pytest.mark.feature("BQ35", model="bridge")
def test_a_job_whose_parent_was_removed_by_hand_does_not_wait_for_ever(desk: ModelDesk, client: BridgeClient) -> None:
    parent = client.dispatch()
    assert desk.put("child", needs=[parent]).queue.jobs.cancel(parent)
    assert client.status(parent) is None, "the wire knows nothing of it"
    assert claim(desk) == [] and client.status(desk.ids["child"]) == "dead"


@pytest.mark.feature("BQ35", model="bridge")
def test_a_job_that_needs_an_unknown_one_is_refused_also_in_a_repeat(desk: ModelDesk, client: BridgeClient) -> None:
    """As in Lanes: it would wait for ever. A parent that has ended is known for as long as the mark of its end is there."""
    with pytest.raises(UnknownParent, match="nobody"):
        desk.queue.enqueue("email", {}, id="orphan", needs=[client.dispatch(), "nobody"])
    assert client.redis.exists(KEYS.data("orphan"), KEYS.status("orphan")) == 0 and "orphan" not in waiting(client)
    ended = client.dispatch()
    assert desk.queue.jobs.cancel(ended)
    child = desk.enqueue_operation("late", needs=("later",))
    assert desk.run(child).result == "orphan"
    client.dispatch(job="later")
    again = desk.run(child)
    assert (again.result, again.holder) == ("orphan", "later"), "another copy of the same call, whatever has come meanwhile"
    assert desk.queue.enqueue("email", {}, id="known", needs=[ended, "later"]).created


def test_an_unknown_parent_keeps_a_job_of_a_foreign_client_waiting(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.dispatch(dependsOn=["nobody"])
    assert claim(desk) == []
    client.redis.set(KEYS.status("nobody"), "completed")
    assert ids(claim(desk)) == [job]
