"""What Bananas jobs of ours look like to every other client of the keyspace, in each layout."""

import json

import pytest

from tests.engine.helpers.waiting import DEADLINE_S
from tests.engine.models.bananas_desk import DAY_S, START, BananasDesk, desk

__all__ = ["desk"]


@pytest.mark.feature("BN01", "BN02", model="bananas")
@pytest.mark.parametrize(("priority", "level"), [(1, "low"), (3, "low"), (4, "normal"), (5, "normal"), (7, "high"), (10, "high")])
def test_a_job_has_the_bytes_that_go_writes(desk: BananasDesk, priority: int, level: str) -> None:
    desk.put("j", payload=b'{"u":1,"l":[],"big":9007199254740993}', priority=priority)
    routing, last = (',"routing_key":"default"', "") if desk.layout != "live" else ("", ',"routing_key":"default"')
    assert desk.text("j") == (
        '{"id":"j","name":"main","payload":{"u":1,"l":[],"big":9007199254740993},"status":"pending",'
        f'"priority":"{level}"{routing},"created_at":"{START}","updated_at":"{START}","attempts":0,"max_retries":3{last}}}'
    )
    assert desk.waiting(priority=level) == ["j"] and desk.ttl_s("bananas:job:j") is None


@pytest.mark.feature("BN03", model="bananas")
def test_a_routing_key_names_the_list(desk: BananasDesk) -> None:
    desk.put("j", route="gpu", priority=9)
    assert desk.ids("bananas:route:gpu:queue:high") == ["j"] and desk.body("j")["routing_key"] == "gpu"
    assert desk.put("k").ids("bananas:queue:normal" if desk.layout == "live" else "bananas:route:default:queue:normal") == ["k"]


@pytest.mark.feature("BN05", model="bananas")
def test_a_delayed_job_stands_in_the_scheduled_set_in_whole_seconds(desk: BananasDesk) -> None:
    assert desk.put("j", delay_ms=1500).scheduled() == {"j": desk.now_ms / 1000 + 2}
    body = desk.body("j")
    assert (body["status"], body["scheduled_for"]) == ("scheduled", "2100-01-01T01:06:41.5Z")
    assert desk.tick(1999).sweep().promoted == 0 and desk.waiting() == []
    assert desk.tick(1).sweep().promoted == 1 and desk.waiting() == ["j"] and desk.scheduled() == {}
    body = desk.body("j")
    assert body["status"] == "pending" and "scheduled_for" not in body


@pytest.mark.feature("BN13", model="bananas")
def test_jobs_of_one_second_become_claimable_in_the_order_of_their_making(desk: BananasDesk) -> None:
    jobs = [f"j{number}" for number in (5, 3, 11, 1, 7, 2, 10, 4, 8, 0, 9, 6)]
    assert desk.put(*jobs, delay_ms=1000).tick(1000).sweep().promoted == 12 and desk.waiting() == jobs


@pytest.mark.feature("BN07", model="bananas")
def test_a_claim_moves_the_id_to_processing_and_leaves_the_job_as_it_is(desk: BananasDesk) -> None:
    text = desk.go("g").text("g")
    (leased,) = desk.take()
    assert (leased.lease.job, leased.payload, leased.options.attempts) == ("g", b'{"u":1}', 3)
    assert desk.processing() == ["g"] and desk.waiting() == [] and desk.text("g") == text


@pytest.mark.feature("BN02", "BN04", model="bananas")
def test_priorities_are_strict_over_all_routes_of_a_worker(desk: BananasDesk) -> None:
    places = (("gpu", "low"), ("default", "low"), ("mail", "normal"), ("gpu", "high"), ("default", "high"))
    for number, (route, level) in enumerate(places):
        desk.go(f"j{number}", route=route, priority=level)
    desk.go("other", route="other", priority="high")
    taken = [desk.take(1, routes=("gpu", "mail", "default"))[0].lease.job for _ in range(5)]
    assert sorted(taken[:2]) == ["j3", "j4"] and taken[2] == "j2" and sorted(taken[3:]) == ["j0", "j1"]
    assert desk.take(routes=("gpu", "mail", "default")) == [] and desk.waiting("other", "high") == ["other"]


def test_routes_of_one_priority_take_turns(desk: BananasDesk) -> None:
    for number in range(20):
        desk.go(f"g{number}", route="gpu").go(f"m{number}", route="mail")
    first = [leased.lease.job for leased in desk.take(10, routes=("gpu", "mail"))]
    assert sorted(first) == sorted([f"g{number}" for number in range(5)] + [f"m{number}" for number in range(5)])
    # Each claim begins with another route, so that single claims take turns as well.
    assert {desk.tick(1).take(1, routes=("gpu", "mail"))[0].lease.job[0] for _ in range(4)} == {"g", "m"}


@pytest.mark.feature("BN23", model="bananas")
def test_a_worker_for_some_priorities_takes_those_lists_alone(desk: BananasDesk) -> None:
    desk.go("high", priority="high").go("normal").go("low", priority="low")
    assert [leased.lease.job for leased in desk.take(priorities=(1, 3))] == ["low"]
    assert [leased.lease.job for leased in desk.take(priorities=(4, 10))] == ["high", "normal"]


@pytest.mark.feature("BN09", "BN14", "BN15", model="bananas")
def test_a_completed_job_lives_for_a_day_and_its_result_for_an_hour(desk: BananasDesk) -> None:
    (leased,) = desk.put("j").take()
    heard = desk.redis.pubsub()
    heard.subscribe("bananas:result:notify:j")
    assert (heard.get_message(timeout=DEADLINE_S) or {})["type"] == "subscribe"
    assert desk.tick(1000).succeed(leased.lease, b'{"ok":true}') == ("ok", "finished")
    assert (heard.get_message(timeout=DEADLINE_S) or {})["data"] == b"ready"
    heard.close()
    assert desk.processing() == [] and desk.body("j")["status"] == "completed"
    assert desk.body("j")["updated_at"] == "2100-01-01T01:06:41Z" and desk.body("j")["created_at"] == START
    told = {"status": "completed", "completed_at": "2100-01-01T01:06:41Z", "duration_ms": "12"}
    assert desk.result("j") == {**told, "result": '{"ok":true}'}
    assert DAY_S - 60 < (desk.ttl_s("bananas:job:j") or 0) <= DAY_S and 3540 < (desk.ttl_s("bananas:result:j") or 0) <= 3600


@pytest.mark.feature("BN14", model="bananas")
def test_what_returns_nothing_leaves_a_result_without_one(desk: BananasDesk) -> None:
    desk.put("j").succeed(desk.take()[0].lease)
    assert set(desk.result("j")) == {"status", "completed_at", "duration_ms"}


@pytest.mark.feature("BN10", "BN11", model="bananas")
def test_a_failed_job_waits_two_and_four_seconds_and_is_dead_after_the_third_run(desk: BananasDesk) -> None:
    desk.put("j")
    for failures, wait_s in ((1, 2), (2, 4)):
        (leased,) = desk.take()
        assert leased.failures == failures - 1
        assert (leased.options.backoff, leased.options.backoff_ms, leased.options.jitter) == ("exponential", 2000, 0.0)
        assert desk.fail(leased.lease, "boom", wait_s * 1000)[0] == "ok"
        assert desk.scheduled() == {"j": desk.now_ms / 1000 + wait_s} and desk.processing() == []
        body = desk.body("j")
        assert (body["status"], body["attempts"], body["error"]) == ("pending", failures, "boom")
        assert desk.result("j") == {}, "nobody is told of a failure that is not the last one"
        desk.tick(wait_s * 1000).sweep()
    # A character of each length that UTF-8 has, the first of a plane among them.
    wide = "\u00e9\u20ac\U00010000\U00040000\U0010ffff"
    assert desk.fail(desk.one().lease, f'no "<way>" {wide}', 8000) == ("ok", "buried")
    assert desk.dead() == ["j"] and desk.scheduled() == {} and desk.processing() == []
    assert '"attempts":3' in desk.text("j") and rf'"error":"no \"\u003cway\u003e\" {wide}"' in desk.text("j")
    assert desk.body("j")["status"] == "failed" and "scheduled_for" not in desk.body("j")
    assert 6.9 * DAY_S < (desk.ttl_s("bananas:job:j") or 0) <= 7 * DAY_S
    result = desk.result("j")
    assert (result["status"], result["error"]) == ("failed", f'no "<way>" {wide}') and "result" not in result
    assert DAY_S - 60 < (desk.ttl_s("bananas:result:j") or 0) <= DAY_S


def test_a_job_of_the_python_client_keeps_its_spelling(desk: BananasDesk) -> None:
    before = desk.sdk("s", payload={"t": 'a "b" \u00fc', "n": [1.0, {}]}).text("s")
    (leased,) = desk.take()
    assert json.loads(leased.payload) == {"t": 'a "b" \u00fc', "n": [1.0, {}]} and b": " in leased.payload
    desk.tick(500).fail(leased.lease)
    stamps = '"updated_at": "2100-01-01T01:06:40.5Z","scheduled_for":"2100-01-01T01:06:42.5Z"'
    expected = before.replace('"updated_at": "2100-01-01T01:06:40+00:00"', stamps)
    assert desk.text("s") == expected.replace('"attempts": 0', '"attempts": 1').replace('"error": ""', '"error": "boom"')


def test_a_job_that_is_given_back_is_the_next_one(desk: BananasDesk) -> None:
    (leased,) = desk.put("a", "b").take(1)
    (reaped,) = desk.sweep_past(9_001)
    assert (reaped[0].job, reaped[0].fence) == ("a", leased.lease.fence)
    assert desk.waiting() == ["a", "b"] and desk.processing() == [] and desk.succeed(leased.lease)[0] == "stale"


@pytest.mark.feature("BN36", model="bananas")
def test_bytes_travel_behind_a_prefix_and_come_back_as_they_were(desk: BananasDesk) -> None:
    data = b"\x01\x0a\x03abc\xff\x00"
    assert desk.put("j", payload=data, serializer="raw").body("j")["payload"] == "proto:AQoDYWJj/wA="
    (leased,) = desk.take()
    assert (leased.payload, leased.options.serializer) == (data, "raw")
    (leased,) = desk.go("k", payload='"proto:no base64"').take()
    assert (leased.payload, leased.options.serializer) == (b'"proto:no base64"', "")


@pytest.mark.parametrize("key", ["bananas:queue:processing", "bananas:queue:scheduled", "bananas:queue:dead", "list"])
def test_a_key_of_another_type_is_named_before_anything_is_written(desk: BananasDesk, key: str) -> None:
    key = desk.list_key() if key == "list" else key
    desk.redis.hset(key, "a", "b")
    with pytest.raises(Exception, match=f"WRONGTYPE the key {key} is a hash, it must be a"):
        desk.put("j")
    assert desk.redis.keys("bananas:job:*") == []
