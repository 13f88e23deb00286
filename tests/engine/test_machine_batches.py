"""Handlers of batches in the worker's state machine: who runs together, and that each job keeps a lease and an end of its own."""

from typing import Any

import pytest

from engine.ops.claims import Failure, Finish, LeasedJob, Release, Retry
from engine.worker.machine.events import (
    Action,
    BatchEnded,
    Forked,
    GiveUpHandler,
    HandlerEnded,
    LoseLease,
    PauseAsked,
    Start,
    StopAsked,
)
from tests.engine.helpers.machine import Machine, batches, lost, started


def batching(most: int = 4, **settings: Any) -> Machine:
    return Machine(**{"concurrency": 1, "batches": {"work": most}, **settings})


def end(machine: Machine, *jobs: LeasedJob, failed: dict[str, str] | None = None) -> list[Action]:
    failed = failed or {}
    return machine.on(BatchEnded(tuple(HandlerEnded(job.lease, failed.get(job.lease.job)) for job in jobs)))


def jobs_of(machine: Machine, names: str, **more: Any) -> list[LeasedJob]:
    return [machine.job(name, **more) for name in names]


def test_what_is_there_starts_at_once_as_a_batch_in_one_place() -> None:
    machine = batching()
    assert machine.claim.most == 4, "a whole batch, although nothing is prefetched"
    assert batches(machine.give(*jobs_of(machine, "abc"))) == [["a", "b", "c"]]


def test_a_batch_has_at_most_so_many_jobs_and_the_next_has_the_rest() -> None:
    machine = batching()
    jobs = jobs_of(machine, "abcdef")
    assert batches(machine.give(*jobs)) == [["a", "b", "c", "d"]] and batches(end(machine, *jobs[:4])) == [["e", "f"]]
    assert isinstance(machine.work, Finish) and machine.work.leases == tuple(job.lease for job in jobs[:4])


def test_a_batch_that_runs_is_one_of_the_places() -> None:
    machine = batching(concurrency=2)
    machine.given(*jobs_of(machine, "abcd")).wake(True)
    assert machine.steps.leased == 4 and machine.claim.most == 4, "the other place wants a batch too"
    assert batches(machine.give(*jobs_of(machine, "ef"))) == [["e", "f"]]
    assert "work" not in machine.out and "wake" not in machine.out, "no place is free, and nothing is taken ahead"


def test_while_a_handler_is_measured_to_be_short_a_whole_batch_is_taken_ahead() -> None:
    machine = batching(prefetch=1)
    jobs = machine.takes(*"abcd")
    machine.now_ms += 10
    end(machine, *jobs)
    assert machine.claim.most == 4 and machine.given(*jobs_of(machine, "efgh")).claim.most == 4


def test_only_jobs_of_one_lane_and_name_run_together() -> None:
    machine = batching(concurrency=4)
    first, other_lane, second, other_name = jobs_of(machine, "abcd")
    other_lane, other_name = other_lane._replace(lane="main\x00acme"), other_name._replace(name="else")
    actions = machine.give(first, other_lane, second, other_name)
    assert batches(actions) == [["a", "c"], ["b"]]
    assert [start.batch for start in actions if isinstance(start, Start) and start.job is other_name] == [()]


def test_rule_12_a_job_with_a_crash_behind_it_runs_alone() -> None:
    for names, others in (("axb", [["a", "b"]]), ("xab", [])):
        machine = batching(concurrency=1 + len(others))
        machine.give(*(machine.job(name, crashes=name == "x") for name in names))
        assert batches(machine.log) == others and batches(machine.mark()) == [["x"]]


def test_rule_9_a_job_with_too_little_left_of_its_lease_is_given_back_and_the_others_start() -> None:
    for now_ms, together in ((7201, ["fresh"]), (7200, ["fresh", "old"])):
        machine = batching(concurrency=2, lease_ms=9000)
        running, other = machine.job("r")._replace(name="else"), machine.job("s")._replace(name="else")
        old, fresh = machine.job("old"), machine.job("fresh")
        machine.give(running, other, old, fresh)
        # Only one of the two that wait is renewed. Neither waits so long in life: it would go back before.
        hand = machine.steps._lease_table  # pyright: ignore[reportPrivateUsage]
        hand.renewed([fresh.lease, other.lease], now_ms * 1_000_000)
        hand.pooled.ready.rotate(1)
        machine.now_ms = now_ms
        assert batches(machine.handler_ends(running)) == [together]
        assert (machine.work == Release((old.lease,))) == (together == ["fresh"])


def test_each_job_of_a_batch_has_its_own_end() -> None:
    machine = batching()
    jobs = machine.takes(*"abc", backoff_ms=7)
    end(machine, *jobs, failed={"b": "ValueError: b"})
    assert machine.work == Retry((Failure(jobs[1].lease, "ValueError: b", 7),))
    assert machine.out["finish"].operation == Finish((jobs[0].lease, jobs[2].lease)) and machine.steps.leased == 0


def test_all_leases_of_a_batch_are_renewed_and_one_is_lost_alone() -> None:
    machine = batching(lease_ms=9000)
    jobs = machine.takes(*"abc")
    assert set(machine.after(3001).renewal.leases) == {job.lease for job in jobs}
    actions = machine.extend(*["stale" if lease.job == "b" else "ok" for lease in machine.renewal.leases])
    assert [action for action in actions if isinstance(action, LoseLease)] == [LoseLease(jobs[1].lease)]
    assert {lease.job for lease in machine.after(3000).renewal.leases} == {"a", "c"}
    end(machine, *jobs)
    assert isinstance(machine.work, Finish) and len(machine.work.leases) == 3, "rule 37: the server decides"


def test_a_job_of_a_batch_that_takes_too_long_is_given_up_and_the_place_is_free_with_the_end_of_the_batch() -> None:
    machine = batching(lease_ms=60_000)
    slow, other = machine.job("slow", timeout_ms=100), machine.job("other")
    machine.give(slow, other)
    assert [action.job for action in machine.wait(101) if isinstance(action, GiveUpHandler)] == [slow]
    assert isinstance(machine.work, Retry)
    machine.end()
    assert machine.work is None, "its place is taken"
    end(machine, slow, other)
    assert isinstance(machine.work, Finish) and machine.work.leases == (other.lease,) and machine.steps.leased == 0


def test_a_stop_waits_for_the_batch_and_gives_the_rest_back() -> None:
    machine = batching(2)
    jobs = machine.takes(*"abc")
    assert machine.told(StopAsked()).work == Release((jobs[2].lease,))
    end(machine.after_end(), *jobs[:2])
    assert isinstance(machine.work, Finish) and machine.work.claim is None


def test_a_paused_worker_starts_no_batch() -> None:
    machine = batching()
    assert not started(machine.told(PauseAsked(True)).give(*jobs_of(machine, "ab"))) and isinstance(machine.work, Release)


def test_single_jobs_that_wait_behind_a_claim_for_batches_go_back_and_only_as_many_as_may_run_are_claimed_again() -> None:
    machine = batching(50)
    jobs = [machine.job(str(number))._replace(name="else") for number in range(50)]
    machine.given(*jobs).wait(201)
    assert isinstance(machine.work, Release) and len(machine.work.leases) == 49
    assert machine.after_end().ended(jobs[0]).claim.most == 1
    (job,) = machine.takes("w")
    end(machine, job)
    assert machine.claim.most == 50, "a batch has come, so more may be there"


def test_in_hand_are_never_more_than_one_renewal_carries() -> None:
    machine = batching(1000, concurrency=8)
    for _ in range(2):
        machine.give(*[machine.job(f"j{number}") for number in range(machine.claim.most)])
    assert machine.steps.leased == 2000 and "work" not in machine.out and "wake" not in machine.out


def test_the_cheap_way_from_one_job_to_the_next_is_not_for_batches() -> None:
    machine = batching(inline=frozenset({"work", "else"}), concurrency=0, prefetch=4)
    running = machine.job("r")._replace(name="else")
    machine.given(running, *jobs_of(machine, "ab")).steps.wake_at_ns(machine.now_ns)
    assert machine.steps.next_start(running.lease, machine.now_ns) is None
    assert batches(machine.handler_ends(running)) == [["a", "b"]]


def test_many_failures_with_their_traces_go_out_in_several_calls() -> None:
    machine = batching(500)
    jobs = machine.takes(*(f"j{number}" for number in range(500)))
    end(machine, *jobs, failed={job.lease.job: "no" for job in jobs})
    sizes: list[int] = []
    while isinstance(machine.work, Retry):
        sizes.append(len(machine.work.failures))
        machine.end()
    assert sizes == [200, 200, 100]


@pytest.mark.parametrize("event", [Forked(), StopAsked("at once")])
def test_what_happens_to_a_worker_in_the_middle_of_a_batch(event: Any) -> None:
    machine = batching()
    jobs = machine.takes(*"ab")
    end(machine.told(event), *jobs)
    assert machine.steps.leased == 0 and not lost(machine.log)
