"""`queue.jobs.why` says why a job does not run; `queue.limits` and `queue.obstacles` say what holds a queue back."""

import json
from dataclasses import replace
from typing import Any

import pytest

from engine import AsyncQueue, Queue, Target
from engine.options import route_text
from engine.queue.why import added_obstacles
from tests.engine.using import LEASE_MS, START_MS, Book, Bury, Desk, Explain, Failure, at_work, make_worker, wait_until

#: The time of a desk in words.
NOW = "2100-01-01 01:06:40 UTC"


def why(desk: Desk, job: str = "j") -> str:
    return str(desk.queue.jobs.why(job))


def live(desk: Desk, name: str = "w1", *handlers: str, **about: Any) -> Desk:
    """A worker that has just told that it lives."""
    told = {"name": name, "concurrency": 2, "handlers": list(handlers or ("main",)), "routing": {"routes": ["default"]}, **about}
    beat = desk.beat_operation(about=json.dumps(told, separators=(",", ":")))
    return desk.did(replace(beat, incarnation=name.ljust(16, "0"), counter=desk.now_ms - START_MS + 1))


def test_a_job_in_every_state(desk: Desk) -> None:
    live(desk).enqueue("running", "failing", "dying", "done", attempts=2)
    leases = {job.lease.job: job.lease for job in desk.claim("w1")}
    desk.retry(leases["failing"], delay_ms=5_000, error="Traceback\nValueError: no")
    desk.did(Bury((Failure(leases["dying"], "OSError: no route"),))).finished(leases["done"]).enqueue("j")
    desk.enqueue("later", delay_ms=60_000).enqueue("child", needs=("running", "later"))
    assert why(desk) == "waits to be claimed: nothing holds it back" and why(desk, "running") == f"runs on w1 since {NOW}"
    waits = "waits until 2100-01-01 01:06:45 UTC for its next attempt"
    assert why(desk, "failing") == f"{waits}, after 1 failed attempt: ValueError: no"
    assert why(desk, "dying") == f"is dead since {NOW}, because of OSError: no route"
    assert why(desk, "done") == f"has finished at {NOW}" and why(desk, "later") == "is delayed until 2100-01-01 01:07:40 UTC"
    assert why(desk, "child") == "waits for its parents later (delayed) and running (active)"
    desk.redis.sadd(desk.keys.heirs("running"), "later")
    assert ((fed := desk.run(Explain("running"))).feeds, fed.children) == (2, (("child", "blocked"), ("later", "delayed")))
    desk.redis.delete(desk.keys.needs("child"))
    assert why(desk, "child") == "waits for the next sweep, which finds that its parents have ended"
    unknown = desk.queue.jobs.why("nobody")
    assert (unknown.known, unknown.state) == (False, "gone") and "no job has this id" in unknown.sentence
    desk.queue.jobs.cancel("j")
    assert why(desk).startswith("was cancelled")
    live(desk.tick(LEASE_MS + 1))
    stuck = "is in hand of w1, whose lease ended at 2100-01-01 01:06:49 UTC; the next sweep takes it away"
    assert why(desk, "running") == stuck


def test_a_child_that_died_with_its_parent_is_told_in_a_sentence(desk: Desk) -> None:
    leased = desk.enqueue("p").enqueue("child", needs=("p",)).one("w1")
    desk.did(Bury((Failure(leased.lease, "OSError: no route"),))).sweep()
    assert why(desk, "child") == f"is dead since {NOW}, because its parent p is dead"


def test_pauses_of_the_queue_and_of_the_name(desk: Desk) -> None:
    live(desk)
    main, all_names = "the name main is paused until it is resumed", "the queue is paused until 2100-01-01 01:07:40 UTC"
    assert why(desk.enqueue("j").pause("main")) == f"waits because {main}"
    assert why(desk.pause("*", length_ms=60_000)) == f"waits because {all_names}, and because {main}"
    found = desk.queue.obstacles()
    assert sorted((pause.until_ms, pause.name) for pause in found.pauses) == [(0, "main"), (START_MS + 60_000, None)]
    assert [lane.waits_for for lane in found.lanes] == [all_names]
    assert why(live(desk.tick(60_000))) == f"waits because {main}"
    assert why(desk.resume("main")) == "waits to be claimed: nothing holds it back" and desk.queue.obstacles().pauses == ()


@pytest.mark.parametrize("target", ["k:acme", "k:*"])
def test_a_limit_of_a_key_names_who_fills_it(desk: Desk, target: str) -> None:
    live(desk).set_limit(target, concurrency=2).enqueue("a", "b", "j", key="acme").held("w1", 1).claim("w3", 2)
    assert why(desk) == "waits for the limit of key acme: 2 of 2 in hand, by w1 and w3"
    limits = {limit.target: limit for limit in desk.queue.limits()}
    acme = limits["key acme"]
    assert (acme.inherited, acme.concurrency, acme.in_hand, acme.parked, acme.full) == (target == "k:*", 2, 2, 1, True)
    assert sorted(acme.holders) == [("a", "w1"), ("b", "w3")]
    if target == "k:*":
        assert (limits["each key"].key, limits["each key"].full) == ("*", False)
    (lane,) = desk.queue.obstacles().lanes
    assert (lane.name, lane.key, lane.waiting, lane.waits_for) == ("main", "acme", 1, str(acme))


def test_limits_of_a_name_and_of_rates_say_when_there_is_room(desk: Desk) -> None:
    live(desk).set_limit("n:main", concurrency=1).set_limit("k:acme", rate=1, per_ms=10_000)
    job = desk.enqueue("a", "j", key="acme").one("w1", 1)
    rate = "limit of key acme: 1 of 1 claims in 10 s, free again at 2100-01-01 01:06:50 UTC"
    assert why(desk) == f"waits for the limit of name main: 1 of 1 in hand, by w1, and for the {rate}"
    assert desk.finished(job.lease).claim("w1", 1) == []
    assert why(desk) == f"waits for the {rate}"
    held = desk.queue.obstacles()
    assert [lane.waits_for for lane in held.lanes] == [rate]
    # Of several shards: a name has the sum of its shares, a key its limit; what is free last is what it waits for.
    free = replace(held, limits=tuple(replace(limit, free_ms=0) for limit in held.limits), lanes=(), cut=True)
    sums = {limit.target: limit for limit in added_obstacles([held, free]).limits}
    assert added_obstacles([held, free]).cut and sums["key acme"].free_ms == START_MS + 10_000
    assert [(sums[of].concurrency, sums[of].rate, sums[of].used) for of in ("name main", "key acme")] == [(2, 0, 0), (0, 1, 2)]
    desk.redis.hdel(desk.keys.limits, "k:acme")
    assert why(desk) == "waits for the rate limit of key acme, free again at 2100-01-01 01:06:50 UTC"
    assert [lane.waits_for for lane in desk.queue.obstacles().lanes] == [why(desk).removeprefix("waits for the ")]
    assert why(live(desk.tick(10_000))) == "waits to be claimed: nothing holds it back"
    assert [lane.waits_for for lane in desk.queue.obstacles().lanes] == [""]


def test_a_costly_job_waits_for_as_many_places_as_it_takes(desk: Desk) -> None:
    live(desk).set_limit("k:acme", rate=3, per_ms=10_000).enqueue("a", key="acme").held("w1", 1).enqueue("j", key="acme", cost=3)
    assert why(desk).startswith("waits for the limit of key acme: 1 of 3 claims in 10 s, free again at")


def test_workers_that_do_not_take_the_job(desk: Desk) -> None:
    assert why(desk.enqueue("j", priority=3)) == "waits because no worker of this queue is alive"
    alive = {1: "w1", 2: "w1 and w2", 3: "w1, w2 and w3", 4: "w1, w2, w3 and 1 more"}
    for number, told in alive.items():
        assert why(live(desk, f"w{number}", "other")) == f"waits because no live worker has a handler for main; alive: {told}"
    live(desk.tick(30_001), "w2", priorities=[5, 10])
    assert why(desk) == "waits because no live worker takes its priority 3; alive: w2"
    live(desk, "w3", gate_closed=True)
    assert why(desk) == "waits because w3 is kept from claiming by a closed gate, and no other takes it"
    assert why(live(desk, "w4", paused=True)) == "waits because w3 and w4 are paused, and no other takes it"
    assert why(live(desk, "w5", in_hand=2)) == "waits because w5 is busy, with 2 jobs in hand for 2 handlers"
    assert why(live(desk, "w6")) == "waits to be claimed: nothing holds it back"
    desk.queue.workers.pause("w6")
    assert why(desk) == "waits because w5 is busy, with 2 jobs in hand for 2 handlers"
    assert why(desk.tick(30_001)) == "waits because no worker of this queue is alive"


def test_a_route_and_a_target_that_no_worker_takes(desk: Desk) -> None:
    live(desk).queue.enqueue("main", {}, id="j", route="gpu")
    assert why(desk) == "waits because no live worker takes its route gpu; alive: w1"
    desk.queue.enqueue("main", {}, id="k", target=Target(stack=["rust"]))
    assert why(desk, "k") == 'waits because no live worker takes its target {"stack": ["rust"]}; alive: w1'
    raw: bytes = desk.redis.get(desk.keys.job("k"))
    desk.redis.set(desk.keys.job("k"), raw.replace(b'{"stack":["rust"]}', b"[1,2,3,4,5,6,7,89]"))
    assert why(desk, "k") == "waits because no live worker takes its target, which nobody can read; alive: w1"
    live(desk, "w2", routing={"routes": [route_text("route", "gpu")], "stack": "rust"})
    assert why(desk) == "waits to be claimed: nothing holds it back"


def test_jobs_before_it_in_its_lane(desk: Desk) -> None:
    assert why(live(desk).enqueue("a", "b", "j")) == "waits for its turn: 2 jobs of its lane come first"


def test_since_when_each_lane_waits(desk: Desk) -> None:
    """The oldest of the priorities and of LIFO, which stand in other places of the lane; a delay does not count."""
    desk.enqueue("late", delay_ms=50_000, priority=9).enqueue("lifo", lifo=True).tick(10_000)
    # More than are looked at: the oldest one of a row is at one of its ends.
    desk.enqueue("fifo", *(f"fifo{number}" for number in range(12)))
    desk.enqueue(*(f"lifo{number}" for number in range(12)), lifo=True).enqueue("tenant", key="acme")
    found = desk.swept(40_000).queue.obstacles()
    lanes = [(lane.name, lane.key, lane.waiting, lane.oldest_ms - START_MS) for lane in found.lanes]
    assert lanes == [("main", "", 27, 0), ("main", "acme", 1, 10_000)]
    assert (found.oldest_age_ms, found.waiting_by_name, found.cut) == (50_000, {"main": 28}, False)
    desk.queue.jobs.remove("lifo")
    assert desk.queue.obstacles().oldest_age_ms == 40_000
    desk.queue.drain()
    assert desk.queue.obstacles().oldest_age_ms == 0


def test_more_lanes_than_one_call_looks_at(desk: Desk) -> None:
    desk.queue.enqueue_many([{"name": "main", "payload": {}, "key": f"k{number}"} for number in range(1_200)])
    found = desk.queue.obstacles()
    assert len({lane.key for lane in found.lanes}) == len(found.lanes) == 1_200


def test_more_limits_than_one_call_tells(desk: Desk) -> None:
    """Of the first hundred it is told which jobs hold them."""
    for number in range(300):
        desk.set_limit(f"n:name{number}", concurrency=1)
    assert len(desk.queue.obstacles().limits) == 200


async def test_a_worker_tells_what_keeps_it_back(queue: Queue, ironclaim_url: str) -> None:
    """A real worker: its priorities, its gate and its pause are in its heartbeats."""
    gate = False
    worker = make_worker(queue, Book(), "w1", beat_ms=100, priorities=(5, 10), gate=lambda: gate)
    with at_work(worker):
        queue.enqueue("work", {}, id="j", priority=7)
        queue.enqueue("work", {}, id="low", priority=1)
        # A machine that stands still for longer than a heartbeat counts makes it look dead for a moment.
        for job, reason in (
            ("j", "waits because w1 is kept from claiming by a closed gate, and no other takes it"),
            ("low", "waits because no live worker takes its priority 1; alive: w1"),
        ):
            wait_until(lambda job=job, reason=reason: str(queue.jobs.why(job)) == reason, reason)
        (info,) = queue.workers.list()
        assert (info.priorities, info.gate_closed, info.paused) == ((5, 10), True, False)
        gate = True
        wait_until(lambda: queue.counts().finished == 1, "the end of the job")
        assert str(queue.jobs.why("j")).startswith("has finished at 20")
    async with AsyncQueue("q", url=ironclaim_url) as face:
        told = str(await face.jobs.why("low")), await face.limits()
    assert told == ("waits because no worker of this queue is alive", [])
