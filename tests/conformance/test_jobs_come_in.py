"""Jobs that come in: there once, in order, not before they are due."""

import json
from dataclasses import replace
from typing import Any

from engine import Malformed, Queue, UnsupportedFeature, serializers
from engine.ops.jobs import Enqueue
from tests.conformance.declared import accepts
from tests.conformance.desk import ModelDesk, label_of
from tests.conformance.models import FOREIGN, only

#: Ids that callers may think of; a format may hold some of them.
OWN_IDS = ("mine-1", "4711", "1795233562980:120", "85f566d9-2c3d-4e5f-8a9b-0c1d2e3f4a5b")


def own_id(queue: Queue) -> str | None:
    """An id that a caller may give; None where the server gives all of them."""
    for id in OWN_IDS:
        try:
            return queue.model.check_id(id)
        except (Malformed, UnsupportedFeature):
            pass
    return None


def test_each_job_has_an_id_of_its_own_and_is_there_once(queue: Queue) -> None:
    jobs = [queue.enqueue("main", {"label": str(number)}) for number in range(20)]
    assert {job.result for job in jobs} == {"created"} and len({job.job for job in jobs}) == 20
    assert queue.counts().waiting == 20
    for job in jobs:
        assert queue.jobs.state(job.job) == "waiting"


def test_rule_13_the_next_job_to_be_due_wakes_a_worker(desk: ModelDesk) -> None:
    # Its claim says how long a worker may sleep. One that slept on would find the job a whole sweep too late.
    for label, delay_ms, wakes in (("first", 60_000, 1), ("later", 90_000, 0), ("before", 300, 1), ("between", 9_000, 0)):
        assert desk.put(label, delay_ms=delay_ms).wakes() == wakes, label
    assert desk.run(replace(desk.claim_operation(), sleep_max_ms=50_000)).sleep_ms <= 1_000


def test_rule_13_the_next_failed_job_to_be_due_wakes_a_worker(desk: ModelDesk) -> None:
    leased = desk.put("first", "later", "before").take()
    assert len(leased) == 3 and desk.wakes() <= 1
    for label, delay_ms, wakes in (("first", 60_000, 1), ("later", 90_000, 0), ("before", 300, 1)):
        assert desk.retry(leased[label].lease, delay_ms)[0] == "ok" and desk.wakes() == wakes, label


def test_a_second_job_of_the_same_id_is_a_duplicate(desk: ModelDesk) -> None:
    id = own_id(desk.queue)
    assert id is not None and desk.queue.enqueue("main", {"label": "j"}, id=id).created
    again = desk.queue.enqueue("main", {"label": "j"}, id=id)
    assert (again.result, again.state, again.job, again.holder) == ("duplicate", "waiting", id, id)
    (job,) = desk.claim()
    assert desk.queue.enqueue("main", {"label": "j"}, id=id).state == "active"
    assert desk.finished(job.lease).queue.enqueue("main", {"label": "j"}, id=id).state == "finished"
    assert desk.claim() == []


def test_rule_03_a_second_copy_of_an_enqueue_makes_nothing(desk: ModelDesk) -> None:
    job = desk.queue.model.new_id()
    operation = Enqueue(
        job, "main", b'{"label":"j"}', b"nonce--1", desk.enqueue_operation("x").options, not_after_ms=desk.now_ms + 10_000
    )
    call = desk.call(operation)
    first, again = desk.send(call), desk.send(call)
    assert (first.result, again.result, again.job) == ("created", "repeated", first.job)
    (leased,) = desk.claim()
    assert (desk.send(call).result, desk.finished(leased.lease).send(call).result) == ("repeated", "repeated")
    assert desk.tick(10_001).send(call).result in ("repeated", "refused")
    desk.tick(60_000)
    # A format that keeps finished jobs knows the id for ever.
    assert desk.send(call).result in ("refused", "duplicate") and desk.claim() == []


def test_rule_03_a_second_copy_of_many_makes_nothing(desk: ModelDesk) -> None:
    desk.enqueue("j1")
    call = desk.call(desk.enqueue_many_operation("j1", "j2", "j3", delays_ms=(0, 500), nonce=b"many----"))
    assert [item.result for item in desk.send(call).items] == ["duplicate", "created", "created"]
    before, again = desk.dump(), desk.send(call).items
    assert [(item.result, item.job) for item in again] == [("duplicate", "j1"), ("repeated", "j2"), ("repeated", "j3")]
    assert desk.dump() == before and [job.lease.job for job in desk.claim()] == ["j1", "j3"]


@only(FOREIGN)
def test_rule_03_a_duplicate_stays_one_when_the_other_job_is_not_known_any_more(desk: ModelDesk) -> None:
    for jobs in (("j1",), ("j1", "j2")):
        for job in desk.begin().enqueue(*jobs).claim():
            desk.finish(job.lease)
        call = desk.call(desk.enqueue_many_operation(*jobs, nonce=b"another-"))
        assert {item.result for item in desk.send(call).items} == {"duplicate"}
        # As when their time is over: nothing is left but what the engine has noted of the second call.
        kept = {desk.keys.sweep.encode(), *desk.redis.scan_iter(f"*new:{b'another-'.hex()}*")}
        desk.redis.delete(*(set(desk.redis.scan_iter()) - kept))
        assert {item.result for item in desk.send(call).items} == {"duplicate"} and desk.claim() == []
        # Another call may use the ids.
        third = desk.run(desk.enqueue_many_operation(*jobs, nonce=b"a third-"))
        assert {item.result for item in third.items} == {"created"}


def test_many_jobs_come_in_order(desk: ModelDesk) -> None:
    came = desk.queue.enqueue_many([{"name": "main", "payload": {"label": str(number)}} for number in range(250)])
    assert {job.result for job in came} == {"created"} and len({job.job for job in came}) == 250
    assert [label_of(job) for job in desk.claim(limit=250)] == [str(number) for number in range(250)]


def test_jobs_start_in_the_order_in_which_they_came(desk: ModelDesk) -> None:
    assert list(desk.put(*"abcdef").take(limit=2)) == ["a", "b"]
    assert list(desk.take("b", limit=10)) == ["c", "d", "e", "f"]


def test_a_delayed_job_does_not_start_before_its_time(desk: ModelDesk) -> None:
    by_time: list[dict[str, Any]] = [{"delay_ms": 5_000}, {"run_at_ms": desk.now_ms + 5_000}]
    for options in by_time:
        if not accepts(desk.begin().queue, **options):
            continue
        assert desk.put("later", **options).put("now").state("later") == "delayed", options
        assert list(desk.take()) == ["now"] and desk.tick(4_999).swept().claim() == []
        assert list(desk.tick(1).take()) == ["later"]


def test_delayed_jobs_of_one_time_start_in_their_order(desk: ModelDesk) -> None:
    assert list(desk.put(*"abcdefghijkl", delay_ms=5_000).tick(5_000).take(limit=50)) == [*"abcdefghijkl"]


def test_a_job_that_is_promoted_twice_is_there_once(desk: ModelDesk) -> None:
    assert desk.enqueue("j1", "j2", delay_ms=500).claim() == []
    call = desk.tick(2_000).call(desk.sweep_operation())
    assert desk.send(call).promoted == desk.send(call).promoted == 2 and desk.sweep().promoted == 0
    assert sorted(job.lease.job for job in desk.claim()) == ["j1", "j2"]


@only(FOREIGN)
def test_a_queue_of_which_nothing_is_ours_works_from_the_first_claim(desk: ModelDesk) -> None:
    for key in desk.enqueue("j1", "j2").enqueue("j3", delay_ms=500).redis.scan_iter("*ironclaim:*"):
        if not key.endswith((b":sweep", b":routes")):
            desk.redis.delete(key)
    jobs = desk.tick(2_000).claim()
    assert sorted(job.lease.job for job in jobs) == ["j1", "j2", "j3"]
    assert set(desk.finish(*[job.lease for job in jobs])) == {("ok", "finished")}


def test_a_more_urgent_job_starts_first(desk: ModelDesk) -> None:
    if not accepts(desk.queue, priority=10):
        return
    assert list(desk.put("low", priority=1).put("urgent", priority=10).take()) == ["urgent", "low"]


def test_the_last_in_starts_first_where_it_is_told_to(desk: ModelDesk) -> None:
    if not accepts(desk.queue, lifo=True):
        return
    assert list(desk.put("a", "b").put("c", lifo=True).take()) == ["c", "a", "b"]


def test_what_was_put_in_comes_out_or_is_refused_before_it_is_sent(desk: ModelDesk) -> None:
    for payload in ({"a": "text", "ä": "\u2028\U0001f600"}, {"n": 1}, {"deep": [1, None, {"x": 2.5}]}, "text", 7, None):
        try:
            desk.queue.enqueue("main", payload)
        except (Malformed, UnsupportedFeature):
            assert desk.queue.counts().waiting == 0
            continue
        (job,) = desk.claim()
        found = serializers.BUILT_IN.read(job.options.serializer, job.payload)
        told: Any = payload
        if isinstance(found, serializers.Texts):
            # A format without types: what comes out are texts.
            told = {name: value if isinstance(value, str) else json.dumps(value) for name, value in (told or {}).items()}
        assert found == told and job.name == "main"


def test_a_unique_job_keeps_another_one_out(desk: ModelDesk) -> None:
    if not accepts(desk.queue, unique="u"):
        return
    again = desk.put("first", unique="u").queue.enqueue("main", {"label": "second"}, unique="u")
    assert (again.result, again.holder) == ("duplicate", desk.ids["first"]) and list(desk.take()) == ["first"]


def test_an_option_that_the_model_declares_travels_with_the_job(desk: ModelDesk) -> None:
    values: dict[str, Any] = {
        **dict.fromkeys(("attempts", "timeout_ms", "result_ttl_ms", "crashes_max"), 7),
        **{"headers": {"description": "b"}, "timestamp_ms": 1_795_233_562_980, "lifo": True},
        **{"key": "acme", "unique": "u", "skip_on": ["ValueError"]},
    }
    kept = {**values, "headers": (("description", "b"),), "skip_on": ("ValueError",)}
    for option, given in values.items():
        if accepts(desk.begin().queue, **{option: given}):
            job = desk.put("j", **{option: given}).take()["j"]
            # Bull has one time of a job, and a producer may give it.
            own = option == "timestamp_ms" and job.enqueued_ms == given
            assert own or getattr(job.options, option) == kept[option], option
