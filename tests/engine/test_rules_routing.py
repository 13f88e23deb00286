"""Rule 18 with targets: classes of one name apart from each other, the limits and pauses that they share, how workers learn of
new ones, and claims of a range of priorities. Raw keys."""

import json
from collections import Counter
from typing import Any

import pytest

from engine.errors import ScriptFault
from tests.engine.using import Count, Desk, EnqueueMany, ReadWorkerUpdates, check, hash_of, markers, ready, take_markers

ALL = ("main", "main@gpu")


def jobs(found: list[Any]) -> list[str]:
    return [job.lease.job for job in found]


def news_lists(desk: Desk) -> list[str]:
    return sorted(key.decode().rpartition(":")[2] for key in desk.redis.scan_iter(desk.keys.prefix + "news:*"))


@pytest.mark.feature("BN03", "BQ14")
def test_a_job_with_a_target_is_in_a_class_of_its_own(desk: Desk) -> None:
    target = '{"stack":["node"]}'
    operation = desk.enqueue_operation("j1", route="gpu", target=target, key="k")
    class_name = operation.class_name
    assert desk.run(operation).result == "created"
    assert hash_of(desk.enqueue("j2"), desk.keys.classes) == {"main": "", class_name: '{"route":"gpu","stack":["node"]}'}
    assert hash_of(desk, desk.keys.routed) == {"main": f" {class_name}"}
    assert ready(desk, class_name) == [f"{class_name}/k"] and take_markers(desk) == ["main", class_name]
    assert jobs(desk.claim(classes=("main",))) == ["j2"]
    leased = desk.one(classes=(class_name,))
    assert (leased.name, leased.class_name, leased.lane) == ("main", class_name, f"{class_name}/k")
    assert (leased.options.route, json.loads(leased.options.target)) == ("gpu", json.loads(target))
    check(desk)
    assert desk.finish(leased.lease) == [("ok", "finished")]


def test_a_failed_job_and_a_lost_one_come_back_to_their_class(desk: Desk) -> None:
    first, _ = desk.enqueue("j1", "j2", route="gpu").claim(classes=("main@gpu",))
    desk.retry(first.lease, delay_ms=10)
    assert ready(desk.past(9001).swept(), "main@gpu") == ["main@gpu"] and markers(desk) == ["main@gpu"]
    assert jobs(desk.claim(classes=("main",))) == [] and jobs(desk.claim(classes=("main@gpu",))) == ["j1", "j2"]


@pytest.mark.feature("BQ18")
def test_rule_18_jobs_of_others_in_front_cost_a_claim_nothing(desk: Desk) -> None:
    """BridgeMQ looks at the first 100 jobs and starves the one behind them; here other classes are not looked at."""
    desk.leased("first")
    desk.run(EnqueueMany(tuple(desk.enqueue_operation(f"other{at}", route="gpu", priority=10) for at in range(1000))))
    desk.enqueue("ours", priority=1)

    def calls() -> int:
        stats: Any = desk.redis.info("commandstats")
        return sum(entry["calls"] for name, entry in stats.items() if name not in ("cmdstat_info",))

    before = calls()
    assert jobs(desk.claim()) == ["ours"]
    behind = calls() - before
    desk.redis.delete(desk.keys.lane("main@gpu"), desk.keys.ready("main@gpu"))
    desk.enqueue("ours2", priority=1)
    before = calls()
    assert jobs(desk.claim()) == ["ours2"]
    assert calls() - before == behind, "as many commands with nothing in front"


@pytest.mark.feature("BQ22")
def test_rule_20_classes_of_one_name_share_its_slots(desk: Desk) -> None:
    found = desk.set_limit("n:main", concurrency=3).enqueue("a0", "a1").enqueue("g0", "g1", "g2", route="gpu").claim(classes=ALL)
    assert jobs(found) == ["a0", "a1", "g0"], "in one claim, of both"
    assert jobs(desk.claim("b", classes=ALL)) == [] and desk.redis.zcard(desk.keys.held("n:main")) == 3
    take_markers(desk.enqueue("a2"))
    assert markers(desk.finished(found[0].lease)) == ["main", "main@gpu"], "whoever may run either is told of the slot"
    assert len(desk.claim("b", classes=("main@gpu",))) == 1 and desk.claim("c", classes=("main",)) == []
    check(desk)


@pytest.mark.feature("BQ23")
def test_rule_20_classes_of_one_name_share_its_rate(desk: Desk) -> None:
    desk.set_limit("n:main", rate=2, per_ms=1000).enqueue("a0", "a1").enqueue("g0", "g1", route="gpu")
    assert len(desk.claim(classes=ALL)) == 2 and desk.claim("b", classes=ALL) == []
    take_markers(desk)
    assert set(markers(desk.swept(1000))) == {lane for name in ALL for lane in ready(desk, name)}
    assert len(desk.claim("b", classes=ALL)) == 2


@pytest.mark.feature("BQ24")
def test_rule_07_a_pause_of_a_name_holds_all_its_classes(desk: Desk) -> None:
    take_markers(desk.enqueue("a0").enqueue("g0", route="gpu").enqueue("s0", name="sms", route="gpu"))
    assert jobs(desk.pause("main").claim(classes=(*ALL, "sms@gpu"))) == ["s0"] and markers(desk.swept()) == []
    assert take_markers(desk.resume("main")) == ["main", "main@gpu"]
    assert desk.pause("main", 500).claim(classes=ALL) == []
    assert take_markers(desk.swept(500)) == ["main", "main@gpu"] and len(desk.claim(classes=ALL)) == 2


def test_rule_22_whoever_knows_no_better_is_told_of_a_new_class(desk: Desk) -> None:
    assert desk.sweep().version == 0
    desk.enqueue("j1")
    assert (desk.sweep().version, news_lists(desk)) == (0, []), "every worker with a handler knows the class of a name"
    desk.enqueue("j2", route="gpu").enqueue("j3", route="gpu")
    assert (desk.sweep().version, news_lists(desk)) == (1, ["0"])
    # One marker reaches all: each that takes it leaves it for the next.
    for _ in range(3):
        assert desk.redis.lpop(desk.keys.news(0)) == b"1"
        reply = desk.news(0)
        assert (reply.version, reply.targets) == (1, (("main@gpu", '{"route":"gpu"}'),))
        assert desk.redis.llen(desk.keys.news(0)) == 1
    assert desk.news(1).version == 1
    assert news_lists(desk) == ["0"], "nobody who knows the present version is woken"
    assert 0 < desk.redis.pexpiretime(desk.keys.news(0)) <= desk.now_ms + 60_000, "it does not lie there for ever"
    again = desk.call(ReadWorkerUpdates(0, "w"))
    assert desk.send(again) == desk.send(again) and desk.redis.llen(desk.keys.news(0)) == 1
    desk.run(desk.enqueue_many_of(("j4", "k")))
    desk.run(EnqueueMany((desk.enqueue_operation("j5", route="x"), desk.enqueue_operation("j6", route="x", key="k"))))
    assert desk.news(1).version == 2, "once a class, however many lanes of it begin"
    assert desk.redis.llen(desk.keys.news(1)) == 1


@pytest.mark.parametrize("bulk", [False, True])
def test_rule_01_an_enqueue_of_a_new_class_cut_off_anywhere(desk: Desk, bulk: bool) -> None:
    for writes in desk.each_cut():
        one = desk.enqueue_operation("j1", route="gpu")
        desk.cut(EnqueueMany((one,)) if bulk else one, writes).run(EnqueueMany((one,)) if bulk else one)
        assert [class_name for class_name, _ in desk.news().targets] == ["main@gpu"]
        assert desk.news().version >= 1 and desk.redis.llen(desk.keys.news(0)) == 1
        assert hash_of(desk, desk.keys.routed) == {"main": " main@gpu"}
        assert jobs(desk.claim(classes=("main@gpu",))) == ["j1"]


def test_settings_of_workers(desk: Desk) -> None:
    assert (desk.news().concurrency, desk.news().pause_ms) == (0, None)
    for field, value in (("c:*", 5), ("c:w", 2), ("p:w", 0)):
        assert desk.run(desk.set_worker_operation(field, value)).result == "done"
    assert hash_of(desk, desk.keys.settings) == {"version": "3", "c:*": "5", "c:w": "2", "p:w": "0 0"}
    assert (desk.news().concurrency, desk.news().pause_ms, desk.news().version) == (2, 0, 3)
    assert (desk.news(worker="other").concurrency, desk.news(worker="other").pause_ms) == (5, None)
    assert news_lists(desk) == ["0", "1", "2"]
    assert desk.did(desk.set_worker_operation("p:w", 1000)).tick(400).news().pause_ms == 600
    assert desk.tick(-100_000).news().pause_ms == 1000, "rule 10: not longer than it was meant"
    assert desk.tick(101_000).news().pause_ms is None
    assert desk.did(desk.set_worker_operation("c:w", None)).news().concurrency == 5


def test_a_queue_has_settings_of_at_most_10000_workers(desk: Desk) -> None:
    desk.redis.hset(desk.keys.settings, mapping={f"c:w{number}": 1 for number in range(10_000)})
    desk.refuses(desk.set_worker_operation("c:new", 2), "settings of more than 10000 workers")
    assert desk.did(desk.set_worker_operation("c:w7", 3)).news(worker="w7").concurrency == 3


def test_counts_of_some_classes(desk: Desk) -> None:
    desk.enqueue("a0", "a1").enqueue("g0", route="gpu", key="k")
    assert [desk.run(Count(classes)).waiting for classes in ((), ("main",), ("main@gpu",), ALL, ("@",))] == [3, 2, 1, 3, 0]


def test_a_queue_has_at_most_10000_classes(desk: Desk) -> None:
    desk.redis.hset(desk.keys.classes, mapping={f"c{at}": "" for at in range(9_999)})
    desk.enqueue("last", route="gpu")
    for operation in (desk.enqueue_operation("no", route="x"), EnqueueMany((desk.enqueue_operation("no", name="x"),))):
        desk.refuses(operation, "more than 10000 classes", ScriptFault)
    desk.enqueue("known", route="gpu")


# -- a range of priorities


def spread(desk: Desk) -> None:
    for priority in (10, 8, 5, 5, 2, 1):
        for key in ("k", ""):
            desk.enqueue(f"{priority}{key}{len(desk.dump())}", priority=priority, key=key)


def priorities(found: list[Any]) -> list[int]:
    return [job.options.priority for job in found]


@pytest.mark.feature("BN23")
@pytest.mark.parametrize(("least", "most", "expected"), [
    (9, 10, [10, 10]), (5, 8, [8, 8, 5, 5, 5, 5]), (1, 1, [1, 1]), (3, 4, []), (6, 7, []), (1, 9, [8, 8, 5, 5, 5, 5, 2, 2, 1, 1]),
])  # fmt: skip
def test_a_claim_of_a_range_takes_it_from_behind_better_jobs(desk: Desk, least: int, most: int, expected: list[int]) -> None:
    spread(desk)
    take_markers(desk)
    assert priorities(desk.claim(limit=50, priorities=(least, most))) == expected
    check(desk)
    assert markers(desk) == ["main"], "what it has left is for others"
    left = Counter([10, 10, 8, 8, 5, 5, 5, 5, 2, 2, 1, 1]) - Counter(expected)
    assert priorities(desk.claim("b", limit=50)) == sorted(left.elements(), reverse=True)
    check(desk)


@pytest.mark.feature("BN02")
def test_rule_19_a_range_keeps_the_order_of_lanes_and_jobs(desk: Desk) -> None:
    """Three lanes, of which one has the best job; a limit of two jobs a claim."""
    for key in ("a", "b", "c"):
        desk.enqueue(*(f"{key}{at}" for at in range(2)), key=key, priority=4)
    desk.enqueue("b-good", key="b", priority=9)
    seen = [job for _ in range(3) for job in jobs(desk.claim(limit=2, priorities=(3, 5)))]
    assert sorted(seen) == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert all(seen.index(f"{key}0") < seen.index(f"{key}1") for key in "abc")
    assert jobs(desk.claim()) == ["b-good"]


def test_a_claim_of_a_range_finds_its_job_behind_many_lanes_of_others(desk: Desk) -> None:
    desk.run(EnqueueMany(tuple(desk.enqueue_operation(f"o{at}", key=f"k{at}", priority=9) for at in range(300))))
    assert jobs(desk.enqueue("ours", key="k250", priority=2).claim(priorities=(1, 3))) == ["ours"]
    assert len(desk.claim(limit=400)) == 300
    check(desk)
