"""Rule 25: what was buried with a parent waits for it again; a workflow is looked at, cancelled and retried as one."""

from typing import Any

import pytest

from engine import Handlers, Malformed, Queue, UnsupportedFeature, Worker, models
from engine.options import PLAIN
from engine.queue import workflows
from engine.queue.producing import Steps
from tests.engine.helpers.by_hand import altered, bury, revive
from tests.engine.helpers.lanes_state import members as in_order
from tests.engine.helpers.lanes_state import names_of
from tests.engine.using import Altered, Bury, DeadlineBound, Desk, Enqueue, Failure, Finish, Operation, Relatives, Value, refused

pytestmark = pytest.mark.feature("BQ35")


def members(desk: Desk, key: str) -> set[str]:
    return {member.decode() for member in desk.redis.smembers(key)}


def places(desk: Desk, *jobs: str) -> list[str]:
    """The one place of each job."""
    found = [desk.places(job) for job in jobs]
    assert all(len(each) == 1 for each in found), dict(zip(jobs, found, strict=True))
    return [next(iter(each)) for each in found]


def revived(desk: Desk, *jobs: str) -> list[tuple[str, str | None]]:
    reply = desk.run(revive(desk, *jobs))
    assert reply.result == "done"
    return [(item.result, item.holder) for item in reply.items]


def dead_family(desk: Desk) -> Desk:
    """A parent that died, its child and the child's child."""
    bury(desk.enqueue("p").enqueue("child", needs=("p",)).enqueue("grandchild", needs=("child",)), "p")
    assert places(desk.swept().swept(), "p", "child", "grandchild") == ["dead"] * 3
    return desk


def requeued(desk: Desk, *jobs: str) -> Desk:
    """A person requeues them."""
    altered(desk, "requeue", "dead", *jobs)
    return desk


def finish_all(desk: Desk, worker: str = "w") -> list[str]:
    """Claim and finish until nothing can be claimed: who ran, in that order."""
    ran: list[str] = []
    while found := desk.claim(worker, 20):
        ran += [job.lease.job for job in found]
        desk.finished(*[job.lease for job in found]).sweep()
    return ran


# -- the script, on raw keys


def test_rule_25_a_child_that_was_buried_with_its_parent_waits_for_it_again(desk: Desk) -> None:
    assert members(dead_family(desk), desk.keys.lost("p")) == {"child"} and members(desk, desk.keys.lacks("child")) == {"p"}
    assert desk.redis.exists(desk.keys.needs("child"), desk.keys.feeds("p")) == 0
    for key in (desk.keys.lost("p"), desk.keys.lacks("child")):
        assert int(desk.redis.pexpiretime(key)) == desk.now_ms + 90 * 86_400_000
    desk.queue.events.on()
    assert revived(requeued(desk, "p"), "child", "grandchild", "p") == [("done", None), ("done", None), ("changed", None)]
    assert [event[b"job"] for _, event in desk.redis.xrange(desk.keys.events)] == [b"p", b"child", b"grandchild"]
    assert places(desk, "p", "child", "grandchild") == ["lane", "blocked", "blocked"]
    assert members(desk, desk.keys.needs("grandchild")) == {"child"} and members(desk, desk.keys.feeds("p")) == {"child"}
    assert members(desk, desk.keys.feeding) == {"p", "child"}
    assert int(desk.redis.pttl(desk.keys.needs("child"))) == -1 and not desk.redis.exists(desk.keys.lacks("child"))
    assert finish_all(desk) == ["p", "child", "grandchild"]


def test_a_child_of_which_another_parent_is_dead_stays_dead_until_that_is_requeued_too(desk: Desk) -> None:
    desk.enqueue("p1", "p2", "p3").enqueue("child", needs=("p1", "p2", "p3"))
    found = {job.lease.job: job.lease for job in desk.claim()}
    desk.did(Bury((Failure(found["p1"], "no"),))).sweep()
    assert members(desk, desk.keys.lacks("child")) == {"p1", "p2", "p3"}
    desk.did(Bury((Failure(found["p2"], "no"),))).finished(found["p3"]).sweep()
    assert members(desk, desk.keys.lacks("child")) == {"p1", "p2"}, "the end of p3 was heard"
    assert members(desk, desk.keys.lost("p2")) == {"child"}, "so is that of p2"
    assert revived(desk, "child") == [("orphan", "p1")]
    before = requeued(desk, "p1").dump()
    assert revived(desk, "child") == [("orphan", "p2")]
    changed = {key for key, value in desk.dump().items() if value != before.get(key)}
    assert {key.removeprefix(desk.keys.prefix).split(":")[0] for key in changed} == {"op"}
    assert revived(requeued(desk, "p2"), "child") == [("done", None)]
    assert members(desk, desk.keys.needs("child")) == {"p1", "p2"} and finish_all(desk)[-1] == "child"


def test_a_child_that_is_revived_twice_has_no_end_behind_it(desk: Desk) -> None:
    for _ in range(2):
        revived(requeued(bury(desk if desk.places("p") else desk.family(), "p").swept().tick(1), "p"), "child")
    assert places(desk, "child") == ["blocked"] and desk.run_hash("child").get("past", "") == ""


def test_a_revived_child_waits_for_its_own_time_where_its_parents_have_finished(desk: Desk) -> None:
    requeued(bury(desk.family(delay_ms=600_000), "p").swept(), "p")
    assert finish_all(desk) == ["p"] and revived(desk, "child") == [("done", None)]
    assert places(desk, "child") == ["due"] and finish_all(desk.swept(600_000)) == ["child"]


@pytest.mark.parametrize("again", [False, True], ids=["never sent again", "sent again"])
def test_rule_25_a_child_whose_revival_was_cut_off_stands_in_one_place(desk: Desk, again: bool) -> None:
    for writes in desk.each_cut():
        requeued(dead_family(desk), "p")
        operation = revive(desk, "child")
        desk.cut_off(operation, writes)
        assert not again or places(desk.did(operation), "child") == ["blocked"], writes
        desk.finished(desk.claim()[0].lease).swept()
        assert places(desk, "child", "grandchild") in (["dead", "dead"], ["lane", "dead"]), writes


@pytest.mark.parametrize("then", ["claims", "retries", "gives back", "looks"])
def test_rule_25_a_revival_cut_off_after_any_write_is_completed_by_the_next_wherever_the_child_is(desk: Desk, then: str) -> None:
    """The worker does what it is called after what is cut off; the script of that is never sent again."""
    for writes in desk.each_cut():
        requeued(dead_family(desk), "p")
        desk.finished(desk.claim()[0].lease).swept().cut_off(revive(desk, "child"), writes)
        held = desk.claim() if then != "looks" else []
        for job in held:
            if then == "retries":
                desk.retry(job.lease, delay_ms=500)
            elif then == "gives back":
                desk.release(job.lease)
        # The parent has finished; the script alone, or the whole walk.
        if writes % 2:
            assert revived(desk, "child") in ([("done", None)], [("changed", None)]), writes
        assert carried(desk, workflows.requeueing(desk.queue.model, "p")).left == 0
        wanted = {"claims": "active", "retries": "due"}.get(then, "lane") if held else "lane"
        assert places(desk, "child", "grandchild") == [wanted, "blocked"], writes
        assert names_of(desk, desk.keys.lacks("*")) == [], writes
        desk.later(500)
        ran = [job.lease.job for job in held] if then == "claims" else []
        desk.finished(*[job.lease for job in held if then == "claims"]).sweep()
        assert ran + finish_all(desk, "z") == ["child", "grandchild"], writes


def test_rule_25_what_led_to_a_child_goes_with_its_requeue(desk: Desk) -> None:
    bury(desk.enqueue("p", "q").enqueue("c1", "c2", "c3", needs=("p", "q")).enqueue("grandchild", needs=("c3",)), "p", "q")
    altered(requeued(desk.sweeps(4), "c1"), "discard", "dead", "c2")
    assert members(desk, desk.keys.lost("p")) == {"c3"}
    assert names_of(desk, desk.keys.lacks("*")) == ["c3", "grandchild"]
    requeued(desk, "p", "q", "c3")
    # It leads to one that is dead still.
    assert members(desk, desk.keys.lost("p")) == {"c3"} and revived(desk, "grandchild") == [("done", None)]
    assert names_of(desk, desk.keys.lacks("*")) == [] and members(desk, desk.keys.lost("c3")) == set()


def test_rule_25_a_child_whose_lacked_parents_have_all_finished_since_lacks_none(desk: Desk) -> None:
    """Those that had finished before its burial may be forgotten by now."""
    desk.enqueue("early", "late", "p").enqueue("child", needs=("early", "late", "p"))
    found = {job.lease.job: job.lease for job in desk.claim()}
    altered(desk.finished(found["early"]).buried(found["p"]).swept(), "requeue", "dead", "p")
    desk.redis.srem(desk.keys.lacks("child"), "p")
    desk.finished(found["late"]).swept().tick(60_000).redis.delete(desk.keys.done)
    assert revived(desk, "child") == [("done", None)] and places(desk, "child") == ["lane"]


def test_children_of_which_nothing_is_noted_wait_for_all_that_they_need(desk: Desk) -> None:
    dead_family(desk)
    # As an older engine has buried them, or after 90 days.
    desk.redis.delete(*map(desk.keys.lost, ("p", "child")), *map(desk.keys.lacks, ("child", "grandchild")))
    done = carried(desk, workflows.retrying(desk.queue.model, "grandchild", 100))
    assert (done.changed, done.left) == (3, 0)
    assert places(desk, "p", "child", "grandchild") == ["lane", "blocked", "blocked"]
    assert finish_all(desk) == ["p", "child", "grandchild"]


def test_a_job_that_has_the_id_of_an_earlier_child_is_no_child(desk: Desk) -> None:
    requeued(dead_family(desk), "child")
    desk.finished(*[job.lease for job in desk.claim()]).swept(600_000).swept().enqueue("child")
    done = carried(desk, workflows.cancelling(desk.queue.model, "p", 100))
    assert (done.changed, done.left) == (0, 0) and places(desk, "child") == ["lane"]


def test_a_child_of_a_parent_that_was_cancelled_stays_dead(desk: Desk) -> None:
    altered(desk.enqueue("p1", "p2").enqueue("child", needs=("p1", "p2")), "cancel", "waiting", "p1")
    assert revived(desk.swept(), "child") == [("orphan", "p1")]
    assert revived(desk.tick(60_000), "child") == [("orphan", "p1")], "nobody knows it any more"
    assert altered(desk, "requeue", "dead", "child")[0].done, "a person may still let it run without"
    assert places(desk, "child") == ["lane"]


def test_a_child_that_was_requeued_by_hand_and_died_by_itself_waits_for_nobody_again(desk: Desk) -> None:
    requeued(dead_family(desk), "child")
    requeued(bury(desk, "child").swept(), "p")
    assert revived(desk, "child") == [("changed", None)] and places(desk, "child") == ["dead"]


def test_a_child_whose_unique_key_another_job_has_by_now_stays_dead(desk: Desk) -> None:
    bury(desk.enqueue("p").enqueue("child", needs=("p",), unique="u"), "p")
    requeued(desk.swept().enqueue("other", unique="u"), "p")
    assert revived(desk, "child") == [("held", "other")] and finish_all(desk) == ["p", "other"]
    assert revived(desk, "child") == [("done", None)] and desk.redis.get(desk.keys.unique("u")) == b"child"
    assert finish_all(desk) == ["child"]


def test_a_revived_child_reads_what_its_finished_parents_have_left(desk: Desk) -> None:
    desk.enqueue("good", "bad").enqueue("child", needs=("good", "bad"))
    found = {job.lease.job: job.lease for job in desk.claim()}
    desk.did(Finish((found["good"],), values=(Value(0, b"7", 60_000, 1),))).did(Bury((Failure(found["bad"], "no"),))).sweeps(4)
    assert in_order(desk, desk.keys.keeping) == [], "a dead child reads nothing"
    assert revived(requeued(desk, "bad"), "child") == [("done", None)]
    (job,) = [job for job in desk.swept(600_000).claim() if job.lease.job == "bad"]
    child = desk.did(Finish((job.lease,), values=(Value(0, b"8", 60_000, 1),))).one("b")
    assert child.lease.job == "child" and b'"value":7' in child.left[1] and b'"value":8' in child.left[2]


def test_what_a_discarded_parent_led_to_is_forgotten(desk: Desk) -> None:
    altered(dead_family(desk), "discard", "dead", "p", "child", "grandchild")
    assert [key for key in desk.swept().dump() if key.split(":")[-2] in ("lost", "lacks")] == []


def test_keys_of_another_type_stop_no_sweep(desk: Desk) -> None:
    desk.enqueue("p", "q").enqueue("child", needs=("p", "q")).redis.set(desk.keys.lost("p"), "foreign")
    desk.redis.set(desk.keys.lacks("child"), "foreign")
    assert places(bury(desk, "p", "q").swept(), "child") == ["dead"] and desk.redis.get(desk.keys.lost("p")) == b"foreign"


def test_relatives_come_in_pages_and_callbacks_are_none(desk: Desk) -> None:
    desk.enqueue("p", on_success=Enqueue("", "main", b"1", b"", PLAIN))
    jobs = [f"c{at:04}" for at in range(1_500)]
    desk.enqueue(*jobs, needs=("p",))
    found, cursor, pages = set[str](), "", 0
    while pages == 0 or cursor:
        (item,) = desk.run(Relatives(("p",), (cursor,))).items
        found |= set(item.children)
        cursor, pages = item.more, pages + 1
        assert len(item.children) < 600
    assert found == set(jobs) and pages > 2
    assert 1 <= len(desk.run(Relatives(("p",) * 20, ("",) * 20)).items) < 20, "a reply is bounded"


# -- the methods of a queue


def stamped(desk: Desk, operation: Operation) -> Operation:
    return operation.stamped(desk.now_ms + 10_000) if isinstance(operation, DeadlineBound) else operation


def carried(desk: Desk, steps: Steps[Any], calls: int | None = None) -> Any:
    """Carry steps out, on the desk's time; only so many changes, then whoever makes them dies."""
    answer: Any = None
    try:
        while True:
            operation = steps.send(answer)
            assert isinstance(operation, Operation)
            if calls == 0 and hasattr(operation, "op_id"):
                return None
            calls = calls if calls is None or not hasattr(operation, "op_id") else calls - 1
            answer = desk.run(stamped(desk, operation))
    except StopIteration as end:
        return end.value


def diamond(desk: Desk) -> Desk:
    """`a` before `b1` and `b2`, `b3` beside `b1`, and `c` after all of these; `ready` has finished before."""
    finish_all(desk.enqueue("ready"))
    desk.enqueue("a").enqueue("b1", needs=("a", "ready")).enqueue("b2", needs=("a",))
    return desk.enqueue("b3", needs=("a", "b1")).enqueue("c", needs=("b1", "b2", "b3"))


def bury_a(desk: Desk) -> None:
    assert places(desk.buried(desk.one("g", limit=1).lease).sweeps(4), "a", "b1", "b2", "b3", "c") == ["dead"] * 5


@pytest.mark.parametrize("asked", ["a", "b2", "c"])
def test_a_workflow_is_the_same_from_any_of_its_jobs(desk: Desk, asked: str) -> None:
    found = carried(diamond(desk).enqueue("stranger"), workflows.looking(desk.queue.model, asked, 100))
    order = [job.id for job in found.jobs]
    assert sorted(order) == ["a", "b1", "b2", "b3", "c", "ready"] and order[-1] == "c"
    assert {job.id: job.needs for job in found.jobs}["c"] == ("b1", "b2", "b3")
    assert (found.counts, found.more) == ({"blocked": 4, "finished": 1, "waiting": 1}, False)
    bury_a(desk)
    again = carried(desk, workflows.looking(desk.queue.model, asked, 100))
    assert again.counts == {"dead": 5, "finished": 1} and {job.id: job.needs for job in again.jobs}["b3"] == ("a", "b1")
    few = carried(desk, workflows.looking(desk.queue.model, asked, 3))
    assert (len(few.jobs), few.more) == (3, True)
    assert carried(desk, workflows.looking(desk.queue.model, "nobody", 3)) is None


@pytest.mark.parametrize("how", ["requeue", "retry"])
def test_a_dead_parent_comes_back_with_all_that_was_buried_with_it(desk: Desk, how: str) -> None:
    bury_a(diamond(desk))
    if how == "requeue":
        done = carried(desk, workflows.requeueing(desk.queue.model, "a"))
        assert done == Altered("a", "done", "dead", children=4)
    else:
        done = carried(desk, workflows.retrying(desk.queue.model, "c", 100))
        assert (done.changed, done.left, done.more) == (5, 0, False)
    assert places(desk, "a", "b1", "b2", "b3", "c") == ["lane", *["blocked"] * 4]
    assert (ran := finish_all(desk))[0] == "a" and ran[-1] == "c" and len(ran) == 5


@pytest.mark.parametrize("how", ["requeue", "retry"])
@pytest.mark.parametrize("calls", range(5))
def test_a_walk_that_was_cut_off_goes_on_when_it_is_begun_again(desk: Desk, how: str, calls: int) -> None:
    bury_a(diamond(desk))
    model = desk.queue.model
    steps = {"requeue": lambda: workflows.requeueing(model, "a"), "retry": lambda: workflows.retrying(model, "c", 100)}
    assert carried(desk, steps[how](), calls) is None or calls == 4
    ran = [*finish_all(desk.swept())]
    assert len(ran) == min(calls, 1) + [0, 0, 2, 3, 4][calls]
    carried(desk, steps[how]())
    assert sorted(ran + finish_all(desk)) == ["a", "b1", "b2", "b3", "c"]


def test_a_requeue_of_one_that_is_held_or_unknown_touches_no_child(desk: Desk) -> None:
    bury(desk.enqueue("p", unique="u").enqueue("child", needs=("p",)), "p")
    done = carried(desk.swept().enqueue("other", unique="u"), workflows.requeueing(desk.queue.model, "p"))
    assert (done.result, done.holder, done.children) == ("held", "other", 0)
    assert carried(desk, workflows.requeueing(desk.queue.model, "nobody")).state == "gone"
    assert places(desk, "p", "child") == ["dead", "dead"]


def test_children_that_stay_dead_are_counted(desk: Desk) -> None:
    bury(desk.enqueue("p1", "p2").enqueue("child", needs=("p1", "p2")), "p1", "p2")
    done = carried(desk.swept(), workflows.requeueing(desk.queue.model, "p1"))
    assert (done.result, done.children, done.left) == ("done", 0, 1)
    assert carried(desk, workflows.requeueing(desk.queue.model, "p2")).children == 1


@pytest.mark.parametrize("asked", ["a", "c"])
def test_a_workflow_is_cancelled_children_first(desk: Desk, asked: str) -> None:
    held = diamond(desk).one()
    done = carried(desk, workflows.cancelling(desk.queue.model, asked, 100))
    assert (done.changed, done.left, done.more) == (5, 0, False)
    assert desk.finish(held.lease) == [("stale", "cancelled")]
    assert in_order(desk.sweeps(3), desk.keys.dead) == in_order(desk, desk.keys.blocked) == [], "no child was buried"
    again = carried(desk, workflows.cancelling(desk.queue.model, asked, 100))
    assert (again.changed, again.left) == (0, 0)


def test_a_cancel_that_was_cut_off_leaves_parents_that_run(desk: Desk) -> None:
    carried(diamond(desk), workflows.cancelling(desk.queue.model, "a", 100), 2)
    assert [desk.places(job) for job in ("a", "b1", "c")] == [{"lane"}, {"blocked"}, {"ended"}]
    done = carried(desk, workflows.cancelling(desk.queue.model, "a", 100))
    assert (done.changed, done.left) == (3, 0)


def test_one_call_moves_at_most_a_hundred_and_few_parents(desk: Desk) -> None:
    bury(desk.enqueue("p").enqueue(*[f"c{at:03}" for at in range(250)], needs=("p",)), "p")
    while desk.sweep().sleep_ms == 0:
        pass
    sizes, steps = list[int](), workflows.requeueing(desk.queue.model, "p")
    answer: Any = None
    with pytest.raises(StopIteration) as end:
        while True:
            operation: Any = steps.send(answer)
            sizes += [len(operation.jobs)] if type(operation).__name__ == "Revive" else []
            answer = desk.run(stamped(desk, operation))
    assert end.value.value.children == 250 and max(sizes) == 100 and sum(sizes) == 250
    assert desk.redis.zcard(desk.keys.blocked) == 250


# -- on real queues


def handlers(ran: list[str], bad: set[str]) -> Handlers:
    made = Handlers()

    @made("step")
    def step(job: Any) -> None:
        ran.append(job.id)
        if job.id in bad:
            raise ValueError("no")

    return made


@pytest.mark.parametrize("shards", [None, 4])
def test_of_a_whole_queue_and_of_one_with_shards(ironclaim_url: str, shards: int | None) -> None:
    with Queue("flows", url=ironclaim_url, shards=shards) as queue:
        job = {"key": "acme", "attempts": 1}
        for id, needs in {"a": [], "b": ["a"], "c": ["b"]}.items():
            queue.enqueue("step", None, id=id, needs=needs, **job)  # type: ignore[arg-type]
        queue.enqueue("step", None, id="other", key="else")
        ran: list[str] = []
        Worker(queue, handlers(ran, {"a"})).run(burst=True)
        found = queue.workflows.get("c")
        assert found is not None and found.counts == {"dead": 3} and [each.id for each in found.jobs] == ["a", "b", "c"]
        done = queue.dead.requeue("a", with_children=True)
        assert (done.done, done.children, done.left) == (True, 2, 0)
        Worker(queue, handlers(ran, {"b"})).run(burst=True)
        assert [id for id in ran if id != "other"] == ["a", "a", "b"]
        assert queue.workflows.retry("c").changed == 2
        changed = queue.workflows.cancel("b")
        assert (changed.changed, changed.left) == (2, 0)
        assert [queue.jobs.state(id) for id in "bc"] == ["cancelled", "cancelled"]
        refused(Malformed, None, queue.workflows.get, "a", limit=0)
        refused(Malformed, None, queue.dead.requeue, "a", with_children=1)


@pytest.mark.parametrize("model", [models.Bridge(), models.Bull()], ids=["bridge", "bull"])
def test_other_formats_refuse_it_before_they_change_anything(ironclaim_url: str, model: Any) -> None:
    with Queue("flows", model, url=ironclaim_url) as queue:
        id, ran = queue.enqueue("step", None, attempts=1).job, list[str]()
        Worker(queue, handlers(ran, {id})).run(burst=True)
        assert queue.jobs.state(id) == "dead"
        for call in (
            *(lambda: queue.dead.requeue(id, with_children=True), lambda: queue.workflows.get(id)),
            *(lambda: queue.workflows.cancel(id), lambda: queue.workflows.retry(id)),
        ):
            refused(UnsupportedFeature, "does not keep which jobs need each other", call)
        assert queue.jobs.state(id) == "dead" and queue.dead.requeue(id).done
