"""Rules 10 and 11: neither a clock that steps back nor a server that stands still may freeze leases or end them all at once."""

from typing import Any

import pytest

from tests.engine.helpers.fleet import Fleet
from tests.engine.using import HOUR_MS, LEASE_MS, Claim, Desk, Extend, LeasedJob, hash_of, zsets


def sweep_state(desk: Desk) -> dict[str, int]:
    return {field: int(value) for field, value in hash_of(desk, desk.keys.sweep).items()}


def active_until(desk: Desk) -> dict[str, int]:
    """Lease ends, counted from now."""
    return {job: int(until_ms) - desk.now_ms for job, until_ms in zsets(desk, [desk.keys.active])[0].items()}


def claim_for(desk: Desk, worker: str, lease_ms: int, limit: int = 1) -> list[LeasedJob]:
    return list(desk.run(desk.claim_operation(worker, limit, lease_ms)).jobs)


def fleet_of_two(desk: Desk, **settings: Any) -> tuple[Fleet, Any, Any]:
    """A worker that runs a job, and one that is idle."""
    fleet = Fleet(desk.enqueue("j1"), lambda job: None)
    first = fleet.start(**settings)
    assert fleet.run(1000, lambda: len(first.starts) == 1)
    return fleet, first, fleet.start(**settings)


def test_rule_10_the_queue_keeps_its_longest_lease_before_it_gives_one(desk: Desk) -> None:
    (short,) = claim_for(desk.enqueue("j1", "j2"), "a", 1500)
    assert sweep_state(desk)["max_lease_ms"] == 1500
    claim_for(desk, "b", 60_000)
    assert sweep_state(desk)["max_lease_ms"] == 60_000
    assert sweep_state(desk.did(desk.extend_operation(short.lease)))["max_lease_ms"] == 60_000
    # A claim that leases nothing says nothing about leases, nor does the extension of one that has ended.
    claim_for(desk, "c", 120_000)
    desk.finished(short.lease).did(Extend((short.lease,), 2, 120_000, desk.now_ms + 1_000))
    assert sweep_state(desk)["max_lease_ms"] == 60_000


def test_rule_10_also_an_extend_raises_it_first(desk: Desk) -> None:
    (job,) = claim_for(desk.enqueue("j1"), "a", 1500)
    assert desk.cut_off(desk.extend_operation(job.lease), 1)
    # Cut off after its first write: the length is there, the lease is not.
    assert sweep_state(desk)["max_lease_ms"] == LEASE_MS and active_until(desk) == {"j1": 1500}


def test_rule_10_a_sweep_after_a_step_back_brings_leases_to_their_longest_length_once(desk: Desk) -> None:
    desk.tick(2 * HOUR_MS).enqueue("j1", "j2").held().enqueue("later", delay_ms=HOUR_MS).swept().tick(-HOUR_MS)
    assert active_until(desk) == {"j1": LEASE_MS + HOUR_MS, "j2": LEASE_MS + HOUR_MS}
    assert active_until(desk.swept()) == {"j1": LEASE_MS, "j2": LEASE_MS}
    desk.later(4000)
    # Once: clamping again at each sweep would slide along with the clock.
    assert active_until(desk) == {"j1": LEASE_MS - 4000, "j2": LEASE_MS - 4000}
    assert {lease.job for lease, _ in desk.sweep_past(LEASE_MS - 4000 + 1)} == {"j1", "j2"}
    assert desk.places("later") == {"due"}, "due times are left alone"


def test_rule_10_more_leases_than_one_sweep_may_move_are_moved_by_the_next_at_once(desk: Desk) -> None:
    desk.tick(2 * HOUR_MS).enqueue(*[f"j{number}" for number in range(5)]).held().tick(-HOUR_MS)
    assert [desk.run(desk.sweep_operation(limit=2)).sleep_ms for _ in range(3)] == [0, 0, 1000]
    assert set(active_until(desk).values()) == {LEASE_MS}


def test_rule_10_a_step_back_clamps_the_time_of_the_last_sweep_and_the_time_without_reaping(desk: Desk) -> None:
    state = sweep_state(desk.tick(2 * HOUR_MS).enqueue("j1").held().swept().swept(LEASE_MS))
    assert state["no_reap_before_ms"] == desk.now_ms + LEASE_MS // 2, "a stall"
    state = sweep_state(desk.swept(-HOUR_MS))
    assert state["last_sweep_ms"] == desk.now_ms and state["no_reap_before_ms"] == desk.now_ms + LEASE_MS // 2


def test_rule_10_a_longer_lease_is_forgotten_when_its_last_user_is_gone(desk: Desk) -> None:
    (giant,) = claim_for(desk.enqueue("giant", "j1", "j2", "j3"), "g", 86_400_000)
    claim_for(desk, "a", 1500)
    assert sweep_state(desk.past(10_000))["max_lease_ms"] == 86_400_000, "it is held: a step back must not cut it short"
    assert active_until(desk)["giant"] == 86_400_000 - 10_000
    desk.finish(giant.lease)
    for _ in range(2):
        claim_for(desk, "a", 1500)
        desk.sweep_past(11_000)
    assert sweep_state(desk)["max_lease_ms"] == 1500


def test_rule_10_a_long_lease_that_is_still_held_is_not_cut_short_by_short_ones(desk: Desk) -> None:
    claim_for(desk.enqueue("long", *[f"j{number}" for number in range(40)]), "a", 60_000)
    for number in range(40):
        claim_for(desk, "b", 1500)
        assert active_until(desk.past(1000))["long"] == 60_000 - 1000 * (number + 1)


def test_rule_10_leases_are_not_cut_short_when_the_length_is_not_known(desk: Desk) -> None:
    desk.enqueue("j1").held().redis.hdel(desk.keys.sweep, "max_lease_ms", "recent_lease_ms")
    assert active_until(desk.swept()) == {"j1": LEASE_MS}


@pytest.mark.parametrize("killed", [True, False], ids=["its worker died", "its worker lives"])
def test_rule_10_a_queue_recovers_within_its_bound_from_a_step_of_an_hour(desk: Desk, killed: bool) -> None:
    """Computing with a clamp instead took 3,610 s."""
    fleet, first, other = fleet_of_two(desk.tick(2 * HOUR_MS))
    fleet.run(1500)
    fleet.step_clock(-HOUR_MS)
    first.alive = not killed
    fleet.run(LEASE_MS + 2000, lambda: len(other.starts) == 1)
    assert len(other.starts) == int(killed) and len(fleet.reaped) == int(killed)
    if not killed:
        fleet.run(3 * LEASE_MS)
        assert fleet.reaped == [] and first.lost == []


def test_rule_10_a_step_forward_ends_no_live_lease(desk: Desk) -> None:
    """It looks like a stall of an hour (rule 11)."""
    fleet = Fleet(desk, lambda job: None)
    desk.enqueue(*[f"j{number}" for number in range(12)])
    workers = [fleet.start() for _ in range(3)]
    assert fleet.run(2000, lambda: sum(len(worker.starts) for worker in workers) == 12)
    fleet.step_clock(HOUR_MS)
    fleet.run(30_000)
    assert fleet.reaped == [] and all(worker.lost == [] for worker in workers)


def test_rule_11_a_sweep_after_a_stall_reaps_nothing_for_half_a_lease(desk: Desk) -> None:
    assert (desk.enqueue("j1").held().swept().later(2 * LEASE_MS).leases, desk.places("j1")) == ((), {"active"})
    assert sweep_state(desk)["no_reap_before_ms"] == desk.now_ms + LEASE_MS // 2
    assert desk.sweep_past(LEASE_MS // 2 - 1) == []
    assert [lease.job for lease, _ in desk.tick(1).sweep().leases] == ["j1"]


@pytest.mark.parametrize(("gap_ms", "stalled"), [(LEASE_MS // 2, False), (LEASE_MS // 2 + 1, True)])
def test_rule_11_more_than_half_a_lease_between_two_sweeps_is_a_stall(desk: Desk, gap_ms: int, stalled: bool) -> None:
    assert (desk.enqueue("j1").held().past(LEASE_MS - 1000).later(gap_ms).leases == ()) is stalled


def test_rules_11_and_13_sweeps_that_always_come_late_reap_all_the_same(desk: Desk) -> None:
    """Else a lone worker whose handlers hold the interpreter lock would never get back what a dead one left."""
    desk.enqueue("j1").held().sweep()
    reaped = [[lease.job for lease, _ in desk.tick(LEASE_MS // 2 + 1000).sweep().leases] for _ in range(3)]
    assert reaped == [[], ["j1"], []]


def test_rule_11_who_was_not_heard_between_two_stalls_is_waited_for_again(desk: Desk) -> None:
    """Found by the simulator: the second stall began before the wait after the first one was over, and ended after it."""
    assert desk.enqueue("j1").held().swept().later(LEASE_MS // 2 + 500).leases == () and desk.later(1000).leases == ()
    assert desk.later(LEASE_MS // 2 + 500).leases == ()
    assert sweep_state(desk)["no_reap_before_ms"] == desk.now_ms + LEASE_MS // 2
    # Once: sweeps that come late now and then must reap in the end.
    assert [lease.job for lease, _ in desk.swept(1000).tick(LEASE_MS // 2 + 500).sweep().leases] == ["j1"]


def test_rule_11_the_shortest_lease_decides_what_a_stall_is_and_how_long_its_worker_is_waited_for(desk: Desk) -> None:
    claim_for(desk.enqueue("short", "long"), "a", 1500)
    claim_for(desk, "b", 60_000)
    assert desk.did(desk.sweep_operation(sleep_max_ms=300)).later(3000).leases == ()
    state = sweep_state(desk)
    assert (state["max_lease_ms"], state["least_lease_ms"]) == (60_000, 1500)
    # Three quarters of the gap, not half of the longest lease: nobody's 9 s wait for somebody's ten minutes.
    assert state["no_reap_before_ms"] == desk.now_ms + 3000 * 3 // 4
    assert [desk.later(ms).leases for ms in (1000, 1000, 249)] == [(), (), ()]
    assert [lease.job for lease, _ in desk.tick(1).sweep().leases] == ["short"]


def test_rule_11_a_short_lease_is_forgotten_with_its_last_user(desk: Desk) -> None:
    (job,) = claim_for(desk.enqueue("j1", "j2"), "a", 1500)
    claim_for(desk.finished(job.lease), "b", LEASE_MS)
    claim_for(desk.swept().past(10_000).enqueue("j3"), "b", LEASE_MS)
    assert sweep_state(desk.past(10_000))["least_lease_ms"] == LEASE_MS


def test_rule_11_no_sweep_before_means_no_stall(desk: Desk) -> None:
    assert len(desk.enqueue("j1").held().later(2 * LEASE_MS).leases) == 1


def test_rule_11_every_reply_lets_a_sweeper_sleep_until_reaping_is_allowed_again(desk: Desk) -> None:
    desk.enqueue("j1").held().swept().tick(2 * LEASE_MS)
    assert desk.run(desk.claim_operation("b")).sleep_ms == 0, "nobody knows of the stall yet"
    assert desk.run(desk.sweep_operation(sleep_max_ms=2000)).sleep_ms == 2000
    assert [desk.later(LEASE_MS // 2 - 300).sleep_ms, desk.run(desk.claim_operation("b")).sleep_ms] == [300, 300]
    assert desk.enqueue("soon", delay_ms=50).sweep().sleep_ms == 50


def test_rule_11_a_stall_is_remembered_by_a_sweep_that_is_cut_off(desk: Desk) -> None:
    for writes in desk.each_cut(1):
        desk.enqueue("j1").held().swept().tick(2 * LEASE_MS).cut_off(desk.sweep_operation(), writes)
        assert desk.later(100).leases == (), writes
        assert desk.places("j1") == {"active"}


def test_rule_11_a_sweeper_that_is_slower_than_the_shortest_lease_reaps_all_the_same(desk: Desk) -> None:
    """Its own interval, twice, is no stall; else a worker with short leases that died would leave them for ever."""
    claim_for(desk.enqueue("j1"), "a", 1500)
    assert [lease.job for lease, _ in desk.sweep_past(4000)] == ["j1"]


#: Of each lease the first tier has the shorter stall.
SLOW = [pytest.param(*one, marks=pytest.mark.slow) for one in ((LEASE_MS, 20_000), (1500, 1700))]


@pytest.mark.parametrize(("lease_ms", "stall_ms"), [(LEASE_MS, 7800), (1500, 1300), *SLOW])
def test_rule_11_after_a_stall_of_the_server_no_live_lease_is_reaped(desk: Desk, lease_ms: int, stall_ms: int) -> None:
    """With a whole lease and a third, 7 of 24 were reaped after 7.8 s. Every moment of the stall inside a renewal's third."""
    for started_ms in range(0, lease_ms // 3, lease_ms // 18):
        fleet = Fleet(desk.begin(), lambda job: None)
        desk.enqueue(*[f"j{number}" for number in range(24)])
        workers = [fleet.start(lease_ms=lease_ms) for _ in range(6)]
        assert fleet.run(2000, lambda fleet=fleet: sum(len(worker.starts) for worker in fleet.workers) == 24)
        fleet.run(started_ms)
        fleet.stall(stall_ms)
        fleet.run(stall_ms + 3 * lease_ms)
        assert fleet.reaped == [], started_ms
        assert set(active_until(desk)) == {f"j{number}" for number in range(24)}
        assert all(until_ms > 0 for until_ms in active_until(desk).values()), [worker.name for worker in workers]


def test_rule_11_a_worker_that_died_in_a_stall_is_reaped_when_it_is_over(desk: Desk) -> None:
    fleet, victim, other = fleet_of_two(desk)
    fleet.stall(7800)
    victim.alive = False
    fleet.run(7800)
    before = fleet.sent.total()
    assert fleet.run(LEASE_MS + 2000, lambda: len(other.starts) == 1)
    assert fleet.sent.total() - before < 60, "it waits for the end of the time without reaping, it does not spin"


@pytest.mark.parametrize("lease_ms", [100, 1500, 9000])
def test_rule_11_a_worker_sweeps_at_least_four_times_a_lease(desk: Desk, lease_ms: int) -> None:
    """Sweeps that are half a lease apart would look like stalls, and nothing would ever be reaped."""
    fleet, victim, other = fleet_of_two(desk, lease_ms=lease_ms)
    fleet.run(lease_ms)
    victim.alive = False
    assert fleet.run(lease_ms + 2000, lambda: len(other.starts) == 1)


def test_rule_11_the_scripts_of_other_operations_do_not_touch_the_state_of_sweeps(desk: Desk) -> None:
    """A claim that wrote its time would hide a stall."""
    before = sweep_state(desk.enqueue("j1", "j2").held(limit=1).swept())
    desk.tick(LEASE_MS).run(Claim("d" * 16, 1, 1, LEASE_MS, desk.now_ms + 1000, "d", 1000, ("main",)))
    assert sweep_state(desk) == before
