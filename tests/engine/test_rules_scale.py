"""Large queues: what a script does in one call is bounded, whatever the size of the queue, and the rest follows in further calls.

Counted in commands and in what each call moves, not in time; `python -m bench scale` measures the time."""

from typing import Any

import pytest

from engine.queue.admin import PIECE as CLEAN_PIECE
from engine.worker.machine.sweeping import ORPHANS_PAGE, SWEEP_LIMIT
from tests.engine.desk import HOUR_MS, LEASE_MS, START_MS, Desk
from tests.engine.ops import Clean, Count, Forget, Limit, Listing, Operation, Page, SetLimit, SetRetention

#: Commands of one call, whatever the size of the queue: the scripts work in parts of some 500.
COMMANDS_MAX = 3_000


def add_lanes(desk: Desk, count: int, class_of: Any = lambda number: "main") -> None:
    """So many ready lanes with one job each, of which only the indexes are there."""
    pipe = desk.redis.pipeline(transaction=False)
    for number in range(count):
        lane = f"{class_of(number)}/k{number}"
        pipe.hset(desk.keys.classes, class_of(number), "").zadd(desk.keys.lane(lane), {f"j{number}": 3e15})
        pipe.zadd(desk.keys.ready(class_of(number)), {lane: 2.8e15})
    pipe.execute()


def park_lanes(desk: Desk, count: int) -> None:
    """So many lanes that wait for a slot, with one job each."""
    pipe = desk.redis.pipeline(transaction=False)
    for number in range(count):
        pipe.zadd(desk.keys.lane(f"main/p{number}"), {f"p{number}": 3e15})
        pipe.hset(desk.keys.parked, f"main/p{number}", f"k:p{number}")
        pipe.zadd(desk.keys.parked_by(f"k:p{number}"), {f"main/p{number}": START_MS})
    pipe.execute()


def commands_of(desk: Desk, operation: Operation) -> int:
    """How many commands one call runs on the server."""
    desk.redis.config_resetstat()
    stats: Any = desk.did(operation).redis.info("commandstats")
    return sum(row["calls"] for name, row in stats.items() if not name.startswith(("cmdstat_evalsha", "cmdstat_config")))


def counts_in_parts(desk: Desk, *classes: str) -> list[int]:
    """What each call counts, until there is no more."""
    found, cursor = list[int](), ""
    while True:
        part = desk.run(Count(classes, cursor))
        found.append(part.waiting)
        cursor = part.cursor
        if not cursor:
            return found


@pytest.mark.parametrize("classes", [pytest.param(1, marks=pytest.mark.slow), 3, 1_200])
def test_waiting_jobs_of_many_lanes_are_counted_in_parts_that_add_up(desk: Desk, classes: int) -> None:
    add_lanes(desk, 2_000, lambda number: f"c{number % classes}")
    park_lanes(desk, 1_300)
    parts = counts_in_parts(desk)
    assert sum(parts) == desk.queue.counts().waiting == 3_300 and len(parts) >= 5 and max(parts) <= 1_100
    assert sum(counts_in_parts(desk, "c0")) == -(-2_000 // classes) and sum(counts_in_parts(desk, "main")) == 1_300
    names = desk.queue.jobs.counts_by_name()
    assert sum(count.waiting for count in names.values()) == 3_300 and len(names) == classes + 1
    assert names["main"].waiting == 1_300


def test_a_lane_that_is_parked_and_ready_is_counted_once(desk: Desk) -> None:
    """A script that was cut off may leave it in both indexes."""
    park_lanes(desk, 3)
    desk.redis.hset(desk.keys.classes, "main", "")
    desk.redis.zadd(desk.keys.ready("main"), {"main/p1": 2.8e15})
    assert counts_in_parts(desk) == [3]


def operations(desk: Desk) -> dict[str, Operation]:
    """What may not take longer in a large queue. Administration and sweeps of nobody's jobs."""
    void_ms = desk.now_ms + 10_000
    return {
        "count": Count(), "listing": Listing(0, 10), "page": Page("waiting", 0, 10),
        "page of names": Page("waiting", 0, 10, names=True),
        "clean of the young": Clean("waiting", HOUR_MS, None, 0, 10, 10, op_id="c0", not_after_ms=void_ms),
        "obliterate": Forget("end", force=True, op_id="f0", not_after_ms=void_ms), "sweep": desk.sweep_operation(),
        "limit of a key": SetLimit("k:x", Limit(concurrency=1), op_id="l0", not_after_ms=void_ms),
        "limit of a name": SetLimit("n:c1", Limit(concurrency=1), op_id="l1", not_after_ms=void_ms),
        "limit of all keys": SetLimit("k:*", Limit(concurrency=1), op_id="l2", not_after_ms=void_ms),
        "resume": desk.resume_operation("c1"), "resume of all": desk.resume_operation("*"),
    }  # fmt: skip


@pytest.mark.parametrize("size", ["lanes", "parked lanes", "classes", "limits"])
def test_no_script_runs_more_commands_in_a_larger_queue(desk: Desk, size: str) -> None:
    if size == "lanes":
        add_lanes(desk, 6_000)
    elif size == "parked lanes":
        park_lanes(desk, 6_000)
        desk.redis.zadd(desk.keys.blocking, {f"k:p{number}": START_MS for number in range(6_000)})
    elif size == "classes":
        add_lanes(desk, 6_000, lambda number: f"c{number}")
        desk.redis.zadd(desk.keys.rest, {"w:*": START_MS})
    else:
        desk.redis.hset(desk.keys.limits, mapping={f"n:c{number}": "1 0 0 sliding" for number in range(6_000)})
    found = {title: commands_of(desk, operation) for title, operation in operations(desk).items()}
    assert {title: count for title, count in found.items() if count > COMMANDS_MAX} == {}


def test_rule_22_sweeps_leave_a_marker_for_each_of_many_classes_in_turn(desk: Desk) -> None:
    add_lanes(desk, 1_500, lambda number: f"c{number}")
    pushed = []
    while pushed[-1:] != [1_500]:
        pushed.append(len(list(desk.swept().redis.scan_iter(desk.keys.wake("*"), 10_000))))
        assert len(pushed) < 20
    steps = [after - before for before, after in zip([0, *pushed], pushed, strict=False)]
    assert max(steps) <= 600 and len(steps) > 2
    # And then from the first one again.
    desk.redis.delete(*desk.redis.keys(desk.keys.wake("*")))
    assert len(desk.sweeps(20).redis.keys(desk.keys.wake("*"))) == 1_500


def test_rule_20_slots_that_nobody_holds_come_free_among_many_limits(desk: Desk) -> None:
    desk.redis.hset(desk.keys.limits, mapping={f"n:c{number}": "1 0 0 sliding" for number in range(1_500)})
    for _ in range(2):
        for name in ("c0", "c1499"):
            desk.redis.zadd(desk.keys.held(f"n:{name}"), {"gone": START_MS - 1})
        sweeps = 0
        while desk.redis.exists(desk.keys.held("n:c0"), desk.keys.held("n:c1499")):
            desk.swept()
            sweeps += 1
            assert sweeps < 50
        assert sweeps > 1


def test_rule_20_parked_lanes_of_many_limits_come_back_in_pieces(desk: Desk) -> None:
    desk.redis.hset(desk.keys.classes, "main", "")
    pipe = desk.redis.pipeline(transaction=False)
    for number in range(600):
        lane, limit = f"main/{number % 10}/{number}", f"k:{number % 10}"
        pipe.zadd(desk.keys.lane(lane), {f"j{number}": 3e15}).hset(desk.keys.parked, lane, limit)
        pipe.zadd(desk.keys.parked_by(limit), {lane: START_MS}).zadd(desk.keys.blocking, {limit: START_MS})
    pipe.execute()
    assert [desk.redis.hlen(desk.keys.parked) for _ in range(3) if desk.sweep()] == [350, 100, 0]


def test_rule_20_a_released_place_among_many_classes_brings_resting_lanes_back_with_the_next_sweep(desk: Desk) -> None:
    desk.redis.hset(desk.keys.classes, mapping={f"c{number}": "" for number in range(600)})
    desk.set_limit("k:acme", rate=1, per_ms=HOUR_MS).enqueue("mail0", name="mail", key="acme")
    job = desk.enqueue("sms0", name="sms", key="acme").one(classes=("mail",))
    assert desk.claim("b", classes=("sms",)) == []
    desk.release(job.lease)
    assert [found.lease.job for found in desk.swept().claim("b", classes=("sms",))] == ["sms0"]


def test_leases_that_run_out_together_are_taken_in_pieces(desk: Desk) -> None:
    piece = SWEEP_LIMIT // 2
    jobs = [f"j{number}" for number in range(2 * piece + 20)]
    assert len(desk.did(desk.enqueue_many_operation(*jobs)).claim(limit=len(jobs))) == len(jobs)
    desk.sweeps(20, LEASE_MS // 20).tick(1)
    taken = [(len(reply.leases), reply.sleep_ms) for reply in (desk.sweep() for _ in range(3))]
    assert taken == [(piece, 0), (piece, 0), (20, 1000)]


def test_jobs_that_fall_due_together_are_promoted_in_pieces(desk: Desk) -> None:
    jobs = [f"j{number}" for number in range(2 * SWEEP_LIMIT + 50)]
    desk.did(desk.enqueue_many_operation(*jobs, delays_ms=(100,) * len(jobs))).tick(100)
    moved = [(reply.promoted, reply.sleep_ms) for reply in (desk.sweep() for _ in range(3))]
    assert moved == [(SWEEP_LIMIT, 0), (SWEEP_LIMIT, 0), (50, 1000)]


def test_leases_due_jobs_and_children_share_a_sweep_and_none_waits_for_all_of_the_others(desk: Desk) -> None:
    """A lease counts as two of the jobs that one sweep may move, and a fifth of these is left for each of the others."""
    assert len(desk.did(desk.enqueue_many_operation(*[f"l{number}" for number in range(70)])).claim(limit=70)) == 70
    desk.sweeps(20, LEASE_MS // 20).enqueue("p").enqueue(*(f"c{number}" for number in range(130)), needs=("p",))
    parent = desk.one(limit=1)
    later = [f"d{number}" for number in range(150)]
    desk.did(desk.enqueue_many_operation(*later, delays_ms=(1,) * len(later))).tick(1).finish(parent.lease)
    moved = []
    for _ in range(3):
        reply = desk.sweep()
        moved.append((len(reply.leases), reply.promoted, desk.redis.zcard(desk.keys.blocked), reply.sleep_ms))
    assert moved == [(50, 20, 10, 0), (20, 60, 0, 0), (0, 70, 0, 1000)]


def test_a_page_over_leases_of_a_dead_worker_takes_fifty_of_them(desk: Desk) -> None:
    jobs = [f"j{number}" for number in range(120)]
    desk.beaten("a", lease_ms=HOUR_MS).run(desk.enqueue_many_operation(*jobs))
    assert len(desk.run(desk.claim_operation("a", 120, HOUR_MS)).jobs) == 120
    for _ in range(8):
        desk.tick(5_000).beat("b")
    replies = [desk.run(desk.orphans_operation(limit=ORPHANS_PAGE)) for _ in range(3)]
    assert [(len(reply.leases), reply.sleep_ms) for reply in replies] == [(50, 0), (50, 0), (20, 1000)]
    assert {lease.job for reply in replies for lease, _ in reply.leases} == set(jobs)


def test_what_has_finished_between_two_sweeps_is_let_go_in_pieces(desk: Desk) -> None:
    desk.redis.zadd(desk.keys.done, {f"j{number:05}": START_MS + number for number in range(12_000)})
    left = [(desk.sweep().sleep_ms, desk.redis.zcard(desk.keys.done)) for _ in range(3)]
    assert left == [(0, 7_000), (0, 2_000), (1000, 1_000)]
    assert desk.redis.zrange(desk.keys.done, 0, 0) == [b"j11000"]


def test_a_clean_removes_in_pieces(desk: Desk) -> None:
    jobs = [f"j{number}" for number in range(2 * CLEAN_PIECE + 50)]
    desk.did(desk.enqueue_many_operation(*jobs)).redis.config_resetstat()
    assert desk.queue.drain() == len(jobs)
    calls: Any = desk.redis.info("commandstats")
    # The last one finds nothing.
    assert calls["cmdstat_evalsha"]["calls"] == 4 and desk.queue.counts().waiting == 0


def test_an_obliteration_removes_schedules_and_classes_in_pieces(desk: Desk) -> None:
    pipe = desk.redis.pipeline(transaction=False)
    for number in range(2_500):
        pipe.zadd(desk.keys.cron, {f"s{number}": START_MS + HOUR_MS}).hset(desk.keys.schedule(f"s{number}"), "version", "1")
        pipe.hset(desk.keys.classes, f"c{number}", "").rpush(desk.keys.wake(f"c{number}"), "1")
        pipe.zadd(desk.keys.blocking, {f"k:{number}": START_MS})
        pipe.zadd(desk.keys.parked_by(f"k:{number}"), {f"c{number}/k": START_MS})
    pipe.execute()
    begun = [desk.run(Forget("begin", force=True, op_id=f"b{at}", not_after_ms=desk.now_ms + 10_000)).more for at in range(3)]
    assert begun == [True, True, False]
    pipe.execute()
    assert desk.queue.obliterate()
    patterns = (desk.keys.schedule("*"), desk.keys.wake("*"), desk.keys.parked_by("*"))
    assert not desk.redis.exists(desk.keys.cron, desk.keys.classes, desk.keys.blocking)
    assert [desk.redis.keys(pattern) for pattern in patterns] == [[], [], []]


def test_an_obliteration_that_meets_a_lease_on_the_way_is_busy(desk: Desk) -> None:
    desk.redis.zadd(desk.keys.cron, {f"s{number}": START_MS + HOUR_MS for number in range(1_500)})
    desk.leased("j")
    assert desk.queue.obliterate() is False and desk.redis.zcard(desk.keys.cron) == 1_500


def test_dead_jobs_over_the_bound_go_fifty_at_a_time_and_the_oldest_first(desk: Desk) -> None:
    jobs = [f"j{number:03}" for number in range(120)]
    for job in desk.did(desk.enqueue_many_operation(*jobs)).claim(limit=120):
        desk.buried(job.lease).tick(1)
    desk.run(SetRetention((("dead_max", 10),), op_id="r0", not_after_ms=desk.now_ms + 10_000))
    desk.redis.zadd(desk.keys.done, {f"d{number}": number for number in range(7_000)})
    left = [(desk.sweep().sleep_ms, desk.redis.zcard(desk.keys.dead)) for _ in range(3)]
    assert left == [(0, 70), (0, 20), (1000, 10)]
    desk.redis.zadd(desk.keys.done, {f"d{number}": number for number in range(12_000)})
    assert desk.sweep().sleep_ms == 0 and desk.redis.zrange(desk.keys.dead, 0, 0) == [b"j110"]
