"""Rules 18, 19 and 22: lanes of a class take turns, bands are strict, and who gets work is told."""

from typing import Any

import pytest

from tests.engine.helpers.lanes_state import BAND, check, hash_of, markers, members, parked, take_markers
from tests.engine.using import ENDS, LEASE_MS, START_MS, Desk, Finish


def fill(desk: Desk, lanes: dict[str, int], **options: Any) -> Desk:
    """So many jobs in each lane, named after it and numbered: `main/a` gets a0, a1, ..; `sms/a` gets sms-a0, sms-a1, .."""
    for lane, count in lanes.items():
        name, _, key = lane.partition("/")
        start = key if key and name == "main" else "-".join(filter(None, (name, key)))
        desk.enqueue(*numbered(start, 0, count - 1), name=name, key=key, **options)
    return desk


def claimed(desk: Desk, limit: int = 10, *, worker: str = "a", **options: Any) -> list[str]:
    found = [job.lease.job for job in desk.claim(worker, limit, **options)]
    check(desk)
    return found


def numbered(name: str, first: int, last: int) -> list[str]:
    return [f"{name}{number}" for number in range(first, last + 1)]


def test_rule_18_lanes_of_a_band_take_turns_of_ten(desk: Desk) -> None:
    assert claimed(fill(desk, {"main/a": 25, "main/b": 12, "main/c": 3}), 100) == [
        *(*numbered("a", 0, 9), *numbered("b", 0, 9), *numbered("c", 0, 2), *numbered("a", 10, 19)),
        *(*numbered("b", 10, 11), *numbered("a", 20, 24)),
    ]
    assert desk.redis.exists(desk.keys.ready("main")) == 0


def test_rule_18_turns_go_on_from_claim_to_claim(desk: Desk) -> None:
    fill(desk, {"main/a": 30, "main/b": 30})
    found = [claimed(desk, 10) for _ in range(4)]
    assert found == [numbered("a", 0, 9), numbered("b", 0, 9), numbered("a", 10, 19), numbered("b", 10, 19)]
    assert [claimed(desk, 1) for _ in range(4)] == [["a20"], ["b20"], ["a21"], ["b21"]]


def test_rule_18_a_lone_lane_is_emptied_at_once(desk: Desk) -> None:
    assert claimed(fill(desk, {"main": 45}), 100) == numbered("main", 0, 44)
    assert desk.redis.exists(desk.keys.ready("main"), desk.keys.lane("main")) == 0


def test_rule_18_a_lane_that_is_filled_again_and_again_starves_no_other(desk: Desk) -> None:
    """A lane that is emptied by each claim comes back at the present turn: behind one that has waited since before."""
    desk.enqueue("a0", key="a").enqueue("b0", key="b")
    found = []
    for number in range(1, 4):
        found += claimed(desk, 1)
        desk.enqueue(f"a{number}", key="a")
    assert "b0" in found[:2]


def test_rule_18_a_lane_that_comes_back_for_each_slot_starves_no_other(desk: Desk) -> None:
    fill(desk.set_limit("k:a", concurrency=1), {"main/a": 10, "main/b": 2})
    found, job = [], desk.claim(limit=1)[0]
    for _ in range(3):
        (job,) = desk.run(Finish((job.lease,), desk.claim_operation(limit=1))).claimed.jobs
        found.append(job.lease.job)
        check(desk, room=True)
    assert "b0" in found[:2]


def test_rule_18_a_lane_of_large_payloads_starves_no_other(desk: Desk) -> None:
    """1 MiB ends a claim in the middle of a visit: the lane has had its turn all the same."""
    desk.enqueue(*(f"a{number}" for number in range(6)), key="a", payload="x" * 500_000)
    assert claimed(desk.enqueue("b0", key="b")) == ["a0", "a1"] and claimed(desk)[0] == "b0"


def test_rule_17_a_claim_over_several_lanes_stops_at_1_mib_with_at_least_one_job(desk: Desk) -> None:
    for key in ("a", "b", "c"):
        desk.enqueue(key, key=key, payload="x" * 500_000)
    assert claimed(desk) == ["a", "b"] and markers(desk) == ["main"] and claimed(desk) == ["c"]


def test_rule_18_lanes_far_beyond_a_page_take_turns_in_their_order(desk: Desk) -> None:
    keys = [f"k{number:03d}" for number in range(120)]
    desk.run(desk.enqueue_many_of(*((f"{key}-{number}", key) for key in keys for number in (1, 2))))
    found = []
    for size in (7, 16, 17, 100, 100):
        found += claimed(desk, size)
    # A visit takes both jobs of a lane. Where the claim ends between them (the first and the third do), the second waits for all
    # other lanes.
    in_order, cut = [f"{key}-{number}" for key in keys for number in (1, 2)], ["k003-2", "k020-2"]
    assert found == [job for job in in_order if job not in cut] + cut


def test_rule_18_more_jobs_asked_than_there_are_in_many_lanes(desk: Desk) -> None:
    desk.run(desk.enqueue_many_of(*((f"j{number}", f"k{number:02d}") for number in range(40))))
    assert claimed(desk, 1000) == numbered("j", 0, 39) and markers(desk) == ["main"] and claimed(desk) == []


def test_rule_19_bands_are_strict_across_the_lanes_of_a_class(desk: Desk) -> None:
    desk.enqueue("a-low", "a-low2", key="a", priority=3).enqueue("b-mid", key="b", priority=5)
    desk.enqueue("a-high", key="a", priority=9).enqueue("c-low", key="c", priority=3).enqueue("b-top", key="b", priority=10)
    assert claimed(desk) == ["b-top", "a-high", "b-mid", "c-low", "a-low", "a-low2"]
    assert desk.redis.exists(desk.keys.ready("main")) == 0


def test_rule_19_a_visit_ends_where_the_next_job_has_a_lower_band_than_the_next_lane(desk: Desk) -> None:
    desk.enqueue("a1", "a2", key="a", priority=8).enqueue("a3", "a4", key="a", priority=4)
    desk.enqueue("b1", key="b", priority=8).enqueue("b2", key="b", priority=6).enqueue("b3", key="b", priority=4)
    # b goes on with b3, of the same band as what a has left: its visit has not ended by then.
    assert claimed(desk) == ["a1", "a2", "b1", "b2", "b3", "a3", "a4"]


def test_rule_19_a_job_of_a_better_band_brings_its_lane_ahead_at_once(desk: Desk) -> None:
    assert claimed(fill(desk, {"main/a": 3, "main/b": 3}), 1) == ["a0"]
    assert [claimed(desk.enqueue("urgent", key="a", priority=6), 1), claimed(desk, 1)] == [["urgent"], ["b0"]]


def test_rule_19_fifo_and_lifo_inside_lane_and_priority(desk: Desk) -> None:
    desk.enqueue("f1", "f2", key="a").enqueue("l1", "l2", key="a", lifo=True)
    assert claimed(desk.enqueue("h1", "h2", key="a", priority=6)) == ["h1", "h2", "l2", "l1", "f1", "f2"]


def test_rule_19_every_priority_is_a_band_of_its_own(desk: Desk) -> None:
    for priority in range(1, 11):
        desk.enqueue(f"p{priority}", key=f"k{priority}", priority=priority)
        desk.enqueue(f"l{priority}", key=f"k{priority}", priority=priority, lifo=True)
    bands = [int(score) // BAND for _, score in desk.redis.zrange(desk.keys.ready("main"), 0, -1, withscores=True)]
    assert bands == list(range(10))
    assert claimed(desk, 100) == [f"{kind}{priority}" for priority in range(10, 0, -1) for kind in "lp"]


def test_rule_16_a_lane_keeps_its_bands_and_order_up_to_the_last_sequence(desk: Desk) -> None:
    desk.redis.set(desk.keys.seq, 2**48 - 5)
    for kind in (False, True):
        desk.enqueue(*(f"j{int(kind)}{priority}" for priority in (1, 10)), key="a", priority=5, lifo=kind)
    assert claimed(desk) == ["j110", "j11", "j01", "j010"]


def test_rule_18_a_turn_near_its_end_keeps_the_order_of_lanes(desk: Desk) -> None:
    """2^48 turns last for thousands of years; scores stay exact there."""
    desk.redis.hset(desk.keys.stats, "turn", str(2**48 - 3))
    fill(desk, {"main/a": 4, "main/b": 4}).enqueue("low", key="z", priority=1)
    assert [claimed(desk, 1) for _ in range(5)] == [["a0"], ["b0"], ["a1"], ["b1"], ["a2"]]
    assert hash_of(desk, desk.keys.stats)["turn"].isdigit() and claimed(desk, 10) == ["b2", "b3", "a3", "low"]


def test_rule_18_classes_of_one_claim_are_served_by_band_and_then_by_turn(desk: Desk) -> None:
    fill(desk, {"mail": 12, "sms": 12})
    assert claimed(desk.enqueue("urgent", name="sms", priority=9), 40, classes=("mail", "sms")) == [
        "urgent", *numbered("sms", 0, 8), *numbered("mail", 0, 9), *numbered("sms", 9, 11), *numbered("mail", 10, 11),
    ]  # fmt: skip


def test_rule_18_sixteen_classes_in_one_claim_all_get_their_turn(desk: Desk) -> None:
    names = tuple(f"n{number:02d}" for number in range(16))
    for name in names:
        for number in range(20):
            desk.enqueue(f"{name}-{number}", name=name, key=f"k{number:02d}")
    assert len(set(claimed(desk, 16 * 20, classes=names))) == 16 * 20 and claimed(desk, classes=names) == []


def test_rule_18_a_worker_never_gets_jobs_of_names_that_it_did_not_ask_for(desk: Desk) -> None:
    fill(fill(desk, {"mail": 2, "mailer": 2}, priority=10), {"sms": 2})
    assert claimed(fill(desk, {"sms/mail": 1}, priority=6), classes=("sms",)) == ["sms-mail0", "sms0", "sms1"]
    assert claimed(desk, classes=("unknown",)) == []


@pytest.mark.feature("BQ18")
def test_rule_18_exhausted_classes_do_not_use_up_a_claim(desk: Desk) -> None:
    """Classes whose one slot is taken leave their lanes in front of one that has work: their lanes cost no visit."""
    names = tuple(f"n{number:02d}" for number in range(16))
    for name in names[:15]:
        desk.set_limit(f"n:{name}", concurrency=1)
        for number in range(16):
            desk.enqueue(f"{name}-{number}", name=name, key=f"k{number:02d}", priority=9)
    found = claimed(desk.enqueue(*(f"last-{number}" for number in range(60)), name=names[15]), 50, classes=names)
    assert len(found) == 50 and [job for job in found if job.startswith("last")] == numbered("last-", 0, 34)


def test_rule_12_crashed_jobs_in_front_of_several_lanes_are_passed_by(desk: Desk) -> None:
    for key in ("a", "b", "c"):
        desk.enqueue(f"{key}-crashed", key=key)
    assert len(claimed(desk, worker="x")) == 3
    # Unmarked: a crash that is free.
    desk.sweep_past(LEASE_MS + 1)
    for key in ("a", "b", "c"):
        desk.enqueue(f"{key}-well", key=key)
    assert claimed(desk, crashed_max=1) == ["a-crashed", "a-well", "b-well", "c-well"]
    assert claimed(desk, worker="b", crashed_max=0) == []
    assert claimed(desk, worker="c", crashed_max=1) == ["b-crashed"] and claimed(desk, worker="d") == ["c-crashed"]


def test_rule_12_lanes_of_crashed_jobs_do_not_hide_the_lanes_behind_them(desk: Desk) -> None:
    """A worker that may take no more of them passes by a hundred lanes a claim: the next claim begins behind them."""
    desk.run(desk.enqueue_many_of(*((f"k{number:03d}-crashed", f"k{number:03d}") for number in range(300))))
    assert len(claimed(desk, 300, worker="x")) == 300
    desk.past(LEASE_MS + 1).enqueue("well", key="well")
    assert ["well"] in [claimed(desk, 1, crashed_max=0) for _ in range(4)]


def test_rule_12_a_lane_of_crashed_jobs_is_looked_through_once_a_claim(desk: Desk) -> None:
    """2,000 entries bound what one claim passes by (some 3 ms), however many visits it may make."""
    jobs = [f"j{number}" for number in range(3000)]
    desk.did(desk.enqueue_many_operation(*jobs)).redis.mset({desk.keys.run(job): b"1  \0\0crashes 1:1" for job in jobs})
    desk.redis.config_resetstat()
    assert claimed(desk, 50, crashed_max=0) == []
    assert desk.redis.info("commandstats")["cmdstat_hmget"]["calls"] < 2500


def test_rule_17_corrupt_and_orphan_entries_in_several_lanes_are_cleared_on_the_way(desk: Desk) -> None:
    for key in ("a", "b", "c"):
        desk.enqueue(f"{key}-corrupt", f"{key}-orphan", *(f"{key}{number}" for number in range(12)), key=key)
        desk.redis.setrange(desk.keys.job(f"{key}-corrupt"), 0, b"\xff")
        desk.redis.delete(desk.keys.job(f"{key}-orphan"))
    reply = desk.run(desk.claim_operation(limit=50))
    # Each lane is visited twice, because others wait.
    turns = [(key, number) for part in (range(10), range(10, 12)) for key in "abc" for number in part]
    assert [job.lease.job for job in reply.jobs] == [f"{key}{number}" for key, number in turns]
    assert sorted(reply.corrupt) == ["a-corrupt", "b-corrupt", "c-corrupt"]
    assert sorted(members(desk, desk.keys.dead)) == sorted(reply.corrupt)
    assert desk.redis.keys(desk.keys.lane("*")) == [] and desk.redis.exists(desk.keys.ready("main")) == 0
    check(desk)


def test_rule_17_hundreds_of_orphan_lanes_do_not_hide_the_job_behind_them(desk: Desk) -> None:
    desk.run(desk.enqueue_many_of(*((f"j{number}", f"k{number:03d}") for number in range(250))))
    desk.redis.delete(*(desk.keys.job(f"j{number}") for number in range(250)))
    desk.enqueue("well", key="z")
    for _ in range(3):
        found = claimed(desk, 1)
        if found:
            break
        assert take_markers(desk) == ["main"], "there is work that nobody is told of"
    assert found == ["well"]


def test_rule_18_a_lane_with_jobs_is_found_after_every_kind_of_call(desk: Desk) -> None:
    check(fill(desk.set_limit("k:b", concurrency=1), {"main/a": 4, "main/b": 4}))
    first, second, *_ = desk.claim(limit=5)
    check(desk, room=True)
    check(desk.retried(first.lease, delay_ms=100), room=True)
    check(desk.released(second.lease), room=True)
    check(desk.buried(desk.claim(limit=1)[0].lease), room=True)
    check(desk.swept(200), room=True)
    check(desk.past(LEASE_MS + 1), room=True)
    assert len(claimed(desk, 20)) == 4 and parked(desk) == {"main/b": "k:b"}


@pytest.mark.feature("BQ18")
def test_rule_18_a_claim_costs_the_same_with_ten_thousand_blocked_lanes(desk: Desk) -> None:
    """Commands that the script runs, with 10 and with 10,000 lanes that wait for a slot or for a window."""

    def commands(blocked: int) -> int:
        with desk.begin().set_limit("k:*", concurrency=1).redis.pipeline(transaction=False) as pipe:
            for number in range(blocked):
                lane, limit = f"main/k{number}", f"k:k{number}"
                pipe.zadd(desk.keys.lane(lane), {f"j{number}": 5 * BAND + 2**48})
                pipe.hset(desk.keys.parked, lane, limit if number % 2 else "rest")
                if number % 2:
                    pipe.zadd(desk.keys.parked_by(limit), {lane: START_MS}).zadd(desk.keys.blocking, {limit: START_MS})
                else:
                    pipe.zadd(desk.keys.rest, {f"l:{lane}": START_MS + 60_000})
            pipe.execute()
        fill(desk, {"main/free": 1}).redis.config_resetstat()
        assert [job.lease.job for job in desk.claim()] == ["free0"]
        stats: Any = desk.redis.info("commandstats")
        own = ("cmdstat_info", "cmdstat_config|resetstat")
        return sum(command["calls"] for name, command in stats.items() if name not in own)

    assert commands(10) == commands(10_000)


# -- rule 22


def test_rule_22_an_enqueue_marks_its_class_once(desk: Desk) -> None:
    assert take_markers(fill(desk, {"mail": 3, "sms/k": 1})) == ["mail", "sms"]


def test_rule_22_of_sixteen_enqueues_into_a_ready_lane_one_looks_whether_its_marker_is_there(desk: Desk) -> None:
    """Who took it may have died with it."""
    fill(desk, {"mail": 3})
    assert take_markers(desk) == ["mail"]
    marked: list[int] = []
    for sequence in range(4, 36):
        desk.enqueue(f"more{sequence}", name="mail")
        marked += [sequence] if take_markers(desk) else []
    assert marked == [16, 32]


def test_rule_22_a_claim_that_leaves_work_behind_marks_that_class_and_no_other(desk: Desk) -> None:
    take_markers(fill(desk, {"mail": 3, "sms": 3}))
    claimed(desk, 4, classes=("mail", "sms"))
    assert take_markers(desk) == ["sms"]
    claimed(desk, 2, classes=("mail", "sms"))
    assert take_markers(desk) == []


def test_rule_22_no_marker_for_what_a_limit_or_a_pause_keeps_from_being_claimed(desk: Desk) -> None:
    for name in ("full", "keyed", "paused"):
        fill(desk, {f"{name}/k": 3})
    take_markers(desk.set_limit("n:full", concurrency=1).set_limit("k:k", concurrency=2).pause("paused"))
    assert len(claimed(desk, classes=("full", "keyed", "paused"))) == 2 and take_markers(desk) == []
    # More of the same tells nobody of what is parked.
    assert take_markers(desk.did(desk.enqueue_operation("more", name="keyed", key="k"))) == []


@pytest.mark.parametrize("end", ENDS)
def test_rule_22_a_freed_slot_marks_each_class_that_gains(desk: Desk, end: str) -> None:
    desk.set_limit("k:k", concurrency=1).set_limit("n:mail", concurrency=1)
    for name in ("mail", "sms", "push", "other"):
        desk.enqueue(f"{name}0", f"{name}1", name=name, key="" if name == "other" else "k")
    job = desk.one(limit=1, classes=("mail",))
    assert [claimed(desk, classes=(name,)) for name in ("sms", "push")] == [[], []]
    assert parked(desk) == {"mail/k": "k:k", "sms/k": "k:k", "push/k": "k:k"}
    take_markers(desk)
    if end == "fused":
        # A claim of another class, for which nothing is left.
        claimed(desk, classes=("other",))
    elif end == "reap":
        take_markers(desk.past(LEASE_MS))
        desk.tick(1)
    if end == "reap":
        assert len(desk.sweep().leases) == 1
    else:
        desk.end(end, job.lease, classes=("other",))
    check(desk, room=True)
    assert parked(desk) == {} and set(take_markers(desk)) - {"other"} == {"mail", "sms", "push"}


def test_rule_22_a_sweep_marks_what_can_be_claimed(desk: Desk) -> None:
    take_markers(fill(desk, {"mail": 1, "sms": 1}).pause("sms"))
    assert take_markers(desk.swept()) == ["mail"] and take_markers(desk.swept()) == ["mail"]
