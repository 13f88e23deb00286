"""Rule 12 in the state machine: one job with a crash behind it at a time, marked by one call before its handler runs; and rule
14: who could not renew because nothing ran says so."""

import pytest

from engine.ops.claims import Claim, Finish, Mark, Release, Retry
from engine.worker.machine.events import LoseLease, PauseAsked, StopAsked, TimerFired
from tests.engine.helpers.machine import MS, Machine, exits, holding, lost, started


def test_rule_12_a_job_without_a_crash_starts_unmarked() -> None:
    machine = Machine(concurrency=2)
    assert started(machine.give(machine.job("a"), machine.job("b"))) == ["a", "b"] and machine.work is None


def test_rule_12_a_job_with_a_crash_behind_it_starts_when_its_mark_is_answered() -> None:
    machine = Machine(concurrency=1)
    job = machine.job("a", crashes=1)
    assert started(machine.give(job)) == [] and machine.work == Mark(job.lease) and started(machine.mark()) == ["a"]


def test_rule_12_a_second_one_waits_for_the_first_and_the_others_pass_it() -> None:
    machine = Machine(concurrency=4)
    first, second, clean = machine.job("a", crashes=1), machine.job("b", crashes=2), machine.job("c")
    assert started(machine.give(first, second, clean)) == ["c"] and started(machine.mark()) == ["a"]
    assert started(machine.after(5000).log) == ["c", "a"]
    assert isinstance(machine.ended(clean).work, Finish), "nothing waits that its place could run"
    machine.given().handler_ends(first)
    # What has ended is told before the next mark: else a would be charged when b takes the worker with it.
    assert isinstance(machine.work, Finish) and machine.work.leases == (first.lease,)
    assert machine.given().work == Mark(second.lease) and started(machine.mark()) == ["b"]


def test_rule_12_a_mark_waits_for_no_other_finish() -> None:
    """Over a slow network some quick job has always ended when the slot is free: the mark would never be sent."""
    machine, (first, second, _) = holding("a", "b", "long", concurrency=3)
    (crashed,) = machine.ended(first).ended(second).takes("c", crashes=1)
    assert machine.work == Mark(crashed.lease) and started(machine.mark())[-1:] == ["c"]
    assert isinstance(machine.work, Finish) and machine.work.leases == (second.lease,)


def test_rule_12_also_a_failed_run_is_told_before_the_next_mark() -> None:
    machine, (first, second) = holding("a", "b", crashes=1, concurrency=2)
    machine.mark()
    assert isinstance(machine.ended(first, "boom").work, Retry)
    machine.end()
    assert machine.work == Mark(second.lease)


@pytest.mark.parametrize("error", [None, "boom"])
def test_rule_12_the_next_one_is_claimed_when_the_first_has_ended(error: str | None) -> None:
    """The claim before left it where it was, and found nothing else: nobody will say that there is work."""
    machine, (job,) = holding("a", crashes=1, concurrency=2)
    machine.mark()
    if machine.work is None:
        machine.wake(True)
    assert machine.claim.crashed_max == 0
    machine.given().handler_ends(job, error)
    if error is not None:
        machine.end()
    assert machine.claim.crashed_max == 1


def test_rule_12_a_place_is_kept_while_the_mark_is_on_its_way() -> None:
    machine = Machine(concurrency=1)
    machine.give(machine.job("a", crashes=1), machine.job("b"))
    assert started(machine.told(TimerFired()).log) == [] and machine.steps.leased == 2 and started(machine.mark()) == ["a"]


def test_rule_12_a_stale_mark_starts_nothing() -> None:
    machine, _ = holding("a", crashes=1, concurrency=1)
    actions = machine.mark("stale")
    assert (started(actions), lost(actions), machine.steps.leased) == ([], ["a"], 0)
    machine.give(machine.job("b", crashes=1))
    assert isinstance(machine.work, Mark), "the next one is not held up by it"


def test_rule_12_a_mark_is_sent_again_until_it_is_answered() -> None:
    machine, _ = holding("a", crashes=1, concurrency=1)
    call = machine.out["work"]
    machine.failed("work").wait(150)
    assert machine.out["work"] is call and started(machine.mark("repeated")) == ["a"]


def test_rule_12_a_mark_that_fails_with_an_error_gives_the_job_back_after_a_pause() -> None:
    machine, (job,) = holding("a", crashes=1, concurrency=1)
    assert machine.failed("work", fault=True).work is None and machine.after(150).work == Release((job.lease,))
    assert machine.after_end().steps.leased == 0 and isinstance(machine.work, Claim)


def test_rules_9_and_12_a_mark_that_was_answered_late_starts_nothing() -> None:
    machine, (job,) = holding("a", crashes=1, concurrency=1, lease_ms=9000)
    machine.now_ms += 7201
    assert started(machine.mark()) == [] and machine.work == Release((job.lease,))
    assert machine.after_end().claim.crashed_max == 1, "another one may come in its place"


def test_rule_12_leases_that_wait_for_their_turn_are_renewed() -> None:
    machine, jobs = holding("a", "b", "c", crashes=1, concurrency=3, lease_ms=9000)
    assert set(machine.after(3001).renewal.leases) == {job.lease for job in jobs}, "one of them is being marked"


@pytest.mark.parametrize("marked", [False, True])
def test_rule_12_a_lease_that_is_lost_before_its_mark_is_answered_lets_the_next_one_in(marked: bool) -> None:
    machine, (first, second) = holding("a", "b", crashes=1, concurrency=2, lease_ms=9000)
    machine.after(3001).extend(*("stale" if lease == first.lease else "ok" for lease in machine.renewal.leases))
    assert machine.work == Mark(first.lease), "still unanswered"
    assert started(machine.mark("ok" if marked else "stale")) == [] and machine.work == Mark(second.lease)


def test_rule_12_one_that_waits_for_a_place_is_the_one_that_may_be_leased_until_it_is_given_back() -> None:
    machine = Machine(concurrency=1, prefetch=64).warmed()
    assert machine.given(machine.job("a"), machine.job("b", crashes=1), kind="repeated").claim.crashed_max == 0
    machine.told(PauseAsked(True)).given().after_end().told(PauseAsked(False)).sweep(promoted=1)
    assert machine.claim.crashed_max == 1


def test_a_stop_gives_back_what_waits_for_its_mark() -> None:
    machine, (job,) = holding("a", crashes=1, concurrency=1)
    assert machine.told(StopAsked()).steps.leased == 0 and not exits(machine.mark()) and machine.work == Release((job.lease,))
    assert exits(machine.end()) and started(machine.log) == []


def test_rule_14_a_lease_that_ran_out_while_nothing_ran_says_for_how_long() -> None:
    """C code held the interpreter lock, or the process was stopped: the timer came much later than asked for."""
    machine, (job,) = holding("a", concurrency=1, lease_ms=9000)
    asked_ms = machine.steps.wake_at_ns(machine.now_ns) // MS
    machine.now_ms = 12_000
    assert machine.on(TimerFired())[0] == LoseLease(job.lease, 12_000 - asked_ms)


def test_rule_14_also_when_the_server_says_first_that_it_is_lost() -> None:
    machine, (job,) = holding("a", concurrency=1, lease_ms=9000)
    machine.steps.wake_at_ns(machine.now_ns)
    machine.now_ms = 8_000
    machine.on(TimerFired())
    (action,) = [action for action in machine.extend("stale") if isinstance(action, LoseLease)]
    assert action.lease == job.lease and action.starved_ms == 5_000


def test_rule_14_a_lease_that_ran_out_because_nobody_answered_does_not() -> None:
    machine, (job,) = holding("a", concurrency=1, lease_ms=9000)
    assert [action for action in machine.wait(9001) if isinstance(action, LoseLease)] == [LoseLease(job.lease, 0)]


def test_rule_14_a_time_without_running_is_forgotten_with_the_next_renewal() -> None:
    machine, (job,) = holding("a", concurrency=1, lease_ms=9000)
    machine.steps.wake_at_ns(machine.now_ns)
    machine.now_ms = 5_000
    machine.told(TimerFired()).extend("ok")
    assert [action for action in machine.wait(12_000) if isinstance(action, LoseLease)] == [LoseLease(job.lease, 0)]


def test_rule_14_a_lease_that_the_server_has_ended_is_not_told_again_when_its_time_is_over() -> None:
    machine, _ = holding("a", concurrency=1, lease_ms=9000)
    assert lost(machine.after(4_000).extend("stale")) == ["a"] and lost(machine.wait(20_000)) == []
