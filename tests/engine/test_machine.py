"""The worker's state machine, event by event: claims, starts, finishes and leases (rules 1, 4, 9, 22 and 37)."""

import pytest

from engine.ops.claims import Claim, Finish, Release, Retry, Wait
from engine.worker.machine.events import Forked, HandlerEnded, LoseLease, TimerFired
from tests.engine.helpers.machine import SERVER_MS, Machine, holding, lost, started


def test_it_claims_at_once_for_every_free_place() -> None:
    machine = Machine(concurrency=3, lease_ms=9000)
    first = Claim("0000000000000001", 1, 3, 9000, SERVER_MS + 7200, "w", 1000, ("main",), 1, worker=machine.settings.attributes)
    assert machine.claim == first


def test_what_was_claimed_starts_up_to_the_concurrency_and_the_rest_waits() -> None:
    machine = Machine(concurrency=2, prefetch=1)
    jobs = [machine.job(name) for name in "abc"]
    assert started(machine.give(*jobs)) == ["a", "b"] and machine.steps.leased == 3
    machine.now_ms = 10
    assert started(machine.handler_ends(jobs[0])) == ["c"]
    machine.now_ms = 15
    machine.told(HandlerEnded(jobs[2].lease, None, result=b"1")).give()
    assert [value.took_ms for value in machine.work.values] == [5], "from its start on"


def test_never_two_claims_are_outstanding() -> None:
    """Rule 4. The machine of the helper fails on a second call in a slot; no other slot carries a claim."""
    machine, jobs = holding(*"abcd", concurrency=4)
    for job in jobs:
        machine.handler_ends(job)
    operations = [call.operation for call in machine.after(20_000).out.values()]
    claims = [one for one in operations if isinstance(one, Claim) or (isinstance(one, Finish) and one.claim is not None)]
    assert len(claims) == 1


@pytest.mark.parametrize("fused", [False, True])
def test_an_unanswered_claim_is_sent_again_the_same_until_it_is_answered(fused: bool) -> None:
    """Rule 4: the very same call, whatever happens meanwhile and however long it takes."""
    machine = Machine(concurrency=2)
    if fused:
        first, second = machine.takes("a", "b")
        machine.ended(first).handler_ends(second)
    call = machine.out["work"]
    for _ in range(5):
        assert "work" not in machine.out or machine.out["work"] is call
        assert machine.failed("work").work is None, "it must pause before it sends again"
        assert machine.after(99).work is None and machine.after(2).out["work"] is call
    counter = machine.claim.counter
    assert machine.given(kind="void").claim.counter == counter + 1 and machine.claim.incarnation == "0000000000000001"


@pytest.mark.parametrize("kind", ["repeated", "leased", "void", "empty"])
def test_an_answered_claim_advances_the_counter(kind: str) -> None:
    machine = Machine(concurrency=2)
    machine.given(*([machine.job("a")] if kind in ("leased", "repeated") else []), kind=kind).wait(50)
    if machine.work is None:
        machine.wake(True)
    assert (machine.claim.incarnation, machine.claim.counter) == ("0000000000000001", 2)


def test_a_stale_answer_to_the_outstanding_claim_takes_a_new_incarnation() -> None:
    machine = Machine()
    assert (machine.given(kind="stale").claim.incarnation, machine.claim.counter) == ("0000000000000002", 1)


def test_a_stale_claim_in_a_fused_call_does_not_send_the_finish_again() -> None:
    machine, (job,) = holding("a", concurrency=1)
    machine.ended(job).give(kind="stale")
    assert isinstance(machine.work, Claim) and machine.claim.incarnation == "0000000000000002"


def test_a_fork_takes_a_new_incarnation() -> None:
    machine = Machine()
    machine.given().on(Forked())
    assert (machine.claim.incarnation, machine.claim.counter) == ("0000000000000002", 1)


@pytest.mark.parametrize(("answered_ms", "starts"), [(7199, True), (7200, True), (7201, False), (9500, False)])
def test_rule_9_no_handler_starts_with_less_than_a_fifth_of_its_lease(answered_ms: int, starts: bool) -> None:
    """The lease counts from the first send of the claim, not from its answer."""
    machine = Machine(concurrency=1, lease_ms=9000)
    job = machine.job("a")
    machine.now_ms = answered_ms
    assert started(machine.give(job)) == (["a"] if starts else [])
    if not starts:
        assert machine.work == Release((job.lease,))
        machine.end()
        assert isinstance(machine.work, Claim)


def test_rule_9_counts_from_the_first_send_of_all() -> None:
    """The first sends of the claim went unanswered (10 s), the machine sent it again, and was told what the first one leased."""
    machine = Machine(concurrency=1, lease_ms=12_000)
    job = machine.job("a")
    machine.now_ms = 10_000
    machine.failed("work").wait(150)
    # Applied at 0 ms: it ends at 12,000, and 1,850 of 12,000 ms are less than a fifth.
    assert machine.claim.counter == 1 and started(machine.give(job, kind="repeated")) == []
    assert machine.work == Release((job.lease,))


@pytest.mark.parametrize("fused", [False, True])
def test_rule_9_an_old_call_does_not_age_the_next_claim(fused: bool) -> None:
    """Unanswered, then refused with an error: the claim that follows is another one, and what it leases is young."""
    machine = Machine(concurrency=1, lease_ms=9000)
    if fused:
        (job,) = machine.takes("a")
        machine.handler_ends(job)
    machine.now_ms += 9000
    machine.failed("work").after(150).failed("work", fault=True).wait(150)
    if fused:
        machine.end()
    assert started(machine.give(machine.job("b"))) == ["b"]


def test_rule_9_also_for_what_waited_in_hand() -> None:
    machine, (first, second) = holding("a", "b", crashes=1, concurrency=2, lease_ms=9000)
    machine.mark()
    order = [lease.job for lease in machine.after(3001).renewal.leases]
    machine.extended(*("void" if job == "b" else "ok" for job in order)).wait(4300)
    # b was not renewed: 1,700 ms are left of it; a has 4,700.
    assert started(machine.handler_ends(first)) == [] and machine.work == Release((second.lease,))


@pytest.mark.feature("BQ21", "BL17")
def test_a_renewal_at_a_third_of_the_lease_for_everything_in_hand() -> None:
    machine = Machine(concurrency=3, lease_ms=9000)
    jobs = [machine.job("a"), machine.job("b", crashes=1), machine.job("c", crashes=1)]
    assert "renew" not in machine.given(*jobs).after(2999).out
    first = machine.after(2).renewal
    assert set(first.leases) == {job.lease for job in jobs}
    assert first.lease_ms == 9000 and SERVER_MS + 5999 <= first.not_after_ms <= SERVER_MS + 6001
    assert machine.extended("ok", "ok", "ok").after(3000).renewal.renewal > first.renewal


def test_a_renewal_is_not_kept_waiting_by_an_unanswered_claim() -> None:
    """Rule 14."""
    machine, (job,) = holding("a", concurrency=2, lease_ms=9000)
    if machine.after(100).work is None:
        machine.wake(True)
    assert isinstance(machine.after(3000).work, Claim) and machine.renewal.leases == (job.lease,)


def test_a_failed_renewal_comes_again_soon() -> None:
    machine, _ = holding("a", concurrency=1, lease_ms=9000)
    assert "renew" not in machine.after(3001).failed("renew").after(99).out and "renew" in machine.after(2).out


def test_a_lost_lease_is_told_once_and_its_finish_is_sent_all_the_same() -> None:
    """Rule 37: the server decides about a late finish."""
    machine, jobs = holding("a", "b", concurrency=2, lease_ms=9000)
    assert lost(machine.after(3001).extend("stale", "ok")) == ["a"]
    assert machine.after(3001).renewal.leases == (jobs[1].lease,)
    assert isinstance(machine.extended("ok").ended(jobs[0]).work, Finish) and machine.work.leases == (jobs[0].lease,)
    assert lost(machine.log) == ["a"]


def test_a_lease_that_is_lost_before_its_start_never_starts() -> None:
    """One job with a crash behind it runs at a time, so that the second one stays in hand and waits."""
    machine, (first, second) = holding("a", "b", crashes=1, concurrency=3)
    machine.mark()
    assert set(machine.after(3001).renewal.leases) == {first.lease, second.lease}
    told = machine.extend(*("stale" if lease == second.lease else "ok" for lease in machine.renewal.leases))
    # It has no handler that would ever clear what was said to it.
    assert LoseLease(second.lease, started=False) in told and started(machine.ended(first).log) == ["a"]


def test_a_finish_takes_the_next_claim_along() -> None:
    machine, (first, _) = holding("a", "b", concurrency=2)
    assert machine.ended(first).work.leases == (first.lease,) and machine.claim.most == 1


def test_finishes_that_come_meanwhile_go_together() -> None:
    machine, jobs = holding(*"abcd", concurrency=4)
    for job in jobs[:3]:
        machine.handler_ends(job)
    assert machine.work.leases == (jobs[0].lease,)
    assert machine.given().work.leases == (jobs[1].lease, jobs[2].lease) and machine.claim.most == 3


def test_a_failed_run_is_retried_with_the_back_off_of_its_job() -> None:
    machine, (job,) = holding("a", backoff_ms=1234, concurrency=1)
    assert isinstance(machine.ended(job, "ValueError: no").work, Retry)
    failure = machine.work.failures[0]
    assert (failure.lease, failure.error, failure.delay_ms) == (job.lease, "ValueError: no", 1234)


def test_rule_1_a_fused_call_that_fails_with_an_error_sends_its_finish_half_alone() -> None:
    machine, (job,) = holding("a", concurrency=1)
    counter = machine.ended(job).claim.counter
    assert machine.failed("work", fault=True).after(200).work == Finish((job.lease,), None)
    assert isinstance(machine.after_end().after(200).work, Claim) and machine.claim.counter == counter + 1


def test_a_claim_that_fails_with_an_error_pauses_before_the_next() -> None:
    machine = Machine()
    assert machine.failed("work", fault=True).work is None and machine.after(200).claim.counter == 2


def test_it_blocks_for_a_marker_only_when_the_last_claim_left_nothing_and_there_is_room() -> None:
    """Rule 22."""
    machine = Machine(concurrency=2)
    assert "wake" not in machine.out, "a claim is outstanding"
    jobs = machine.takes("a", "b")
    assert "wake" not in machine.out, "no room"
    assert machine.ended(jobs[0]).given().out["wake"].operation == Wait(5_000, ("main",), 0)
    machine.wake(False)
    assert isinstance(machine.out["wake"].operation, Wait) and machine.work is None
    assert machine.woken(True).claim.most == 1 and "wake" not in machine.out


def test_rule_22_classes_beyond_one_call_are_named_in_turns_and_a_marker_is_followed_at_once() -> None:
    classes = tuple(f"c{number:02}" for number in range(31))
    first, second, third = classes[:15], classes[15:30], classes[30:]
    machine = Machine(classes=classes)
    for group in (first, second, third):
        assert machine.claim.classes == group
        machine.give()
    for group in (first, second, third, first):
        assert machine.out["wake"].operation == Wait(333, group, 0)
        machine.wake(False)
    machine.wake(True)
    for group in (second, third, first):
        assert machine.claim.classes == group
        machine.give()
    assert machine.out["wake"].operation == Wait(333, second, 0)


def test_rule_22_while_all_handlers_are_busy_it_leaves_markers_to_others_though_it_would_take_jobs_ahead() -> None:
    machine = Machine(concurrency=1, prefetch=8)
    assert machine.claim.most == 2
    (job,) = machine.takes("a")
    assert machine.work is None and "wake" not in machine.out
    machine.handler_ends(job)
    assert isinstance(machine.work, Finish) and machine.work.claim is not None
    machine.give()
    assert isinstance(machine.out["wake"].operation, Wait)


def test_timers_alone_change_nothing() -> None:
    machine = Machine()
    before = dict(machine.out)
    assert [machine.on(TimerFired()) for _ in range(5)] == [[]] * 5 and machine.out == before
