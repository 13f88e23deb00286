"""Rules 20 and 10: no more leases than a limit allows, no slot lost, no lane stuck while there is room, whatever the clock."""

from collections import Counter
from typing import Any

import pytest

from engine.validate import RATE_MAX
from tests.engine.desk import ENDS, HOUR_MS, LEASE_MS, START_MS, Desk
from tests.engine.helpers.lanes_state import check, hash_of, markers, members, parked, ready, take_markers
from tests.engine.ops import Bury, Drop, Failure, Finish, Lease, LeasedJob, Release, Retry


def jobs(desk: Desk, limit: int = 10, *, worker: str = "a", **options: Any) -> list[LeasedJob]:
    found = desk.claim(worker, limit, **options)
    check(desk)
    return found


def names(found: list[LeasedJob]) -> list[str]:
    return [job.lease.job for job in found]


# -- concurrency


@pytest.mark.feature("BQ22")
def test_rule_20_a_name_runs_at_most_so_many_jobs_at_once(desk: Desk) -> None:
    desk.set_limit("n:main", concurrency=3).enqueue(*(f"j{number}" for number in range(6)))
    first, second = jobs(desk.enqueue("k0", key="k"), worker="a", limit=2), jobs(desk, worker="b")
    assert (names(first), names(second)) == (["j0", "j1"], ["k0"]) and jobs(desk, worker="c") == []
    # Its lane stays ready: it is the class that is closed.
    assert (ready(desk), parked(desk)) == (["main"], {})
    assert members(desk, desk.keys.held("n:main")) == ["j0", "j1", "k0"]


def test_rule_20_a_limit_whose_counts_are_of_another_type_stops_no_other_name(desk: Desk) -> None:
    for limit, key in (("n:main", desk.keys.held("n:main")), ("n:other", desk.keys.rate("n:other"))):
        desk.set_limit(limit, **({"concurrency": 1} if limit == "n:main" else {"rate": 1, "per_ms": HOUR_MS}))
        desk.redis.set(key, "no counts")
    desk.enqueue("j0").enqueue("j1", name="other").enqueue("j2", name="third")
    assert names(desk.claim("a", 10, classes=("main", "other", "third"))) == ["j2"]
    desk.redis.delete(desk.keys.held("n:main"), desk.keys.rate("n:other"))
    assert names(desk.claim("a", 10, classes=("main", "other", "third"))) == ["j0", "j1"]


@pytest.mark.feature("BQ22")
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("target", ["n:main", "k:k", "k:*"])
def test_rule_20_each_end_of_a_lease_frees_its_slot(desk: Desk, target: str, how: str) -> None:
    desk.set_limit(target, concurrency=1).enqueue("j0", "j1", key="k")
    limit = "n:main" if target == "n:main" else "k:k"
    (job,) = jobs(desk)
    assert desk.run_hash("j0")["limits"].split() == [limit] and members(desk, desk.keys.held(limit)) == ["j0"]
    assert jobs(desk, worker="b") == []
    take_markers(desk)
    found = desk.end(how, job.lease, limit=1)
    check(desk, room=True)
    if how == "fused":
        assert names(found) == ["j1"]
    else:
        assert members(desk, desk.keys.held(limit)) == []
        assert (ready(desk), parked(desk), markers(desk)) == (["main/k"], {}, ["main"])
        # The job that came back was there before the other.
        assert names(jobs(desk, worker="c")) == (["j0"] if how in ("release", "reap") else ["j1"])
    assert len(members(desk, desk.keys.held(limit))) == 1


def test_rule_20_a_key_is_shared_by_the_lanes_of_several_names(desk: Desk) -> None:
    desk.set_limit("k:acme", concurrency=2)
    for name in ("mail", "sms", "push"):
        desk.enqueue(f"{name}0", f"{name}1", name=name, key="acme")
    both = jobs(desk, classes=("mail", "sms"))
    assert names(both) == ["mail0", "mail1"] and jobs(desk, worker="b", classes=("push",)) == []
    take_markers(desk)
    check(desk.finished(both[0].lease), room=True)
    assert take_markers(desk) == ["push", "sms"]
    assert names(jobs(desk, worker="b", classes=("push",))) == ["push0"]
    assert jobs(desk, worker="c", classes=("sms",)) == []
    check(desk, room=True)


def test_rule_20_every_key_without_a_limit_of_its_own_has_the_one_for_all(desk: Desk) -> None:
    desk.set_limit("k:*", concurrency=1).set_limit("k:big", concurrency=3)
    for key in ("big", "small", "tiny", ""):
        desk.enqueue(*(f"{key or 'none'}{number}" for number in range(4)), key=key)
    assert Counter(job[:-1] for job in names(jobs(desk, 20))) == {"big": 3, "small": 1, "tiny": 1, "none": 4}
    # Without its own the key has the one for all: three are in hand.
    assert jobs(desk.set_limit("k:big"), worker="b") == []
    check(desk, room=True)


def test_rule_20_a_lease_counts_against_its_name_and_its_key(desk: Desk) -> None:
    desk.set_limit("n:main", concurrency=2).set_limit("k:k", concurrency=1).enqueue("k0", "k1", key="k")
    found = jobs(desk.enqueue("l0", "l1", key="l"))
    assert names(found) == ["k0", "l0"]
    assert (members(desk, desk.keys.held("n:main")), members(desk, desk.keys.held("k:k"))) == (["k0", "l0"], ["k0"])
    assert names(jobs(desk.finished(found[1].lease))) == ["l1"]
    assert members(desk.finished(found[0].lease), desk.keys.held("k:k")) == [] and names(jobs(desk)) == ["k1"]


def test_rule_20_an_extension_moves_what_is_held_with_the_lease(desk: Desk) -> None:
    desk.set_limit("n:main", concurrency=2).set_limit("k:k", concurrency=1).enqueue("j", key="k")
    (job,) = jobs(desk)
    desk.tick(3_000).run(desk.extend_operation(job.lease))
    for limit in ("n:main", "k:k"):
        assert desk.redis.zscore(desk.keys.held(limit), "j") == START_MS + 3_000 + LEASE_MS
    check(desk)
    check(desk.did(desk.extend_operation(Lease("j", job.lease.fence + 1, job.lease.nonce), renewal=2)))


def test_rule_20_a_repeated_claim_takes_no_second_slot(desk: Desk) -> None:
    desk.set_limit("n:main", concurrency=2, rate=2, per_ms=1000).enqueue("j0", "j1")
    call = desk.call(desk.claim_operation(limit=1))
    desk.send(call)
    with desk.unchanged():
        assert names(list(desk.tick(10).send(call).jobs)) == ["j0"]
    assert names(jobs(desk, worker="b")) == ["j1"]


# -- changes of limits


def two_jobs_of_each(desk: Desk, keys: int) -> Desk:
    return desk.did(desk.enqueue_many_of(*((f"{number}-{at}", f"k{number}") for number in range(keys) for at in (0, 1))))


def all_claimed(desk: Desk) -> int:
    """Claim as long as there is something; how many jobs."""
    return sum(iter(lambda: len(desk.claim(limit=300)), 0))


@pytest.mark.parametrize(("change", "many"), [("raised", 1050), ("removed", 250), ("rate instead", 250)])
def test_rule_20_a_thousand_parked_keys_come_back_when_the_limit_for_all_changes(desk: Desk, change: str, many: int) -> None:
    assert all_claimed(two_jobs_of_each(desk.set_limit("k:*", concurrency=1), many)) == len(parked(desk)) == many
    check(desk, room=True)
    assert desk.claim() == []
    bounds: dict[str, Any] = {"raised": {"concurrency": 2}, "removed": {}, "rate instead": {"rate": 1, "per_ms": 1000}}[change]
    assert markers(desk.set_limit("k:*", **bounds)) == ["main"]
    sweeps = 0
    while (swept := desk.sweep()).sleep_ms == 0 and sweeps < 30:
        sweeps += 1
        desk.tick(1)
    assert swept.sleep_ms > 0 and sweeps < 15 and parked(desk) == {}
    check(desk)
    assert all_claimed(desk) == many


@pytest.mark.parametrize("change", ["raised", "removed"])
def test_rule_20_a_thousand_resting_keys_come_back_when_the_limit_for_all_changes(desk: Desk, change: str) -> None:
    two_jobs_of_each(desk.set_limit("k:*", rate=1, per_ms=HOUR_MS), 1100)
    assert all_claimed(desk) == 1100 and set(parked(desk).values()) == {"rest"}
    desk.set_limit("k:*", **({"rate": 2, "per_ms": HOUR_MS} if change == "raised" else {}))
    left = [len(parked(desk))]
    while desk.sweep().sleep_ms == 0:
        left.append(len(parked(desk)))
        desk.tick(1)
    assert left == [850, 600, 350, 100], "each call brings back at most 250, and the next one follows at once"
    assert parked(desk) == {}
    check(desk)
    assert all_claimed(desk) == 1100


def test_rule_20_a_keys_own_limit_brings_its_lanes_back_at_once_among_many_others(desk: Desk) -> None:
    two_jobs_of_each(desk.set_limit("k:*", concurrency=1), 250)
    assert len([job for _ in range(5) for job in desk.claim(limit=100)]) == 250
    desk.claim(limit=300)
    assert len(parked(desk)) == 250 and names(jobs(desk.set_limit("k:k249", concurrency=2))) == ["249-1"]


def test_rule_20_a_lowered_limit_waits_until_enough_have_ended(desk: Desk) -> None:
    found = jobs(desk.set_limit("k:k", concurrency=3).enqueue(*(f"j{number}" for number in range(6)), key="k"))
    desk.set_limit("k:k", concurrency=1)
    for job in found[:2]:
        assert jobs(desk.finished(job.lease)) == []
        check(desk, room=True)
    assert names(jobs(desk.finished(found[2].lease))) == ["j3"]


def test_rule_20_a_limit_that_is_defined_while_jobs_are_in_hand_counts_the_claims_after_it(desk: Desk) -> None:
    before = jobs(desk.enqueue(*(f"j{number}" for number in range(5)), key="k"), 2)
    (after,) = jobs(desk.set_limit("k:k", concurrency=1).set_limit("n:main", concurrency=5))
    assert members(desk, desk.keys.held("k:k")) == ["j2"]
    assert jobs(desk.finished(*(job.lease for job in before))) == [] and names(jobs(desk.finished(after.lease))) == ["j3"]


def test_rule_20_a_limit_that_is_removed_while_jobs_are_in_hand_leaves_nothing_behind(desk: Desk) -> None:
    desk.set_limit("k:k", concurrency=1).set_limit("n:main", concurrency=1).enqueue("j0", "j1", key="k")
    (first,) = jobs(desk)
    (second,) = jobs(desk.set_limit("k:k").set_limit("n:main"))
    assert desk.run_hash("j1").get("limits", "") == ""
    check(desk.finished(first.lease, second.lease))
    patterns = desk.keys.held("*"), desk.keys.parked_by("*"), desk.keys.rate("*")
    assert [desk.redis.keys(pattern) for pattern in patterns] == [[], [], []]


def test_rule_20_a_job_that_was_limited_before_counts_against_nothing_when_the_limit_is_gone(desk: Desk) -> None:
    (job,) = jobs(desk.set_limit("k:k", concurrency=1).enqueue("j0", key="k"))
    (again,) = jobs(desk.released(job.lease).set_limit("k:k"))
    assert "limits" not in desk.run_hash("j0")
    assert desk.finished(again.lease).redis.keys(desk.keys.held("*")) == []


# -- rates


def claimable_at(desk: Desk, upto_ms: int) -> int:
    """The first ms from now on at which a job can be claimed; it is claimed then."""
    for passed in range(upto_ms + 1):
        if jobs(desk):
            return desk.now_ms
        desk.tick(1)
        assert passed < upto_ms, "never"
    raise AssertionError("never")


@pytest.mark.feature("BQ23")
@pytest.mark.parametrize("target", ["n:main", "k:k"])
def test_rule_20_a_sliding_window_frees_a_place_exactly_its_length_after_each_claim(desk: Desk, target: str) -> None:
    desk.set_limit(target, rate=2, per_ms=100).enqueue(*(f"j{number}" for number in range(9)), key="k")
    assert len(jobs(desk, 1)) == 1 and len(jobs(desk.tick(30), 5)) == 1
    take_markers(desk)
    assert desk.later(69).sleep_ms == 1 and jobs(desk) == [] and desk.later(1).sleep_ms >= 0
    assert markers(desk) == ["main"] and len(jobs(desk)) == 1 and desk.now_ms == START_MS + 100
    assert claimable_at(desk, 40) == START_MS + 130 and claimable_at(desk, 80) == START_MS + 200


@pytest.mark.feature("BQ23")
@pytest.mark.parametrize("target", ["n:main", "k:k"])
def test_rule_20_a_fixed_window_begins_anew_at_multiples_of_its_length(desk: Desk, target: str) -> None:
    assert START_MS % 100 == 0
    desk.set_limit(target, rate=2, per_ms=100, window="fixed")
    assert len(jobs(desk.enqueue(*(f"j{number}" for number in range(9)), key="k").tick(90))) == 2
    take_markers(desk)
    assert jobs(desk.tick(9)) == [] and desk.later(1).sleep_ms >= 0 and markers(desk) == ["main"]
    assert len(jobs(desk)) == 2 and jobs(desk) == [] and jobs(desk.tick(99)) == [] and len(jobs(desk.tick(1))) == 2


EACH_WINDOW = pytest.mark.parametrize(
    ("target", "window"), [(target, window) for target in ("n:main", "k:k") for window in ("sliding", "fixed")]
)


@EACH_WINDOW
def test_rule_20_what_is_released_unstarted_gives_its_unit_back_inside_the_window(desk: Desk, target: str, window: str) -> None:
    first, second = jobs(desk.set_limit(target, rate=2, per_ms=HOUR_MS, window=window).enqueue("j0", "j1", "j2", key="k"))
    assert jobs(desk, worker="b") == []
    take_markers(desk)
    assert markers(desk.released(first.lease)) == ["main"] and names(jobs(desk, worker="b")) == ["j0"]
    # What has ended otherwise has used its place.
    assert jobs(desk.finished(second.lease), worker="c") == []


@EACH_WINDOW
def test_rule_20_what_is_given_back_after_it_was_started_has_used_its_place(desk: Desk, target: str, window: str) -> None:
    (first,) = jobs(desk.set_limit(target, rate=1, per_ms=HOUR_MS, window=window).enqueue("j0", "j1", key="k"))
    assert desk.release(first.lease, started=True) == [("ok", "released")] and jobs(desk, worker="b") == []
    (again,) = jobs(desk.tick(HOUR_MS), worker="b")
    assert (again.lease.job, again.failures, again.crashes) == ("j0", 0, 0), "uncharged, and before the others"


@EACH_WINDOW
def test_rule_20_each_run_of_a_job_uses_a_place_of_the_window(desk: Desk, target: str, window: str) -> None:
    """A run that fails, and one whose worker is gone, has happened: its place does not come back with the job."""
    (first,) = jobs(desk.set_limit(target, rate=3, per_ms=HOUR_MS, window=window).enqueue("j0", key="k", attempts=9))
    (second,) = jobs(desk.retried(first.lease, delay_ms=0), worker="b")
    assert second.failures == 1
    (third,) = jobs(desk.past(LEASE_MS + 1), worker="c")
    assert third.crashes == 1
    assert jobs(desk.retried(third.lease, delay_ms=0), worker="d") == [] and desk.places("j0") == {"lane"}
    assert names(jobs(desk.tick(HOUR_MS), worker="d")) == ["j0"]


def test_rule_20_a_released_place_of_a_key_lets_the_lanes_of_every_name_come_back(desk: Desk) -> None:
    desk.set_limit("k:acme", rate=1, per_ms=HOUR_MS).enqueue("mail0", name="mail", key="acme")
    (job,) = jobs(desk.enqueue("sms0", name="sms", key="acme"), classes=("mail",))
    assert jobs(desk, classes=("sms",)) == [] and parked(desk) == {"sms/acme": "rest"}
    take_markers(desk)
    desk.release(job.lease)
    assert take_markers(desk) == ["mail", "sms"] and names(jobs(desk, classes=("sms",))) == ["sms0"]


def test_rule_20_rate_and_slots_of_one_limit_both_hold(desk: Desk) -> None:
    desk.set_limit("k:k", concurrency=1, rate=2, per_ms=1000)
    (first,) = jobs(desk.enqueue(*(f"j{number}" for number in range(4)), key="k"))
    assert parked(desk) == {"main/k": "k:k"}
    (second,) = jobs(desk.finished(first.lease))
    check(desk.finished(second.lease), room=True)
    assert jobs(desk) == [] and parked(desk) == {"main/k": "rest"}
    (third,) = jobs(desk.tick(1000))
    assert jobs(desk.tick(1000), worker="b") == [] and len(jobs(desk.finished(third.lease))) == 1


def resting_lanes(desk: Desk, many: int) -> None:
    """Lanes whose windows end in 100 ms."""
    with desk.redis.pipeline(transaction=False) as pipe:
        pipe.hset(desk.keys.classes, "main", "")
        for number in range(many):
            pipe.zadd(desk.keys.lane(f"main/k{number}"), {f"j{number}": 3e15}).hset(desk.keys.parked, f"main/k{number}", "rest")
            pipe.zadd(desk.keys.rest, {f"l:main/k{number}": START_MS + 100})
        pipe.execute()


def test_rule_20_ten_thousand_lanes_whose_windows_end_together_come_back_by_hundreds(desk: Desk) -> None:
    resting_lanes(desk, 1000)
    desk.tick(100)
    promotions = 1
    while desk.sweep().sleep_ms == 0:
        promotions += 1
    assert promotions == 10 and (parked(desk), len(ready(desk))) == ({}, 1000)


def test_rule_20_a_window_keeps_no_more_entries_than_it_counts(desk: Desk) -> None:
    desk.set_limit("n:main", rate=3, per_ms=100).enqueue(*(f"j{number}" for number in range(20)))
    for _ in range(6):
        assert len(members(desk.finished(*[job.lease for job in jobs(desk)]), desk.keys.rate("n:main"))) == 3
        assert desk.redis.pexpiretime(desk.keys.rate("n:main")) == desk.now_ms + 100
        desk.tick(100)


# -- rule 10


@pytest.mark.parametrize(("target", "window", "ahead"), [
    *((target, window, 2) for target in ("n:main", "k:k") for window in ("sliding", "fixed")), ("n:main", "fixed", 1100),
    ("k:k", "sliding", 1100),
])  # fmt: skip
def test_rule_10_a_clock_that_steps_back_an_hour_blocks_a_rate_once(desk: Desk, target: str, window: str, ahead: int) -> None:
    desk.set_limit(target, rate=ahead, per_ms=1000, window=window)
    desk.run(desk.enqueue_many_of(*((f"j{number}", "k") for number in range(2 * ahead + 2))))
    assert len(desk.claim(limit=1)) == 1 and len(desk.claim(limit=ahead)) == ahead - 1 and desk.claim() == []
    desk.swept().tick(-HOUR_MS)
    claimed_in_ms: dict[int, int] = {}
    for _ in range(12):
        claimed_in_ms[desk.now_ms] = len(desk.swept().claim(limit=2000))
        desk.tick(250)
    check(desk)
    assert sum(list(claimed_in_ms.values())[:5]) >= ahead, "still blocked after a window"
    for start in sorted(claimed_in_ms):
        inside = sum(count for ms, count in claimed_in_ms.items() if start <= ms < start + 1000)
        assert inside <= (ahead if window == "sliding" else 2 * ahead)


def test_rule_10_the_highest_rate_comes_back_whole(desk: Desk) -> None:
    desk.set_limit("n:main", rate=RATE_MAX, per_ms=1000).enqueue("j")
    desk.redis.zadd(desk.keys.rate("n:main"), {str(number): desk.now_ms + HOUR_MS for number in range(RATE_MAX)})
    assert desk.claim() == [] and desk.redis.zcount(desk.keys.rate("n:main"), f"({desk.now_ms}", "+inf") == 0


def test_rule_10_a_rest_an_hour_ahead_ends_though_a_long_pause_was_once_made(desk: Desk) -> None:
    """What bounds a rest is its own window, not the longest one there ever was."""
    desk.pause("other", 24 * HOUR_MS).resume("other").set_limit("k:k", rate=1, per_ms=1000)
    desk.set_limit("n:sms", rate=1, per_ms=1000).enqueue("j0", "j1", key="k").enqueue("s0", "s1", name="sms")
    assert len(jobs(desk, classes=("main", "sms"))) == 2
    desk.swept().later(-HOUR_MS)
    # Told at once; the claims find that the windows are not over, and are told again when they are.
    assert take_markers(desk.swept()) == ["main", "sms"] and jobs(desk, classes=("main", "sms")) == []
    assert take_markers(desk.swept(1000)) == ["main", "sms"]
    assert sorted(names(jobs(desk, classes=("main", "sms")))) == ["j1", "s1"]


def test_rule_10_thousands_of_rests_an_hour_ahead_end(desk: Desk) -> None:
    resting_lanes(desk, 2500)
    # What was made to count as now is not looked at once more.
    desk.redis.zadd(desk.keys.rest, {f"w:n{number}": START_MS + 50 for number in range(300)})
    desk.swept().tick(-HOUR_MS)
    sweeps = 1
    while desk.sweep().sleep_ms == 0:
        sweeps += 1
        desk.tick(10)
    assert sweeps == 12 and parked(desk) == {}
    check(desk)


def test_rule_10_a_limit_that_was_changed_an_hour_ahead_keeps_no_sweep_busy(desk: Desk) -> None:
    desk.set_limit("k:*", concurrency=1).enqueue("j0", "j1", key="k")
    assert names(jobs(desk)) == ["j0"] and jobs(desk) == [] and parked(desk) == {"main/k": "k:k"}
    desk.swept().tick(-HOUR_MS)
    waits_ms = [desk.tick(10).sweep().sleep_ms for _ in range(3)]
    assert waits_ms[-1] > 0, f"the next sweep may wait, not {waits_ms}"


def test_rule_10_hundreds_of_limits_with_parked_lanes_an_hour_ahead_hear_of_a_change(desk: Desk) -> None:
    many = 250
    keys = sorted(f"k{number}" for number in range(many))
    # More than one sweep looks at, and first in its order: those whose own limit leaves them no room, whatever that for all says.
    own = keys[:120]
    desk.set_limit("k:*", concurrency=1)
    for key in own:
        desk.set_limit(f"k:{key}", concurrency=1)
    desk.run(desk.enqueue_many_of(*((f"{key}-{at}", key) for key in keys for at in (0, 1))))
    first = [job for _ in range(5) for job in desk.claim(limit=100)]
    desk.claim(limit=300)
    assert (len(first), len(parked(desk))) == (many, many)
    desk.swept().swept(-HOUR_MS).tick(10).set_limit("k:*", concurrency=2).sweeps(5, 10)
    assert set(parked(desk)) == {f"main/{key}" for key in own}
    check(desk)


def test_rule_10_held_slots_an_hour_ahead_come_down_with_their_leases(desk: Desk) -> None:
    (job,) = jobs(desk.set_limit("k:k", concurrency=1).enqueue("j0", "j1", key="k"))
    check(desk.swept().swept(-HOUR_MS), room=True)
    assert desk.redis.zscore(desk.keys.held("k:k"), "j0") == desk.now_ms + LEASE_MS
    assert [lease for lease, _ in desk.sweep_past(LEASE_MS + 1)] == [job.lease]
    assert names(jobs(desk)) == ["j0"]


# -- leaks


@pytest.mark.parametrize("how", ["finish", "retry", "bury", "release", "drop"])
def test_rule_20_the_copy_of_an_end_that_was_cut_off_anywhere_frees_its_slot(desk: Desk, how: str) -> None:
    for writes in desk.each_cut():
        lease = desk.set_limit("k:k", concurrency=1).enqueue("j0", "j1", key="k").one().lease
        failures, ends = (Failure(lease, "no", 60_000),), {"finish": Finish((lease,)), "release": Release((lease,))}
        ends |= {"retry": Retry(failures), "bury": Bury(failures), "drop": Drop((lease,), ("skipped",))}
        assert desk.cut(ends[how], writes).did(ends[how]).redis.exists(desk.keys.held("k:k")) == 0 and parked(desk) == {}, writes
    assert writes > 5


@pytest.mark.parametrize("target", ["n:main", "k:k"])
def test_rule_20_the_sweep_mends_a_slot_that_nobody_holds(desk: Desk, target: str) -> None:
    desk.set_limit(target, concurrency=1).enqueue("j0", "j1", key="k")
    desk.redis.zadd(desk.keys.held(target), {"ghost": desk.now_ms + LEASE_MS})
    assert desk.claim() == [] and take_markers(desk.past(LEASE_MS + 1).swept(1)) == ["main"]
    assert names(jobs(desk)) == ["j0"]
    check(desk, room=True)


def test_rule_20_a_sweep_brings_250_lanes_back_and_no_more(desk: Desk) -> None:
    for limit, many in (("k:a", 100), ("k:b", 100), ("k:c", 49), ("k:d", 2)):
        desk.redis.zadd(desk.keys.parked_by(limit), {f"main/{number}": number for number in range(many)})
        desk.redis.zadd(desk.keys.blocking, {limit: 0})
    assert desk.swept().redis.zrange(desk.keys.parked_by("k:d"), 0, -1) == [b"main/1"]


def test_rule_20_a_lane_that_waits_for_nothing_is_found_by_the_sweep(desk: Desk) -> None:
    (job,) = jobs(desk.set_limit("k:k", concurrency=1).enqueue("j0", "j1", key="k"))
    # Somebody ended the lease without freeing its slot.
    desk.redis.zrem(desk.keys.held("k:k"), "j0")
    desk.redis.zrem(desk.keys.active, "j0")
    # A park that was cut off has left the lane among the ready ones: it does not fall back there.
    desk.redis.zadd(desk.keys.ready("main"), {"main/k": 7})
    assert (parked(desk.swept()), ready(desk)) == ({}, ["main/k"]) and hash_of(desk, desk.keys.parked) == {}
    assert desk.redis.zscore(desk.keys.ready("main"), "main/k") == 7 and job.lease.job == "j0"
