"""Looking at jobs of Bull's queues and changing them by hand, by the queue's own faces, on raw keys of either side."""

import json

import pytest

from engine.ops.claims import Bury, Failure
from tests.engine.helpers.bull_desk import BullDesk, bull, node
from tests.engine.helpers.node_bull import NodeBull

__all__ = ["bull", "node"]


def one_of_each(bull: BullDesk, node: NodeBull) -> dict[str, str]:
    """A job of Node's in each state, those in hand one of each side."""
    ids = {state: node.add({"state": state}) for state in ("finished", "dead", "active", "stuck")}
    jobs = bull.take(3)
    bull.finish(jobs[ids["finished"]].lease)
    bull.run(Bury((Failure(jobs[ids["dead"]].lease, "ValueError: no"),)))
    assert node.pop(lock=False) == ids["stuck"]
    ids["delayed"] = node.add({"state": "delayed"}, delay=5000)
    ids["waiting"] = node.add({"state": "waiting"})
    return ids


@pytest.mark.feature("BL28", "BL29", "BL30", model="bull")
def test_what_is_told_of_jobs_in_every_state(bull: BullDesk, node: NodeBull) -> None:
    ids, jobs, queue = one_of_each(bull, node), bull.queue.jobs, bull.queue
    assert {state: jobs.state(id) for state, id in ids.items()} == {state: state for state in ids}
    assert jobs.state("404") == "gone" and jobs.get("404") is None
    for state, id in ids.items():
        found = jobs.get(id)
        assert found is not None and found.state == state
        # Of a job that is finished only its end is told.
        told = (found.payload, found.name, found.enqueued_ms)
        assert state == "finished" or told == ({"state": state}, "__default__", node.now_ms)
    dead, delayed = jobs.get(ids["dead"]), jobs.get(ids["delayed"])
    assert dead is not None and delayed is not None
    assert (dead.last_error, dead.failures, delayed.due_ms) == ("ValueError: no", 0, node.now_ms + 5000)
    counts = queue.counts()
    assert (counts.waiting, counts.delayed, counts.active, counts.dead, counts.done) == (1, 1, 2, 1, 1)
    assert tuple(jobs.counts_by_name()["__default__"]) == (1, 1, 2, 1, 0)
    assert [job.id for job in jobs.list("stuck")] == [ids["stuck"]]


@pytest.mark.feature("BL30", model="bull")
def test_a_job_that_is_in_no_list_is_stuck(bull: BullDesk, node: NodeBull) -> None:
    lost = node.add({"n": 1}, delay=10)
    node.pause()
    node.add({})
    node.now_ms += 10
    node.promote()
    node.resume()
    found = bull.queue.jobs.get(lost)
    assert found is not None and (found.state, found.payload) == ("stuck", {"n": 1})


@pytest.mark.feature("BL29", model="bull")
def test_pages_of_a_state_from_either_end(bull: BullDesk, node: NodeBull) -> None:
    for number in range(7):
        node.now_ms += 1
        node.add({"n": number})
        node.add({"n": number}, delay=60_000 + number)
    waiting, delayed = [str(n) for n in range(1, 15, 2)], [str(n) for n in range(2, 15, 2)]
    jobs = bull.queue.jobs

    def page(state: str, offset: int, limit: int, newest_first: bool = False) -> list[str]:
        return [job.id for job in jobs.list(state, offset=offset, limit=limit, newest_first=newest_first)]

    for state, ids in (("waiting", waiting), ("delayed", delayed)):
        assert page(state, 0, 3) + page(state, 3, 100) == ids and page(state, 1, 2, newest_first=True) == ids[-2:-4:-1]
    bull.pause()
    assert page("waiting", 2, 2) == waiting[2:4]
    bull.finish(*(job.lease for job in bull.resume().take(7).values()))
    assert page("finished", 0, 4) + page("finished", 4, 4) == waiting
    assert page("finished", 0, 2, newest_first=True) == waiting[:-3:-1]


@pytest.mark.feature("BL25", model="bull")
def test_a_job_is_removed_unless_somebody_holds_it(bull: BullDesk, node: NodeBull) -> None:
    ids = one_of_each(bull, node)
    node.lock(ids["waiting"])
    jobs = bull.queue.jobs
    for state in ("finished", "dead", "delayed"):
        assert jobs.remove(ids[state]).done and not bull.redis.exists(bull.wire.job(ids[state]))
    assert not jobs.remove(ids["active"]).done and not jobs.remove(ids["waiting"]).done
    bull.redis.delete(bull.wire.lock(ids["waiting"]))
    assert jobs.remove(ids["waiting"]).done
    left = bull.wire.job(ids["active"]), bull.wire.lock(ids["active"]), bull.wire.job(ids["stuck"])
    assert bull.foreign_keys() == {*left, bull.wire.active, bull.wire.id}


@pytest.mark.feature("BL24", model="bull")
def test_a_delayed_job_is_promoted_by_hand(bull: BullDesk, node: NodeBull) -> None:
    id = node.add({}, delay=99_000)
    bull.published()
    assert bull.queue.jobs.run_now(id).done and not bull.queue.jobs.run_now(id).done
    assert bull.redis.lrange(bull.wire.wait, 0, -1) == [id] and bull.redis.hget(bull.wire.job(id), "delay") == "0"
    assert bull.published() == [[bull.wire.jobs, id]] and list(bull.take()) == [id]


@pytest.mark.feature("BL23", model="bull")
@pytest.mark.parametrize("lifo", [False, True])
def test_a_failed_job_is_retried_by_hand(bull: BullDesk, node: NodeBull, lifo: bool) -> None:
    id = node.add({}, **({"lifo": True} if lifo else {}))
    bull.run(Bury((Failure(bull.take()[id].lease, "no"),)))
    other = node.add({})
    assert bull.queue.dead.requeue(id).done and bull.redis.lrange(bull.wire.wait, 0, -1) == ([other, id] if lifo else [id, other])
    assert not bull.redis.exists(bull.wire.failed) and bull.finish(bull.take()[id].lease) == [("ok", "finished")]


@pytest.mark.feature("BL26", model="bull")
@pytest.mark.parametrize("state", ["waiting", "delayed", "dead", "finished"])
def test_clean_removes_what_was_made_so_long_ago(bull: BullDesk, node: NodeBull, state: str) -> None:
    options = {"delay": 999_999} if state == "delayed" else {}
    old, held, young = (node.add({}, **options) for _ in range(3))
    if state in ("dead", "finished"):
        for job in bull.take().values():
            bull.run(Bury((Failure(job.lease, "no"),))) if state == "dead" else bull.finish(job.lease)
    for id, age_ms in ((old, 60_000), (held, 60_001), (young, 59_000)):
        bull.redis.hset(bull.wire.job(id), "timestamp", bull.now_ms - age_ms)
        # Of jobs that the engine has ended it knows for a while when that was.
        bull.redis.delete(bull.keys.run(id))
    assert bull.queue.clean(state, older_than_ms=60_000, limit=1) == 1
    assert bull.queue.clean(state, older_than_ms=60_000) == 1 and bull.queue.clean(state, older_than_ms=60_000) == 0
    assert [id for id in (old, held, young) if bull.redis.exists(bull.wire.job(id))] == [young]
    assert bull.queue.clean(state) == 1 and bull.foreign_keys() == {bull.wire.id}


@pytest.mark.feature("BL27", model="bull")
def test_a_queue_is_emptied(bull: BullDesk, node: NodeBull) -> None:
    ids = one_of_each(bull, node)
    bull.pause()
    node.add({})
    assert bull.queue.drain(delayed=True) == 3
    gone = (bull.wire.wait, bull.wire.paused, bull.wire.delayed)
    assert not bull.redis.exists(*gone, bull.wire.job(ids["waiting"]), bull.wire.job(ids["delayed"]))
    assert bull.redis.llen(bull.wire.active) == 2 and bull.redis.scard(bull.wire.failed) == 1


def test_an_obliterated_queue_leaves_nothing_of_bull(bull: BullDesk, node: NodeBull) -> None:
    one_of_each(bull, node)
    assert bull.queue.obliterate() is False and bull.queue.obliterate(force=True) is True
    assert bull.foreign_keys() == set() and node.add({}) == "1" and list(bull.take()) == ["1"]


@pytest.mark.feature("BL12", "BL15", model="bull")
def test_how_jobs_of_node_have_ended_is_told(bull: BullDesk, node: NodeBull) -> None:
    one, other, failed = (node.add({}) for _ in range(3))
    assert [node.pop(), node.pop()] == [one, other]
    node.complete(one, {"n": 1})
    node.complete(other, 0)
    results = bull.did(Bury((Failure(bull.take()[failed].lease, "ValueError: no"),))).queue.results
    told = {id: results.get(id) for id in (one, other, failed)}
    ends = {one: ["finished", {"n": 1}], other: ["finished", None], failed: ["dead", None]}
    assert json.dumps({id: [result.outcome, result.value] for id, result in told.items() if result}) == json.dumps(ends)


def test_a_schedule_makes_jobs_that_node_can_run(bull: BullDesk, node: NodeBull) -> None:
    """Their ids are numbers."""
    bull.queue.schedules.put("nightly", "__default__", {"n": 1}, every_ms=60_000)
    enqueued = bull.queue.schedules.run_now("nightly")
    assert enqueued is not None and enqueued.job == "1" and node.pop() == "1"
