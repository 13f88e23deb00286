"""Rule 21: what a worker takes ahead of its handlers, what goes back, and how long a finish may linger."""

import pytest

from engine.worker.machine.claiming import Prefetch
from engine.worker.machine.events import StopAsked
from tests.engine.helpers.fleet import Fleet
from tests.engine.using import LEASE_MS, MS, Desk, Finish, Lease, LeasedJob, Machine, Release, holding


def measured(took_ms: float, *, concurrency: int = 1, most: int = 64, runs: int = 20) -> Prefetch:
    prefetch = Prefetch(concurrency, most)
    for _ in range(runs):
        prefetch.ended(int(took_ms * MS))
    return prefetch


@pytest.mark.parametrize(("took_ms", "concurrency", "ahead"), [
    (1, 1, 50), (10, 1, 5), (50, 1, 1), (51, 1, 0), (1000, 1, 0), (10, 8, 40), (100, 8, 4), (0.01, 1, 64),
])  # fmt: skip
def test_rule_21_ahead_is_what_the_handlers_work_off_in_50_ms(took_ms: float, concurrency: int, ahead: int) -> None:
    assert measured(took_ms, concurrency=concurrency).ahead([], 0) == ahead


def test_rule_21_it_starts_at_1_and_grows_by_doubling() -> None:
    prefetch = Prefetch(4, 64)
    seen = [prefetch.ahead([], 0)]
    for _ in range(8):
        prefetch.ended(MS // 10)
        seen.append(prefetch.ahead([], 0))
    assert seen == [1, 2, 4, 8, 16, 32, 64, 64, 64]


def test_rule_21_the_setting_is_the_most() -> None:
    assert [measured(0.01, most=most).ahead([], 0) for most in (0, 1, 7, 64)] == [0, 1, 7, 64]
    assert Prefetch(4, 0).ahead([], 0) == 0


def test_rule_21_it_shrinks_at_once() -> None:
    prefetch = measured(1)
    prefetch.ended(10_000 * MS)
    assert (measured(1).ahead([], 0), prefetch.ahead([], 0)) == (50, 0)


def test_rule_21_a_handler_that_runs_longer_than_usual_frees_no_place() -> None:
    prefetch = measured(10, concurrency=4)
    assert prefetch.ahead([], 1000 * MS) == 20 and prefetch.ahead([0, 0, 990 * MS], 1000 * MS) == 10
    assert prefetch.ahead([0, 0, 0, 0], 1000 * MS) == 0
    # Also before anything was measured.
    assert [Prefetch(1, 64).ahead([0], now_ms * MS) for now_ms in (50, 51)] == [1, 0]


def sent(machine: Machine) -> tuple[Lease, ...]:
    """The finishes that are on their way."""
    operation = machine.work
    assert isinstance(operation, Finish)
    return operation.leases


def test_rule_21_a_claim_asks_for_what_its_handlers_will_work_off() -> None:
    machine = Machine(concurrency=2, prefetch=64)
    assert machine.claim.most == 3
    assert machine.warmed(took_ms=10).claim.most == 2 + 10


def test_rule_21_what_waits_behind_slow_handlers_goes_back_after_a_while() -> None:
    machine, (slow, ahead) = holding("slow", "ahead", concurrency=1, prefetch=64)
    machine.wait(199)
    assert not isinstance(machine.work, Release)
    machine.wait(2)
    assert machine.work == Release((ahead.lease,))
    assert machine.after_end().steps.leased == 1 and machine.work is None, "and nothing is claimed in its place"
    machine.wait(20_000)
    assert machine.work is None
    # When the slow one ends, the machine claims for its place alone.
    machine.handler_ends(slow)
    assert (sent(machine), machine.claim.most) == ((slow.lease,), 1)


def test_rule_21_what_would_be_taken_again_at_once_stays(desk: Desk) -> None:
    """A burst of equal handlers: what is ahead waits for all of them, and is no more than they will work off."""
    fleet = Fleet(desk, lambda job: 300)
    desk.enqueue(*[f"j{number}" for number in range(160)])
    worker = fleet.start(concurrency=16, prefetch=64)
    # The first handlers are as slow as any, which nobody knows at the start: one job goes back then.
    assert fleet.run(250, lambda: fleet.sent["Release"] == 1)
    assert fleet.run(10_000, lambda: len(worker.starts) == 160) and fleet.sent["Release"] == 1


def test_rule_21_a_slow_handler_holds_up_no_other_job_while_workers_idle(desk: Desk) -> None:
    """Without rule 21, 49 jobs wait a minute in the hand of a worker whose only handler is busy."""

    fleet = Fleet(desk, lambda job: 60_000 if job.lease.job == "slow" else 1)
    desk.enqueue(*[f"warm{number}" for number in range(30)])
    worker = fleet.start(concurrency=1, prefetch=64)
    assert fleet.run(5000, lambda: len(worker.starts) == 30)
    desk.enqueue("slow", *[f"j{number}" for number in range(49)])
    assert fleet.run(5000, lambda: worker.starts[-1][1] == "slow")
    fleet.run(2)
    assert worker.steps.leased > 30, "it had every reason to take many"
    other = fleet.start(concurrency=1, prefetch=64)
    assert fleet.run(1000, lambda: len(other.starts) == 49) and fleet.reaped == []


def filled(*, concurrency: int, prefetch: int = 64) -> tuple[Machine, list[LeasedJob]]:
    """A machine that has claimed what its handlers of 5 ms work off, and those jobs; without a prefetch nothing was measured."""
    machine = Machine(concurrency=concurrency, prefetch=prefetch)
    if prefetch:
        machine.warm(took_ms=5)
    jobs = machine.takes(*(f"j{number}" for number in range(machine.claim.most)))
    if machine.work is not None:
        machine.give()
    return machine, jobs


def test_rule_21_finishes_wait_for_company_while_more_jobs_wait_for_a_handler() -> None:
    machine, jobs = filled(concurrency=2)
    assert machine.work is None and len(jobs) > 10
    assert machine.ended(jobs[0]).work is None and machine.after(2).ended(jobs[1]).after(2).work is None
    assert sent(machine.after(2)) == (jobs[0].lease, jobs[1].lease), "after 5 ms"


def test_rule_21_half_of_what_was_ahead_goes_before_its_time() -> None:
    """So that the next jobs are here before the last of these has started."""
    machine, jobs = filled(concurrency=1)
    waiting, ended = len(jobs) - 1, 0
    for job in jobs:
        if machine.work is not None:
            break
        machine.handler_ends(job)
        ended += 1
    assert (ended, len(sent(machine))) == ((waiting + 1) // 2, ended)


@pytest.mark.parametrize("why", ["no job ahead", "a stop"])
def test_rule_21_no_finish_lingers_past_an_idle_moment(why: str) -> None:
    machine, jobs = filled(concurrency=2, prefetch=0 if why == "no job ahead" else 64)
    machine.handler_ends(jobs[0])
    if why == "a stop":
        assert machine.work is None
        machine.told(StopAsked()).end()
    assert isinstance(machine.work, Finish)


def test_rule_21_a_lingering_finish_is_renewed_and_not_forgotten(desk: Desk) -> None:
    fleet = Fleet(desk, lambda job: 3)
    desk.enqueue(*[f"j{number}" for number in range(200)])
    worker = fleet.start(concurrency=4, prefetch=64, lease_ms=LEASE_MS)
    assert fleet.run(5000, lambda: worker.steps.leased == 0 and len(worker.starts) == 200)
    fleet.run(10)
    assert [job for job in (f"j{number}" for number in range(200)) if desk.places(job) != {"ended"}] == []
    assert fleet.sent.total() < 120, "they travelled together"
