"""The worker's state machine: stopping, burst, the times of sweeps, and rest."""

from typing import Any

import pytest

from engine.worker.machine.events import LoseLease, PauseAsked, Progressed, StopAsked, TimerFired
from tests.engine.helpers.machine import MS, Machine, exits, holding, lost, started
from tests.engine.ops import Claim, Count, Counts, Finish, Marked, NoteProgress, Release, Retry, Sweep, Wait


def test_a_stop_gives_back_what_has_not_started_and_waits() -> None:
    machine, jobs = holding(*"abc", concurrency=1, prefetch=2)
    assert not exits(machine.on(StopAsked())) and machine.work == Release((jobs[1].lease, jobs[2].lease))
    assert not exits(machine.end())
    actions = machine.after(5000).handler_ends(jobs[0])
    assert machine.work == Finish((jobs[0].lease,), None), "a finish without a claim"
    assert not exits(actions) and exits(machine.end()) and started(machine.log) == ["a"]


def test_a_stop_when_nothing_is_in_hand_ends_at_once() -> None:
    machine = Machine()
    assert exits(machine.given().on(StopAsked()))
    assert not exits(machine.on(StopAsked())), "once"


def test_what_an_outstanding_claim_leases_after_the_stop_goes_back() -> None:
    machine = Machine()
    assert not exits(machine.on(StopAsked()))
    (job,) = machine.takes("a")
    assert machine.work == Release((job.lease,)) and exits(machine.end()) and started(machine.log) == []


def test_an_unanswered_claim_is_pursued_also_while_stopping() -> None:
    """It may have leased jobs, which would otherwise wait for a whole lease."""
    machine = Machine()
    call = machine.told(StopAsked()).out["work"]
    assert machine.failed("work").after(200).out["work"] is call and exits(machine.give(kind="void"))


def test_a_failed_run_is_reported_also_while_stopping() -> None:
    machine, (job,) = holding("a", concurrency=1)
    assert isinstance(machine.told(StopAsked()).ended(job, "no").work, Retry) and exits(machine.end())


def test_leases_are_renewed_while_a_stop_waits() -> None:
    machine, (job,) = holding("a", concurrency=1, lease_ms=3000)
    assert machine.told(StopAsked()).after(1100).renewal.leases == (job.lease,)


def test_the_grace_bounds_a_stop() -> None:
    machine, _ = holding("a", concurrency=1, grace_ms=2000)
    assert not exits(machine.told(StopAsked()).wait(1999)) and exits(machine.wait(2))


def test_nothing_is_claimed_after_a_stop() -> None:
    machine, _ = holding("a", concurrency=2)
    if machine.work is not None:
        machine.give()
    if "wake" in machine.out:
        machine.told(StopAsked()).wake(True)
    assert not any(isinstance(call.operation, Claim | Wait) for call in machine.after(10_000).out.values())


def burst_counts(machine: Machine, cursor: str = "", /, **numbers: int) -> list[Any]:
    """Answer a sweep of a burst, which ends with a count."""
    machine.sweep()
    assert machine.out["sweep"].operation == Count(("main",))
    numbers = dict.fromkeys(("waiting", "delayed", "active", "dead", "done", "finished", "buried"), 0) | numbers
    counts: dict[str, Any] = {**numbers, "cursor": cursor}
    return machine.answer("sweep", Counts(machine.srv_us, **counts))


@pytest.mark.parametrize("left", ["waiting", "delayed", "active"])
def test_a_burst_ends_when_nothing_is_left(left: str) -> None:
    machine = Machine(burst=True)
    assert not exits(burst_counts(machine.given(), **{left: 1}))
    assert exits(burst_counts(machine.after(1001), dead=3, done=2, finished=2, buried=3))


def test_a_burst_ends_only_when_all_lanes_were_counted() -> None:
    machine = Machine(burst=True).given()
    assert not exits(burst_counts(machine, "5")) and machine.out["sweep"].operation == Count(("main",), "5")
    assert not exits(machine.answer("sweep", Counts(machine.srv_us, 0, 0, 0, 0, 0, 0, 0, cursor="6")))
    assert machine.out["sweep"].operation == Count(("main",), "6")
    assert exits(machine.answer("sweep", Counts(machine.srv_us, 0, 0, 0, 0, 0, 0, 0)))


def test_a_burst_goes_on_when_some_lanes_have_a_job() -> None:
    machine = Machine(burst=True)
    assert not exits(burst_counts(machine.given(), "5", waiting=1)) and "sweep" not in machine.out


def test_a_burst_does_not_end_while_a_job_is_in_hand() -> None:
    machine, (job,) = holding("a", burst=True, concurrency=1)
    assert not exits(burst_counts(machine)) and exits(burst_counts(machine.ended(job).given().after(1001)))


def test_a_burst_does_not_end_before_its_sweeps_have_done_all_that_there_is_to_do() -> None:
    machine = Machine(burst=True)
    machine.given().sweep(sleep_ms=0)
    assert "sweep" not in machine.out and exits(burst_counts(machine.after(201)))


def test_a_burst_without_delays_ends_with_a_claim_that_is_sent_after_a_count_of_nothing() -> None:
    """A finish that goes alone may let go of a child after the last claim has been answered, and its marker is not heard yet."""
    machine, (job,) = holding("a", burst=True, delayed=False, concurrency=1)
    assert "work" not in machine.ended(job).given().out, "the last claim has found nothing"
    assert not exits(burst_counts(machine, waiting=1, delayed=1)) and isinstance(machine.work, Claim)
    (child,) = machine.takes("b")
    machine.ended(child).given().wait(1001)
    assert not exits(burst_counts(machine, waiting=1, active=1)), "somebody else's"
    assert not exits(burst_counts(machine.after(1001), waiting=1, delayed=1))
    assert exits(machine.give()), "what waits is for others"
    assert started(machine.log) == ["a", "b"]


def test_a_burst_without_delays_looks_into_all_its_classes_before_it_ends() -> None:
    machine = Machine(burst=True, delayed=False, classes=tuple(f"c{number}" for number in range(16)))
    assert "work" not in machine.given().given().out
    first = machine.after_sweep().answered("sweep", Counts(machine.srv_us, 0, 0, 0, 0, 0, 0, 0)).work.classes
    assert len(first) == 15 and not exits(machine.give()) and machine.work.classes != first and exits(machine.give())


def test_a_burst_without_delays_ends_at_its_count_where_it_may_not_claim() -> None:
    assert exits(burst_counts(Machine(burst=True, delayed=False).given().told(PauseAsked(True)), waiting=1))


def test_a_worker_without_burst_never_counts() -> None:
    machine = Machine()
    machine.sweep()
    assert not any(isinstance(getattr(action, "call", None), Count) for action in machine.after(3000).log)


def test_a_sweep_comes_again_when_its_reply_says() -> None:
    """Rule 13: until the next lease end or due time, at most the interval."""
    machine = Machine(sweep_ms=1000)
    assert machine.out["sweep"].operation == Sweep("0" * 15 + "1", 1, 100, 1000, 1000)
    assert isinstance(machine.after_sweep(sleep_ms=300).sweeps_after(300), Sweep)
    assert isinstance(machine.after(100).after_sweep(sleep_ms=1000).sweeps_after(900), Sweep), "an interval after the one before"


def test_a_claim_brings_the_next_sweep_nearer() -> None:
    machine = Machine(sweep_ms=1000)
    assert isinstance(machine.after_sweep(sleep_ms=1000).given(sleep_ms=40).sweeps_after(40), Sweep)


def test_a_failed_sweep_comes_again_after_one_interval() -> None:
    assert isinstance(Machine(sweep_ms=500).failed("sweep").sweeps_after(500), Sweep)


def test_what_a_sweep_set_free_is_claimed() -> None:
    machine = Machine()
    machine.given().woken(False).sweep(promoted=1)
    assert isinstance(machine.work, Claim)


def test_of_what_a_handler_tells_the_newest_is_noted_and_a_stale_note_tells_the_handler() -> None:
    machine, (job, other) = holding("a", "b", concurrency=2)
    machine.sweep()
    for told in (b"1", b"2", b"3"):
        machine.on(Progressed(job.lease, told))
    assert machine.out["sweep"].operation == NoteProgress(job.lease, 1, b"1")
    assert machine.answered("sweep", Marked(machine.srv_us, "ok")).out["sweep"].operation == NoteProgress(job.lease, 2, b"3")
    machine.told(Progressed(other.lease, b"4")).handler_ends(other)
    actions = machine.answer("sweep", Marked(machine.srv_us, "stale"))
    assert lost(actions) == ["a"] and LoseLease(job.lease) in actions
    assert "sweep" not in machine.out, "what has ended tells nothing any more"


def rest(machine: Machine) -> None:
    """With calls outstanding and nothing to do, the machine wants to be woken later, never now."""
    for ms in (1, 99, 2, 1000, 5000, 30_000):
        assert machine.after(ms).told(TimerFired()).steps.wake_at_ns(machine.now_ns) > machine.now_ns, f"at {machine.now_ms} ms"


@pytest.mark.parametrize("failing", [(), ("wake",), ("work",), ("renew",), ("sweep",), ("wake", "renew", "sweep")])
def test_it_rests_while_calls_are_outstanding(failing: tuple[Any, ...]) -> None:
    """Calls that failed are sent again after a pause, and then nobody answers at all."""
    machine, _ = holding("a", concurrency=2)
    if machine.after(3001).work is None:
        for slot in failing:
            if slot in machine.out:
                machine.fail(slot)
    elif "work" in failing:
        machine.fail("work")
    rest(machine)


def test_it_rests_after_a_failed_wait_while_the_claim_is_outstanding() -> None:
    """The server went away: the wait fails first, and the claim that follows it stays unanswered."""
    machine = Machine(concurrency=2)
    assert isinstance(machine.given().failed("wake").work, Claim)
    rest(machine)


def test_it_rests_after_a_failed_wait_when_it_is_full_or_stopping() -> None:
    machine = Machine(concurrency=1)
    machine.given().failed("wake").takes("a")
    rest(machine)
    assert machine.told(StopAsked()).told(TimerFired()).steps.wake_at_ns(machine.now_ns) > machine.now_ns + MS
