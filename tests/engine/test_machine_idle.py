"""Idle moments (rule 21): what has ended goes out although a claim is on its way, and a claim is worth its round trip."""

from engine.ops.claims import Claim, Finish, LeasedJob, Mark
from engine.worker.machine.events import StopAsked
from tests.engine.helpers.machine import Machine, exits, holding, started


def idle(*names: str) -> tuple[Machine, list[LeasedJob]]:
    """A machine with a claim on its way that has run these jobs meanwhile: the first one's finish is in that call."""
    machine = Machine(concurrency=len(names), prefetch=0)
    jobs = [machine.job(name) for name in names]
    machine.give(*jobs)
    for job in jobs:
        machine.handler_ends(job)
    assert isinstance(machine.work, Finish) and machine.work.leases == (jobs[0].lease,)
    return machine, jobs


def alone(machine: Machine) -> list[str]:
    """The finishes that travel without a claim."""
    operation = machine.out["finish"].operation
    assert isinstance(operation, Finish) and operation.claim is None
    return [lease.job for lease in operation.leases]


def test_rule_21_finishes_do_not_wait_for_the_answer_to_a_claim_when_nothing_runs() -> None:
    machine, _ = idle("a", "b", "c")
    assert alone(machine) == ["b", "c"]


def test_while_something_runs_they_wait_and_travel_with_the_next_claim() -> None:
    machine, jobs = holding(*"abc", concurrency=3, prefetch=0)
    assert "finish" not in machine.ended(jobs[0]).ended(jobs[1]).out
    assert isinstance(machine.given().work, Finish) and machine.work.leases == (jobs[1].lease,)


def test_rule_4_the_claim_stays_the_only_one() -> None:
    machine, _ = idle("a", "b")
    machine.end("finish")
    assert "finish" not in machine.out
    assert isinstance(machine.given().work, Claim) or machine.work is None


def test_rule_5_an_unanswered_finish_is_sent_again_the_same() -> None:
    machine, _ = idle("a", "b")
    call = machine.out["finish"]
    assert "finish" not in machine.failed("finish").out and machine.after(101).out["finish"] is call


def test_rule_12_a_mark_waits_until_the_end_of_the_marked_one_before_it_was_answered() -> None:
    machine = Machine(concurrency=2)
    first, crashed = machine.job("a"), machine.job("c", crashes=1)
    machine.given(first, crashed).mark()
    assert isinstance(machine.ended(first).work, Finish) and alone(machine.ended(crashed)) == ["c"]
    machine.give(machine.job("d", crashes=1))
    assert not isinstance(machine.work, Mark), "its crash would be charged to the one before it"
    machine.end("finish")
    while not isinstance(machine.work, Mark):
        machine.give()
    assert started(machine.mark()) == ["d"]


def test_a_stop_waits_for_the_answer() -> None:
    machine, _ = idle("a", "b")
    assert not exits(machine.told(StopAsked()).given().log) and exits(machine.end("finish"))


def ahead(machine: Machine) -> list[LeasedJob]:
    """Warm up, take all but two of what may be taken, and hear of more work."""
    jobs = machine.warmed().takes(*(f"j{number}" for number in range(machine.claim.most - 2)))
    machine.sweep(promoted=1)
    return jobs


def test_a_claim_for_a_few_places_waits_while_many_jobs_have_not_started() -> None:
    """It would bring two jobs where the next one brings half of what is taken ahead."""
    machine = Machine(concurrency=1, prefetch=64)
    jobs = ahead(machine)
    assert machine.work is None
    ended = 0
    while machine.work is None:
        machine.handler_ends(jobs[ended])
        ended += 1
    assert ended > len(jobs) // 3 and machine.claim.most >= ended


def test_it_does_not_wait_while_a_place_of_the_other_kind_is_free() -> None:
    machine = Machine(concurrency=1, prefetch=64, inline=frozenset({"inline"}))
    ahead(machine)
    assert 0 < machine.claim.most < 5, "the inline place is free, whatever waits for the other one"
