"""Races between the slots of a worker: answers that cross, calls that the machine itself sends again, leases
that run out."""

from collections.abc import Sequence

import pytest

from engine.ops.claims import Claim, Extend, Finish, ReadWorkerUpdates, Swept, Woken, WorkerUpdates
from engine.worker.machine.claiming import Allowance, CallsInFlight
from engine.worker.machine.events import Forked, Send
from tests.engine.helpers.machine import MS, Machine, holding, lost, started


def sends(actions: Sequence[object]) -> list[Send]:
    return [action for action in actions if isinstance(action, Send)]


@pytest.mark.parametrize("news", ["marker", "promoted", "reaped"])
def test_rule_22_work_that_was_heard_of_while_a_claim_was_out_is_claimed(news: str) -> None:
    """The claim found the lane empty, then the job came and its marker was taken by this worker, and then the
    answer arrived."""
    machine, (job,) = holding("a", concurrency=2)
    assert isinstance(machine.ended(job).work, Finish)
    if news == "marker":
        machine.wake(True)
    elif news == "promoted":
        machine.sweep(promoted=1)
    else:
        machine.sweep(reaped=(job.lease,))
    assert isinstance(machine.given().work, Claim)


def test_rule_22_a_worker_without_room_hands_a_marker_on_by_a_sweep() -> None:
    machine, (job,) = holding("a", concurrency=2)
    machine.sweep()
    assert "sweep" not in machine.ended(job).given(machine.job("b"), machine.job("c")).out
    machine.wake(True)
    assert "sweep" in machine.after(1).out


def test_rule_22_a_marker_of_the_news_that_is_taken_while_they_are_asked_for_is_left_again() -> None:
    """A sweep told of them as well. Others block on the list of this marker and on no other, so the worker
    asks once more."""
    machine = Machine(concurrency=1)
    machine.given().answer("sweep", Swept(machine.srv_us, 1000, version=1))
    learned = WorkerUpdates(machine.srv_us, 1, 0, None, ())
    for more in (True, False):
        assert machine.out["sweep"].operation == ReadWorkerUpdates(0, "w")
        if more:
            machine.answer("wake", Woken(work=False, updates=True))
        machine.answer("sweep", learned)
    assert "sweep" not in machine.out


def test_rule_13_a_sweep_does_not_postpone_the_sweep_that_a_claim_asked_for() -> None:
    machine = Machine(concurrency=2)
    # A job due in 20 ms came after the server ran the sweep and before it ran the claim.
    assert "sweep" in machine.given(sleep_ms=20).answered("sweep", Swept(machine.srv_us, 1000)).after(21).out


def test_rule_9_a_void_renewal_is_followed_by_another_at_once() -> None:
    machine, _ = holding("a", concurrency=1, lease_ms=9000)
    assert isinstance(machine.after(3001).extended("void").after(150).renewal, Extend)


def test_rule_5_a_call_that_the_machine_sends_again_says_so() -> None:
    machine, (job,) = holding("a", concurrency=1)
    (finish,) = [send for send in sends(machine.handler_ends(job)) if send.kind == "work"]
    assert not finish.again
    (again,) = [send for send in sends(machine.failed("work").wait(150)) if send.kind == "work"]
    assert again.call == finish.call and again.again
    machine.give(machine.job("b"))
    # The next call is a new one.
    assert all(not send.again for send in sends(machine.log[-4:]) if send.call != finish.call)


def test_what_has_ended_and_waits_to_be_sent_is_renewed() -> None:
    machine, (first, second, third) = holding(*"abc", concurrency=3, prefetch=0)
    machine.handler_ends(first)
    # The finish of a is out and unanswered; b ends behind it.
    assert machine.ended(second).after(3001).renewal.leases == (third.lease, second.lease)


def test_a_running_job_is_told_when_its_lease_runs_out_by_the_workers_own_clock() -> None:
    """Cut off from the server, nobody else will tell it."""
    machine, (job,) = holding("a", concurrency=1, lease_ms=9000)
    assert machine.after(3001).steps.wake_at_ns(machine.now_ns) <= 9000 * MS and lost(machine.wait(5998)) == []
    assert lost(machine.wait(2)) == ["a"] and lost(machine.wait(5000)) == []
    # The server may not have reaped it: the renewal that gets through is asked for all the same.
    assert machine.renewal.leases == (job.lease,)


def test_a_claim_of_the_old_incarnation_is_not_sent_again_after_a_fork() -> None:
    machine = Machine(concurrency=1)
    before = machine.claim
    assert machine.failed("work").told(Forked()).after(150).claim.incarnation != before.incarnation
    assert started(machine.give(machine.job("a"))) == ["a"]


def test_a_closed_gate_and_a_pause_hold_claims_until_their_time_is_over() -> None:
    said: list[int | bool] = [0, 2, True]
    allowance = Allowance(Machine().settings, lambda: said.pop(0))
    assert allowance.most(3, 0, 0) == 0 and allowance.gate_closed and allowance.next_ns(0) == 200 * MS
    assert [allowance.most(3, 0, at_ns) for at_ns in (200 * MS - 1, 200 * MS)] == [0, 2], "it was not asked between"
    assert not allowance.gate_closed and not allowance.restrained and allowance.next_ns(0) is None
    allowance.learned(WorkerUpdates(0, 1, 0, 500, ()), 300 * MS)
    assert allowance.next_ns(0) == 800 * MS and [allowance.most(3, 0, at_ns) for at_ns in (800 * MS - 1, 800 * MS)] == [0, 3]


def test_pauses_between_failures_in_a_row_grow_to_a_second() -> None:
    calls, pauses_ms = CallsInFlight(), list[int]()
    for _ in range(15):
        calls.pause("work", 7 * MS)
        pauses_ms.append(calls.paused["work"] // MS - 7)
    assert pauses_ms == [100] * 10 + [200, 400, 800, 1000, 1000]
