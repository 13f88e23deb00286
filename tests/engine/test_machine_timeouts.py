"""Timeouts and ends of a worker in its state machine: what is told when, and what is still waited for."""

from typing import Any

from engine.outcomes import RunRequest
from engine.worker.machine import events
from engine.worker.machine.events import Action, Exit, GiveUpHandler, MoreTime, NotStarted, StopAsked, StopHandler
from tests.engine.using import Bury, Failure, Finish, Lease, Machine, Release, Retry, exits, holding, started

#: The handlers of all jobs can be stopped.
STOPPABLE: Any = {"concurrency": 1, "lease_ms": 60_000, "stoppable": frozenset({"work"})}


def of(kind: type[Any], actions: list[Action]) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


def failed(machine: Machine) -> list[tuple[Lease, str]]:
    assert isinstance(machine.work, Retry)
    return [(failure.lease, failure.error) for failure in machine.work.failures]


def test_a_function_that_cannot_be_stopped_is_told_as_failed_at_once_and_keeps_its_place() -> None:
    machine = Machine(concurrency=1, lease_ms=9000)
    slow, next_job = machine.job("slow", timeout_ms=100, backoff_ms=7), machine.job("next")
    assert not of(StopHandler, machine.given(slow).wait(100))
    actions = machine.wait(1)
    assert of(StopHandler, actions) == [StopHandler(slow)] and of(GiveUpHandler, actions) == [GiveUpHandler(slow, 1)]
    assert machine.work == Retry((Failure(slow.lease, "TimeoutError: not done within 100 ms", 7),))
    assert machine.after_end().after(7000).steps.leased == 1 and machine.work is None, "its place is taken, so nothing is claimed"
    assert "renew" not in machine.out, "and its lease is not renewed"
    assert machine.ended(slow).steps.leased == machine.steps.owned == 0 and machine.claim.most == 1, "its place is free"
    assert "next" in started(machine.given(next_job).log)


def test_what_can_be_stopped_keeps_its_lease_while_it_cleans_up_and_is_told_once() -> None:
    machine, (job,) = holding("a", timeout_ms=100, soft_timeout_ms=200, **{**STOPPABLE, "lease_ms": 9000})
    actions = machine.wait(101)
    assert of(StopHandler, actions) == [StopHandler(job)] and not of(GiveUpHandler, actions) and machine.work is None
    assert machine.after(2950).renewal.leases == (job.lease,)
    assert failed(machine.ended(job, "TimeoutError: cleaned up")) == [(job.lease, "TimeoutError: cleaned up")]
    machine.end()
    assert not of(GiveUpHandler, machine.wait(10_000)) and machine.steps.leased == 0
    assert of(StopHandler, machine.log) == [StopHandler(job)]


def test_the_time_of_a_run_in_a_child_process_begins_when_the_child_says_so() -> None:
    for says in (True, False):
        machine, (job,) = holding("a", timeout_ms=100, **STOPPABLE, spawned=frozenset({"work"}))
        assert not of(StopHandler, machine.wait(10_000))
        if says:
            machine.on(MoreTime(job.lease, 100))
        assert not of(StopHandler, machine.wait(100)) and of(StopHandler, machine.wait(1)) == [StopHandler(job)]


def test_what_does_not_end_although_it_was_stopped_is_given_up() -> None:
    machine, (job,) = holding("a", timeout_ms=100, **STOPPABLE)
    assert not of(GiveUpHandler, machine.wait(5_100))
    assert of(GiveUpHandler, machine.wait(1)) == [GiveUpHandler(job, 1)]
    assert failed(machine) == [(job.lease, "TimeoutError: not done within 100 ms")]


def test_a_handler_that_was_done_in_time_is_not_timed_out_after_all() -> None:
    machine = Machine(concurrency=2)
    quick, endless = machine.job("quick", soft_timeout_ms=90, timeout_ms=100), machine.job("endless", timeout_ms=60_000)
    assert not of(StopHandler, machine.given(quick, endless).after(50).ended(quick).wait(5000))


def test_a_handler_may_ask_for_more_time_until_it_was_stopped() -> None:
    machine, (job,) = holding("a", timeout_ms=100, **STOPPABLE)
    machine.after(90).on(MoreTime(job.lease, 500))
    assert not of(StopHandler, machine.wait(500)) and of(StopHandler, machine.wait(1)) == [StopHandler(job)]
    assert of(GiveUpHandler, machine.told(MoreTime(job.lease, 500_000)).wait(5_001))
    machine.on(MoreTime(Lease("other", 1, "n:1"), 500))


def test_a_worker_with_a_function_that_is_stuck_stops_without_waiting_for_it() -> None:
    machine, _ = holding("slow", timeout_ms=100, concurrency=1)
    assert not exits(machine.after(101).on(StopAsked())), "its failure is still to be told"
    assert exits(machine.end())


def test_what_was_to_start_and_did_not_has_no_timeout() -> None:
    machine, (job,) = holding("a", timeout_ms=100, concurrency=1)
    machine.on(NotStarted((job.lease,)))
    assert machine.work == Release((job.lease,)) and not of(StopHandler, machine.wait(101))


def test_a_stop_without_grace_gives_back_what_has_not_started() -> None:
    machine, jobs = holding(*"ab", concurrency=1, prefetch=2, grace_ms=0)
    assert not exits(machine.on(StopAsked())) and machine.work == Release((jobs[1].lease,))
    assert exits(machine.end()), "the one that runs is not waited for"


def test_a_stop_says_goodbye_for_a_second_at_most() -> None:
    machine, _ = holding("a", "b", concurrency=1, prefetch=2, grace_ms=0)
    assert not exits(machine.told(StopAsked()).wait(1000)) and machine.wait(1)[-1] == Exit("grace over")


def test_a_stop_says_whether_its_grace_was_over() -> None:
    for ends_in_time, last in ((True, Exit("stopped")), (False, Exit("grace over"))):
        machine, (job,) = holding("a", concurrency=1, grace_ms=500)
        machine.told(StopAsked()).wait(499)
        assert (machine.ended(job).end() if ends_in_time else machine.wait(1_001))[-1] == last


def test_a_recycled_worker_is_started_anew_also_when_its_grace_was_over() -> None:
    machine, jobs = holding(*"ab", concurrency=2, grace_ms=0, max_jobs=1)
    assert machine.ended(jobs[0]).end()[-1] == Exit("recycled"), "the other one runs"


def test_a_second_stop_does_not_wait_for_handlers() -> None:
    machine, _ = holding("a", concurrency=1, grace_ms=60_000)
    assert not exits(machine.on(StopAsked()))
    assert not exits(machine.on(StopAsked())), "the same again changes nothing"
    assert machine.on(StopAsked("at once"))[-1] == Exit("at once")


def test_a_worker_ends_after_so_many_jobs_and_gives_the_others_back() -> None:
    machine, jobs = holding(*"abc", concurrency=1, prefetch=2, max_jobs=2)
    machine.ended(jobs[0]).ended(jobs[1]).end()
    assert machine.work == Release((jobs[2].lease,))
    machine.end()
    finished = machine.out["finish"].operation
    assert isinstance(finished, Finish) and finished.leases == (jobs[1].lease,)
    assert machine.end("finish")[-1] == Exit("recycled")


def test_nobody_is_told_of_a_lease_that_is_lost_before_its_handler_has_started() -> None:
    machine, jobs = holding(*"ab", concurrency=1, prefetch=1, lease_ms=300)
    actions = machine.after(101).extend("stale", "stale")
    told = {(lost.lease, lost.started) for lost in of(events.LoseLease, actions)}
    assert told == {(jobs[0].lease, True), (jobs[1].lease, False)}


def test_beyond_its_grace_a_stop_gives_back_what_it_has_interrupted_once_that_has_ended() -> None:
    machine, (a, b, c) = holding(*"abc", concurrency=3, grace_ms=500, lease_ms=60_000, stoppable=frozenset({"work"}))
    machine.told(StopAsked()).after(499).handler_ends(a, "ValueError: before the end of the grace")
    assert failed(machine) == [(a.lease, "ValueError: before the end of the grace")]
    actions = machine.after_end().wait(1)
    actions += machine.on(events.TimerFired())
    assert of(StopHandler, actions) == [StopHandler(b, "stop"), StopHandler(c, "stop")] and machine.work is None
    assert not exits(machine.wait(990)), "nothing is given back that may still run"
    assert machine.ended(b, "CancelledError: ").work == Release((b.lease,), frozenset({b.lease}))
    machine.told(events.HandlerEnded(c.lease, "no", request=RunRequest("bury", asked=True))).end()
    assert isinstance(machine.work, Bury), "what the handler has asked for holds"
    assert machine.end()[-1] == Exit("grace over")


def test_what_finishes_although_it_was_interrupted_has_finished() -> None:
    machine, (job,) = holding("a", concurrency=1, grace_ms=0, stoppable=frozenset({"work"}))
    assert of(StopHandler, machine.on(StopAsked())) == [StopHandler(job, "stop")]
    assert isinstance(machine.ended(job).work, Finish)


def test_what_has_timed_out_is_not_given_back_by_a_stop() -> None:
    machine, (job,) = holding("a", timeout_ms=100, grace_ms=0, **STOPPABLE)
    assert not of(StopHandler, machine.after(101).on(StopAsked()))
    assert failed(machine.ended(job, "TimeoutError: cleaned up")) == [(job.lease, "TimeoutError: cleaned up")]


def test_what_does_not_end_in_time_keeps_its_lease() -> None:
    machine, _ = holding("a", concurrency=1, grace_ms=0, lease_ms=60_000, stoppable=frozenset({"work"}))
    assert machine.told(StopAsked()).wait(1_001)[-1] == Exit("grace over") and machine.work is None


def test_a_handler_that_cleans_up_after_its_timeout_is_waited_for_when_the_grace_ends() -> None:
    machine, (job,) = holding("a", timeout_ms=100, grace_ms=50, **STOPPABLE)
    assert of(StopHandler, machine.after(90).told(StopAsked()).wait(11)) == [StopHandler(job)]
    actions = machine.wait(900)
    assert not exits(actions) and not of(StopHandler, actions), "the grace is over, and it is told once"
    machine.handler_ends(job, "TimeoutError: cleaned up")
    assert failed(machine) == [(job.lease, "TimeoutError: cleaned up")] and exits(machine.end())


def test_a_soft_timeout_is_told_once_and_the_hard_one_still_holds() -> None:
    machine, (job,) = holding("a", soft_timeout_ms=100, timeout_ms=300, **STOPPABLE)
    assert not of(StopHandler, machine.wait(100)) and of(StopHandler, machine.wait(1)) == [StopHandler(job, "soft timeout")]
    assert not of(StopHandler, machine.wait(199)) and of(StopHandler, machine.wait(1)) == [StopHandler(job)]
    assert of(GiveUpHandler, machine.wait(5_001)) == [GiveUpHandler(job, 1)]


def test_a_soft_timeout_keeps_its_distance_when_a_handler_asks_for_more_time() -> None:
    machine, (job,) = holding("a", soft_timeout_ms=100, timeout_ms=300, **STOPPABLE)
    assert not of(StopHandler, machine.after(90).told(MoreTime(job.lease, 1000)).wait(800))
    assert of(StopHandler, machine.wait(1)) == [StopHandler(job, "soft timeout")]
    machine.handler_ends(job)
    alone, (job,) = holding("a", soft_timeout_ms=100, **STOPPABLE)
    alone.on(MoreTime(job.lease, 50))
    assert of(StopHandler, alone.wait(51)) == [StopHandler(job, "soft timeout")]
    assert not of(StopHandler, alone.wait(10_000)), "without a timeout nothing follows"
