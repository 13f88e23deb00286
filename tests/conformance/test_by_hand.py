"""A queue changed by hand: cancelling, removing, cleaning, obliterating, pausing."""

import pytest

from engine import Queue
from engine.ops.looks import Count
from tests.conformance.desk import ModelDesk
from tests.conformance.models import ALL, each

HOUR_MS = 3_600_000


def test_a_job_is_cancelled(desk: ModelDesk) -> None:
    lease = desk.put("active").take("b")["active"].lease
    desk.put("waiting").put("delayed", delay_ms=5_000)
    for state in ("waiting", "delayed", "active"):
        assert desk.queue.jobs.cancel(desk.ids[state]).done
        assert desk.queue.jobs.state(desk.ids[state]) == "cancelled"
        again = desk.queue.jobs.cancel(desk.ids[state])
        assert (again.result, again.state, again.unknown) == ("changed", "cancelled", False)
        assert str(again) == f"{desk.ids[state]}: nothing was done, it is cancelled"
    for nobody in (desk.queue.jobs.cancel("99999"), desk.queue.dead.requeue("99999")):
        assert nobody.unknown and not nobody.done
        assert str(nobody) == "99999: nothing was done, the queue knows no such job"
    assert desk.finish(lease) == [("stale", "cancelled")]
    assert desk.run(desk.extend_operation(lease)).items == (("cancelled", 0),)
    desk.tick(6_000).sweep()
    assert desk.take() == {} and not any(labels for state, labels in desk.listed().items() if state != "done")


def test_a_job_is_removed_from_wherever_it_stands_but_not_from_its_worker(desk: ModelDesk) -> None:
    jobs = desk.one_of_each().queue.jobs
    for state in ("waiting", "delayed", "dead", "finished"):
        assert jobs.remove(desk.ids[state]).done
        assert not any(state in found for found in desk.listed().values())
    assert jobs.remove(desk.ids["active"]).result == "changed" and desk.state("active") == "active"
    assert desk.queue.dead.discard(desk.ids["dead"]).result == "changed"


def test_a_delayed_job_runs_now(desk: ModelDesk) -> None:
    desk.put("j", delay_ms=HOUR_MS).wakes()
    assert desk.queue.jobs.run_now(desk.ids["j"]).done and desk.wakes() == 1
    assert list(desk.take()) == ["j"] and desk.queue.counts().delayed == 0


def test_old_jobs_are_cleaned_and_young_ones_stay(desk: ModelDesk) -> None:
    desk.put("old", "older").tick(HOUR_MS).put("young")
    assert desk.queue.clean("waiting", older_than_ms=HOUR_MS // 2) == 2
    assert list(desk.listed()["waiting"]) == ["young"]
    assert desk.put("later", delay_ms=HOUR_MS).queue.drain() == 1 and desk.queue.drain(delayed=True) == 1
    desk.put("dead").bury("dead")
    assert desk.queue.dead.clear() == 1 and not any(desk.listed().values())


def test_a_queue_is_obliterated(desk: ModelDesk) -> None:
    desk.one_of_each()
    settings = desk.keys.settings
    desk.queue.workers.set_concurrency("w", 3)
    desk.queue.workers.pause("w")
    assert set(desk.redis.hkeys(settings)) == {b"version", b"c:w", b"p:w"}
    (before,) = desk.listed()["active"]
    assert desk.queue.obliterate() is False and desk.listed()["active"] == [before]
    assert desk.queue.obliterate(force=True) is True and not any(desk.listed().values())
    counts = desk.queue.counts()
    assert (counts.finished, counts.buried) == (0, 0) and set(desk.redis.hkeys(settings)) <= {b"version"}
    if desk.queue.model.name != "lanes":
        assert desk.wire() == {}
    assert list(desk.put("fresh").take()) == ["fresh"]


def test_a_pause_of_the_queue_or_a_name_holds_and_ends(desk: ModelDesk) -> None:
    for name in ("*", "main"):
        job = desk.begin().put("before").take()["before"]
        call = desk.call(desk.pause_operation(name))
        assert desk.send(call).result == "done"
        before = desk.dump()
        assert desk.send(call).result == "repeated" and desk.dump() == before, name
        assert desk.put("during").claim() == [] and desk.state("during") == "waiting", name
        assert desk.finish(job.lease) == [("ok", "finished")]
        desk.wakes()
        assert desk.resume(name).wakes() == 1, name
        taken = desk.take()
        assert list(taken) == ["during"] and desk.finish(taken["during"].lease) == [("ok", "finished")]
        desk.pause(name, 5_000).put("after")
        for wait_ms, runs in ((0, []), (4_999, []), (1, ["after"])):
            assert list(desk.tick(wait_ms).swept().take()) == runs, (name, wait_ms)
        assert desk.redis.exists(desk.keys.rest) == 0, name


def test_a_pause_of_one_name_holds_that_name(desk: ModelDesk) -> None:
    desk.put("held").put("free", name="other").queue.pause("main")
    assert list(desk.take(classes=("main", "other"))) == ["free"]
    desk.queue.resume("main")
    assert list(desk.take(classes=("main", "other"))) == ["held"]


@pytest.mark.parametrize("spec", each({name: spec for name, spec in ALL.items() if not name.startswith(("bridge", "bananas"))}))
def test_two_queues_are_apart(queue: Queue) -> None:
    """Where the format knows several queues in one keyspace; Bridge and Bananas have one."""
    other = queue.model.sibling("other")
    queue.enqueue("main", {"label": "j"})
    assert queue.driver.run(other.call(Count())).waiting == 0
