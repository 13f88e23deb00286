"""Rules 7 and 26: what is done by hand names the state that it saw, is done once, and touches no newer job."""

from typing import Any

from engine import Queue, models
from tests.conformance.desk import STATES, ModelDesk, label_of
from tests.conformance.models import FOREIGN, only
from tests.engine.desk import LEASE_MS
from tests.engine.ops import AdminAction, Bury, Era, Extend, Failure, Forget, ReportRunTimes, Retry, RunTimes, SetRetention

HOUR_MS = 3_600_000


def changed_keys(desk: ModelDesk, before: dict[str, Any]) -> set[str]:
    after = desk.dump()
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


# -- jobs one by one


def test_rule_26_a_running_job_loses_its_token_at_once(desk: ModelDesk) -> None:
    (job,) = desk.put("j").claim("a")
    (told,) = desk.alter("cancel", "active", "j")
    assert (told.done, told.state) == (True, "active")
    assert desk.run(Extend((job.lease,), 1, LEASE_MS, desk.now_ms + 3000)).items == (("cancelled", 0),)
    assert desk.finish(job.lease) == [("stale", "cancelled")]
    assert desk.run(Retry((Failure(job.lease, "boom", 0),))).items == (("stale", "cancelled"),)
    assert desk.run(Bury((Failure(job.lease, "boom"),))).items == (("stale", "cancelled"),)
    assert desk.state("j") == "cancelled" and desk.claim("b") == [] and desk.sweep_past(LEASE_MS + 1) == []
    assert not any(desk.listed().values())
    assert desk.tick(30_001).redis.exists(desk.keys.run(desk.ids["j"])) == 0


def test_rule_26_a_claim_that_is_sent_again_does_not_lease_what_was_cancelled(desk: ModelDesk) -> None:
    call = desk.put("j1", "j2").call(desk.claim_operation())
    assert len(desk.send(call).jobs) == 2
    desk.alter("cancel", "active", "j1")
    assert [label_of(job) for job in desk.send(call).jobs] == ["j2"]


#: What may be done to jobs of which states.
ACTIONS: dict[AdminAction, tuple[str, ...]] = {
    "cancel": ("waiting", "delayed", "active"), "remove": ("dead", "finished"), "run_now": ("delayed",),
    "discard": ("dead",), "requeue": ("dead",),
}  # fmt: skip


def test_rule_07_a_job_that_is_in_another_state_by_now_is_left_alone(desk: ModelDesk) -> None:
    desk.one_of_each()
    for action, names in ACTIONS.items():
        for name in names:
            others, before = [job for job in STATES if job != name], desk.dump()
            operation = desk.alter_operation(action, name, *others, "nobody")
            told = [(item.result, item.state) for item in desk.run(operation).items]
            assert told == [("changed", job) for job in (*others, "gone")], (action, name)
            assert changed_keys(desk, before) == {desk.keys.op(operation.op_id)}, (action, name)


def test_rule_07_a_second_copy_changes_nothing_and_a_late_one_is_refused(desk: ModelDesk) -> None:
    for action, (name, *_) in ACTIONS.items():
        call = desk.begin().one_of_each().call(desk.alter_operation(action, name, name))
        first = desk.send(call)
        assert first.result == "done" and first.items[0].done, action
        before, again = desk.dump(), desk.send(call)
        assert (again.result, again.items) == ("repeated", first.items)
        assert changed_keys(desk, before) == set(), action
        late = desk.call(desk.alter_operation("cancel", "active", "active"))
        before = desk.tick(10_001).dump()
        assert desk.send(late).result == "refused"
        assert changed_keys(desk, before) == set(), action


@only(FOREIGN)
def test_what_is_done_by_hand_takes_each_entry_of_a_job_along(desk: ModelDesk) -> None:
    """As programs that promote it twice leave them."""
    actions: dict[AdminAction, str] = {"cancel": "waiting", "discard": "dead", "requeue": "dead"}
    for action, state in actions.items():
        desk.begin().put("j")
        if state == "dead":
            desk.bury("j")
        lists = [key for key, (_, found, _) in desk.wire().items() if found == [desk.ids["j"].encode()]]
        for key in lists:
            desk.redis.lpush(key, desk.ids["j"])
        desk.wakes()
        assert desk.alter(action, state, "j")[0].done and not desk.redis.exists("none", *lists), (action, lists)
        assert desk.wakes() == (action == "requeue")


def test_rule_05_a_failed_run_that_buried_is_told_so_again_after_the_requeue(desk: ModelDesk) -> None:
    (job,) = desk.put("j", attempts=1).claim("a")
    assert desk.retry(job.lease) == ("ok", "buried") and desk.alter("requeue", "dead", "j")[0].done
    assert desk.retry(job.lease) == ("repeated", "buried") and desk.state("j") == "waiting"


# -- many jobs


def test_clean_removes_what_is_old_enough_and_counts_what_stays(desk: ModelDesk) -> None:
    desk.put("old1", "old2").put("due", delay_ms=HOUR_MS).tick(2_000).put("young")
    for name, removed, kept in (("waiting", 2, 1), ("delayed", 1, 0)):
        reply = desk.run(desk.clean_operation(name, 1_000))
        assert (reply.removed, reply.kept) == (removed, kept)
    assert desk.listed()["waiting"] == ["young"] and desk.listed()["delayed"] == []
    desk.bury("young")
    desk.tick(2_000).put("young2").bury("young2")
    reply = desk.run(desk.clean_operation("dead", 1_000))
    assert (reply.removed, reply.kept) == (1, 1) and desk.listed()["dead"] == ["young2"]
    desk.put("fine").finish(desk.claim()[0].lease)
    assert desk.run(desk.clean_operation("finished", 1_000)).removed == 0
    assert desk.run(desk.clean_operation("finished")).removed == 1


def test_clean_removes_no_more_than_asked_and_goes_on_behind_what_stays(desk: ModelDesk) -> None:
    call = desk.call(desk.put(*(f"j{number}" for number in range(5))).clean_operation("waiting", most=2))
    reply = desk.send(call)
    assert (reply.removed, reply.kept, reply.ordered) == (2, 0, desk.queue.model.name == "lanes")
    again = desk.send(call)
    assert (again.result, again.removed) == ("repeated", 2)
    assert desk.run(desk.clean_operation("waiting", offset=1)).removed == 2 and list(desk.take()) == ["j2"]


@only(FOREIGN)
def test_a_sweep_keeps_the_dead_within_their_bounds_a_hundred_at_a_time(desk: ModelDesk) -> None:
    def keep(**bounds: int) -> None:
        assert desk.run(SetRetention(tuple(bounds.items()), **desk.identity())).result == "done"

    for label in ("d1", "d2", "d3"):
        desk.put(label).bury(label)
        desk.tick(1_000)
    keep(dead_max=3)
    assert desk.swept().listed()["dead"] and len(desk.listed()["dead"]) == 3
    keep(dead_max=1)
    desk.sweep()
    assert len(desk.listed()["dead"]) == 1
    keep(dead_age_ms=HOUR_MS)
    assert len(desk.swept(HOUR_MS - 5_000).listed()["dead"]) == 1 and desk.swept(10_000).listed()["dead"] == []
    many = [f"j{number:03}" for number in range(120)]
    for part in (many[:60], many[60:]):
        desk.put(*part).bury(*part)
    keep(dead_max=10)
    assert [desk.sweep().sleep_ms > 0 for _ in range(3)] == [False, True, True] and len(desk.listed()["dead"]) == 10


@only(FOREIGN)
def test_a_wire_without_a_list_of_finished_jobs_has_the_last_thousand(desk: ModelDesk) -> None:
    done = f"{desk.keys.prefix}done"
    if desk.finished(desk.put_and_claim("first").lease).redis.exists(done):
        desk.redis.zadd(done, {f"old{number}": number for number in range(1_099)})
        desk.finished(desk.put_and_claim("last").lease)
        assert desk.redis.zcard(done) == 1_000


@only(FOREIGN)
def test_dead_entries_that_have_outlived_their_jobs_hold_up_no_retention_by_age(desk: ModelDesk) -> None:
    """As original programs leave them: their jobs expire, the lists have no bound, and a sweep reads a hundred entries."""
    many = [f"j{number:03}" for number in range(101)]
    for part in (many[:60], many[60:]):
        desk.put(*part).bury(*part)
    outlived = tuple(f":{desk.ids[label]}" for label in many[:100])
    desk.redis.delete(*(key for key in desk.redis.scan_iter(count=1000) if key.decode().endswith(outlived)))
    assert desk.run(SetRetention((("dead_age_ms", HOUR_MS),), **desk.identity())).result == "done"
    assert desk.swept(HOUR_MS - 5_000).state(many[-1]) == "dead"
    assert desk.swept(10_000).swept().listed()["dead"] == []


@only(FOREIGN)
def test_rule_07_what_came_after_the_era_stays(desk: ModelDesk) -> None:
    delays_ms = {"waiting": 0, "delayed": HOUR_MS}
    for name, delay_ms in delays_ms.items():
        desk.put(f"old-{name}", delay_ms=delay_ms)
    era = desk.run(desk.clean_operation("dead")).era
    assert era == Era(0, desk.now_ms)
    desk.tick(1_000)
    for name, delay_ms in delays_ms.items():
        desk.put(f"new-{name}", delay_ms=delay_ms)
        assert desk.run(desk.clean_operation(name, era=era)).removed == 1 and desk.listed()[name] == [f"new-{name}"]


def test_many_are_cleaned_and_drained_in_pieces(spec: models.Spec, ironclaim_url: str) -> None:
    with Queue("q", spec, url=ironclaim_url) as queue:
        queue.enqueue_many([{"name": "main", "payload": {"label": number}} for number in range(1_200)])
        queue.enqueue_many([{"name": "main", "payload": {"label": number}, "delay_ms": HOUR_MS} for number in range(20)])
        assert queue.clean("waiting", older_than_ms=HOUR_MS) == 0 and queue.clean("waiting", limit=100) == 100
        assert queue.drain() == 1_100 and queue.counts().delayed == 20 and queue.drain(delayed=True) == 20


@only(FOREIGN)
def test_pauses_whose_time_is_over_are_forgotten_by_a_sweep(desk: ModelDesk) -> None:
    assert desk.put("j").pause("main", 1_000).pause("*", 1_000).swept(999).claim() == []
    assert desk.swept(1).redis.exists(desk.keys.paused, f"{desk.keys.prefix}rest") == 0 and list(desk.take()) == ["j"]


@only(FOREIGN)
def test_rule_07_a_second_copy_of_an_obliteration_is_told_the_same_and_removes_nothing_new(desk: ModelDesk) -> None:
    desk.put("j").take()
    new = desk.identity
    for make in (Forget("begin", False, **new()), Forget("begin", True, **new()), Forget("end", True, **new())):
        call = desk.call(make)
        first = desk.send(call)
        before, again = desk.resume().put(make.op_id).dump(), desk.send(call)
        assert (again.result, again.era, again.more) == ("repeated" if make.force else "done", first.era, first.more)
        assert desk.dump() == before and first.busy == again.busy == (not make.force)


@only(FOREIGN)
def test_obliterate_leaves_nothing_but_what_workers_know(spec: models.Spec, ironclaim_url: str) -> None:
    desk = ModelDesk(ironclaim_url, spec)
    queue = desk.one_of_each().queue
    queue.schedules.put("s", "main", {}, every_ms=HOUR_MS)
    queue.pause("main")
    items = tuple(RunTimes(name, "ok", 2_000, 2_000, ((3, 1),)) for name in ("main", "other", "third"))
    desk.run(ReportRunTimes("a" * 16, 1, desk.now_ms + HOUR_MS, items))
    assert len([key for key in desk.dump() if ":took:" in key]) == len(items) and queue.obliterate() is False
    desk.redis.zadd(desk.keys.workers, {"gone": desk.now_ms - 1, "lives": desk.now_ms})
    assert desk.state("active") == "active" and queue.obliterate(force=True) is True
    assert desk.redis.zrange(desk.keys.workers, 0, -1) == [b"lives"]
    assert not any(desk.listed().values()) and desk.wire() == {}
    left = {key.removeprefix(desk.keys.prefix).partition(":")[0] for key in desk.dump() if key.startswith(desk.keys.prefix)}
    # Bridge keeps for a week how jobs have ended that others may need.
    assert left <= {"sweep", "settings", "op", "run", "new", "claim", "swept", "workers", "told", "gone"}
    assert queue.schedules.list() == () and list(desk.put("fresh").take()) == ["fresh"]
    desk.close()
