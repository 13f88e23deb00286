"""Defects of Bull, each by its name: those that the engine does not have on the same wire, and those that the
wire cannot be protected from: each finding that the model declares."""

import json
from dataclasses import replace
from typing import Any

import pytest

from engine.models.foreign.bull import FINDINGS, UNNAMED, BullModel
from engine.worker.machine.sweeping import SWEEP_LIMIT
from tests.engine.helpers.bull_desk import BullDesk, bull, node
from tests.engine.helpers.node_bull import NodeBull
from tests.engine.using import LEASE_MS, Failure, Finish, Retry, altered

__all__ = ["bull", "node"]


def dead(bull: BullDesk, id: str) -> None:
    """Its one run fails."""
    assert bull.did(Retry((Failure(bull.take()[id].lease, "no"),))).redis.smembers(bull.wire.failed) == {id}


@pytest.mark.feature("BL20", model="bull")
def test_what_node_promoted_during_the_pause_survives_our_resume(bull: BullDesk, node: NodeBull) -> None:
    """Bull renames `paused` over `wait`: [1] and [3, 2] become [3, 2], and job 1 is in no list."""
    node.add({}, delay=1000)
    bull.pause()
    node.add({})
    node.add({})
    node.now_ms += 1000
    assert node.promote() == "1" and node.lists() == {"wait": ["1"], "paused": ["3", "2"]}
    bull.resume()
    assert node.lists() == {"wait": ["1", "3", "2"]} and list(bull.take()) == ["2", "3", "1"]


@pytest.mark.feature("BL19", "BL20", "BL24", model="bull")
def test_nothing_comes_into_wait_during_the_pause(bull: BullDesk, node: NodeBull) -> None:
    """Bull puts what is promoted, retried by hand, or to be run again at once there, and it runs."""
    dead_id, held, jobs = bull.add(), bull.add(attempts=2), bull.take()
    bull.run(Retry((Failure(jobs[dead_id].lease, "no"),)))
    late, by_hand, lost = bull.add(delay_ms=100), bull.add(delay_ms=99_999), node.add({})
    assert node.pop() == lost
    bull.redis.delete(bull.wire.lock(lost))
    node.pause()
    altered(bull.did(Retry((Failure(jobs[held].lease, "no"),))), "requeue", "dead", dead_id)
    altered(bull, "run_now", "delayed", by_hand)
    assert bull.tick(100).sweep().promoted == 1
    bull.swept().tick(1000).sweep()
    assert sorted(node.lists()["paused"]) == sorted([dead_id, held, late, by_hand, lost])
    assert "wait" not in node.lists() and "active" not in node.lists() and bull.take() == {}
    node.resume()
    assert len(bull.take()) == 5


@pytest.mark.feature("BL20", model="bull")
def test_a_pause_of_either_side_holds_both(bull: BullDesk, node: NodeBull) -> None:
    bull.add()
    bull.pause()
    assert node.pop() is None
    node.resume()
    node.pause()
    assert bull.take() == {} and bull.add() == "2" and node.lists() == {"paused": ["2", "1"]}
    bull.resume()
    assert node.pop() == "1" and list(bull.take()) == ["2"]


@pytest.mark.feature("BL16", "BL17", model="bull")
def test_the_lock_is_renewed_and_never_lapses_in_between(bull: BullDesk, node: NodeBull) -> None:
    """Bull's first renewal asks for a free lock, so it lapses and is taken again."""
    bull.add()
    (job,) = bull.run(bull.claim_operation(lease_ms=60_000, classes=(UNNAMED,))).jobs
    lock, token = bull.wire.lock("1"), f"{job.lease.fence}:{job.lease.nonce}"
    # It outlives its lease by the time that sweeps wait after a stall.
    assert bull.redis.get(lock) == token and 60_000 < bull.redis.pttl(lock) <= 90_000
    bull.redis.persist(lock)
    bull.run(replace(bull.extend_operation(job.lease), lease_ms=60_000))
    assert bull.redis.get(lock) == token and 60_000 < bull.redis.pttl(lock) <= 90_000 and not node.lock("1")
    assert not bull.finished(job.lease).redis.exists(lock)


@pytest.mark.feature("BL18", model="bull")
def test_a_job_that_was_just_popped_is_not_taken_from_its_worker(bull: BullDesk, node: NodeBull) -> None:
    """Pop and lock are two commands: Bull's stalled check comes in between."""
    node.add({})
    assert node.pop(lock=False) == "1" and [bull.tick(300).sweep().leases for _ in range(3)] == [(), (), ()]
    node.lock("1")
    bull.tick(300).sweep()
    assert node.lists() == {"active": ["1"]}


def test_many_jobs_of_a_worker_that_is_gone_come_back_in_pieces_one_after_the_other(bull: BullDesk, node: NodeBull) -> None:
    for number in range(SWEEP_LIMIT + 20):
        node.add({"number": number})
        node.pop(lock=False)
    bull.swept().tick(1000)
    moved = [(len(node.lists()["active"]), bull.sweep().sleep_ms) for _ in range(2)]
    assert moved == [(SWEEP_LIMIT + 20, 0), (20, 1000)] and "active" not in node.lists()


@pytest.mark.feature("BL18", model="bull")
def test_what_a_node_worker_has_left_behind_runs_again(bull: BullDesk, node: NodeBull) -> None:
    node.add({"n": 1})
    assert node.pop() == "1"
    bull.swept().redis.delete(bull.wire.lock("1"))
    bull.sweeps(3, 600)
    assert node.lists() == {"wait": ["1"]}
    (job,) = bull.take().values()
    assert json.loads(job.payload) == {"n": 1} and bull.finish(job.lease) == [("ok", "finished")]
    assert bull.redis.smembers(bull.wire.completed) == {"1"} and not node.lists()


@pytest.mark.feature("BL04", "BL19", model="bull")
def test_equal_due_times_keep_their_order_where_the_ids_low_bits_wrap(bull: BullDesk, node: NodeBull) -> None:
    """Bull promotes 4096 before 4095, whose low bits are greater."""
    bull.redis.set(bull.wire.id, 4090)
    due_ms = bull.now_ms + 500
    ids = [bull.add(run_at_ms=due_ms) if at % 2 else node.add({}, delay=500) for at in range(12)]
    assert ids[0] == "4091" and ids[-1] == "4102" and bull.tick(500).sweep().promoted == 12 and list(bull.take(12)) == ids


@pytest.mark.parametrize("value", [0, False, "", None, [], {}])
@pytest.mark.feature("BL12", model="bull")
def test_a_return_value_that_says_no_is_kept(bull: BullDesk, value: Any) -> None:
    """Bull writes an empty text for 0, false and ""."""
    bull.add()
    bull.finish_with(bull.one(classes=(UNNAMED,)).lease, value)
    assert json.loads(bull.redis.hget(bull.wire.job("1"), "returnvalue") or "") == value


def test_a_run_that_is_due_again_in_the_past_waits(bull: BullDesk) -> None:
    """Bull adds such a job to the sorted set as to a set: WRONGTYPE."""
    bull.add(attempts=2)
    bull.add(delay_ms=99_000)
    bull.run(Retry((Failure(bull.one(classes=(UNNAMED,)).lease, "no", 0),)))
    assert bull.redis.lrange(bull.wire.wait, 0, -1) == ["1"] and bull.redis.zcard(bull.wire.delayed) == 1


def test_a_hash_of_data_and_opts_alone_runs(bull: BullDesk) -> None:
    bull.redis.hset(bull.wire.job("7"), mapping={"data": '{"n":7}', "opts": "{}"})
    bull.redis.lpush(bull.wire.wait, "7")
    (job,) = bull.take().values()
    assert json.loads(job.payload) == {"n": 7} and bull.run(Finish((job.lease,))).items == (("ok", "finished"),)
    assert bull.redis.smembers(bull.wire.completed) == {"7"}


def test_each_finding_is_brought_about_here() -> None:
    shown = {name.removeprefix("test_").replace("_", " ") for name in globals() if name.startswith("test_")}
    assert {finding.name for finding in FINDINGS} <= shown and BullModel.FINDINGS is FINDINGS


def test_unfenced_ends(bull: BullDesk, node: NodeBull) -> None:
    """A Node worker stalls, its job runs here, and then it completes the job all the same: our end is refused."""
    node.add({})
    assert node.pop() == "1"
    bull.swept().redis.delete(bull.wire.lock("1"))
    bull.sweeps(3, 600)
    (job,) = bull.take().values()
    node.complete("1", {"by": "node"})
    assert bull.finish(job.lease) == [("stale", "")]
    assert json.loads(bull.redis.hget(bull.wire.job("1"), "returnvalue") or "") == {"by": "node"}
    # The lease runs out, and the job that is completed does not run again.
    assert bull.past(LEASE_MS + 1).take() == {} and not node.lists()


def test_pop_before_lock(bull: BullDesk, node: NodeBull) -> None:
    """More than a second between the two commands: the job runs on both sides."""
    node.add({})
    assert node.pop(lock=False) == "1"
    bull.sweeps(3, 600)
    assert list(bull.take()) == ["1"]
    # Its lock comes too late, so it learns of it; had our lock lapsed as well, it would run the job.
    assert not node.lock("1")
    bull.redis.delete(bull.wire.lock("1"))
    assert node.lock("1")


def test_stalled_check(bull: BullDesk, node: NodeBull) -> None:
    """Node has read in `active` a job that fails here before its turn comes: nobody has locked it, so Node may run it at once."""
    bull.add(attempts=2, backoff_ms=60_000)
    (job,) = bull.take().values()
    listed = node.lists()["active"]
    assert not node.lock(listed[0])
    bull.retry(job.lease, delay_ms=60_000)
    assert bull.redis.zrange(bull.wire.delayed, 0, -1) == ["1"] and node.lock(listed[0])


def test_overwriting_resume(bull: BullDesk, node: NodeBull) -> None:
    node.add({}, delay=1000)
    node.pause()
    node.add({})
    node.now_ms += 1000
    assert node.promote() == "1"
    node.resume()
    assert node.lists() == {"wait": ["2"]} and bull.redis.exists(bull.wire.job("1"))
    assert list(bull.take()) == ["2"] and bull.take() == {}


def test_promotion_during_the_pause(bull: BullDesk, node: NodeBull) -> None:
    node.add({}, delay=1000)
    bull.pause()
    node.now_ms += 1000
    node.promote()
    assert bull.take() == {} and node.pop() == "1"


def test_equal_due_times(bull: BullDesk, node: NodeBull) -> None:
    bull.redis.set(bull.wire.id, 4094)
    assert [node.add({}, delay=5), node.add({}, delay=5)] == ["4095", "4096"]
    node.now_ms += 5
    assert [node.promote(), node.promote()] == ["4096", "4095"] and list(bull.take()) == ["4096", "4095"]


def test_clocks_of_clients(bull: BullDesk, node: NodeBull) -> None:
    bull.add(delay_ms=60_000)
    node.now_ms += 60_000
    assert node.promote() == "1" and list(bull.take()) == ["1"]


def test_ids_that_are_no_numbers(bull: BullDesk, node: NodeBull) -> None:
    """Node ends job NaN, of which there is none; its stalled check finds the other one in `active` again and again."""
    bull.add(id="order-7")
    assert node.pop(lock=False) == "order-7"
    node.lock("NaN")
    node.complete("NaN", {})
    assert node.lists() == {"active": ["order-7"]} and not bull.redis.exists(bull.wire.completed)
