"""Turns: what a runner of many short handlers asks the machine for after each of them. They decide nothing that `on` would not
have decided, and refuse where there is more to decide."""

import random

import pytest

from engine.ops.claims import Finish, LeasedJob, Mark, Release
from engine.worker.machine.events import HandlerEnded, Send, Start, StopAsked, TimerFired
from tests.engine.helpers.machine import MS, Machine, started

INLINE = frozenset({"work"})


def inline_machine(**settings: object) -> Machine:
    """A machine all of whose jobs are inline."""
    return Machine(concurrency=0, prefetch=64, **settings)  # type: ignore[arg-type]


def batch(machine: Machine, count: int, timed: int | None = None) -> list[LeasedJob]:
    """So many jobs come in at once, and the first one runs. `timed`: the number of one that has a timeout."""
    machine.warm()
    jobs = [machine.job(f"j{number}", timeout_ms=60_000 if number == timed else 0) for number in range(count)]
    assert started(machine.give(*jobs)) == ["j0"]
    return jobs


def enough(count: int) -> tuple[Machine, list[LeasedJob]]:
    """As `batch`, with no claim of more on its way."""
    machine = inline_machine()
    jobs = batch(machine, count)
    if "work" in machine.out:
        machine.give()
    return machine, jobs


def turn(machine: Machine, job: LeasedJob, result: bytes | None = None) -> str | None:
    """Ask for a turn; the id of the job that starts."""
    machine.steps.wake_at_ns(machine.now_ns)
    following = machine.steps.next_start(job.lease, machine.now_ns, result)
    return None if following is None else following.lease.job


def finishes(machine: Machine) -> list[str]:
    """The jobs whose finishes are on their way."""
    operation = machine.work
    assert isinstance(operation, Finish)
    return [lease.job for lease in operation.leases]


def armed(machine: Machine, job: LeasedJob) -> list[str]:
    """The first turn is refused, for the machine is not woken often enough yet; its end goes through `on`."""
    assert turn(machine, job) is None
    return started(machine.handler_ends(job))


def test_turns_go_through_the_batch_in_order() -> None:
    machine = inline_machine()
    jobs = batch(machine, 20)
    assert armed(machine, jobs[0]) == ["j1"]
    for at in range(1, 8):
        assert turn(machine, jobs[at]) == f"j{at + 1}"
    assert machine.steps.leased == 12


def test_what_turns_leave_undecided_is_decided_within_5_ms() -> None:
    """Rule 21: a finish lingers no longer, although nobody tells the machine of it with an event."""
    machine, jobs = enough(40)
    armed(machine, jobs[0])
    machine.now_ms += 1
    assert turn(machine, jobs[1]) == "j2" and machine.work is None
    machine.now_ms += 1
    assert turn(machine, jobs[2], b"1") == "j3" and machine.work is None
    assert finishes(machine.after(4)) == ["j0", "j1", "j2"]
    assert isinstance(machine.work, Finish) and machine.work.values[0].took_ms == 1


def test_a_turn_is_refused_where_the_finishes_are_to_go() -> None:
    """Half of what was in hand: the next jobs are asked for before the last of these has started."""
    machine, jobs = enough(20)
    armed(machine, jobs[0])
    at = 1
    while turn(machine, jobs[at]) is not None:
        at += 1
    assert machine.work is None and 5 <= at <= 11 and len(finishes(machine.ended(jobs[at]))) == at + 1


def test_rule_9_a_turn_starts_nothing_that_has_too_little_of_its_lease_left() -> None:
    """A slow job in front: what waited behind it goes back unstarted, also in the middle of a batch."""
    machine = inline_machine(lease_ms=200)
    jobs = batch(machine, 6)
    armed(machine, jobs[0])
    machine.now_ms += 161
    assert turn(machine.told(TimerFired()), jobs[1]) is None
    assert turn(machine, jobs[1]) is None, "also now that the machine is woken often enough"
    assert started(machine.handler_ends(jobs[1])) == []
    while not isinstance(machine.work, Release):
        fused = isinstance(machine.work, Finish) and machine.work.claim is not None
        machine.give() if fused else machine.end()
    assert {lease.job for lease in machine.work.leases} == {f"j{number}" for number in range(2, 6)}
    assert machine.steps.leased == 0


@pytest.mark.parametrize("left_ms", [40, 39])
def test_rule_9_a_turn_looks_at_the_lease_of_the_job_that_it_starts(left_ms: int) -> None:
    machine = inline_machine(lease_ms=200)
    jobs = batch(machine, 6)
    armed(machine, jobs[0])
    machine.now_ms += 200 - left_ms - 1
    assert turn(machine.told(TimerFired()), jobs[1]) is None
    machine.now_ms += 1
    assert turn(machine, jobs[1]) == ("j2" if left_ms == 40 else None)


def test_a_turn_is_measured() -> None:
    """What is taken ahead grows by turns as by events."""
    machine = inline_machine()
    machine.warm(3)
    jobs = [machine.job(f"j{number}") for number in range(machine.claim.most)]
    before = len(jobs)
    armed(machine.given(*jobs), jobs[0])
    at = 1
    while turn(machine, jobs[at]) is not None:
        at += 1
    assert at > 2 and machine.ended(jobs[at]).claim.most + machine.steps.leased > 4 * before


def test_rule_21_what_waits_behind_a_slow_inline_handler_goes_back() -> None:
    machine, jobs = enough(50)
    assert isinstance(machine.after(250).work, Release)
    assert {lease.job for lease in machine.work.leases} == {job.lease.job for job in jobs[1:]}
    assert machine.steps.leased == 1


def test_rule_21_the_places_of_the_pool_do_not_keep_what_waits_for_the_inline_one() -> None:
    machine = Machine(concurrency=8, prefetch=64, inline=INLINE)
    jobs = machine.warmed().takes(*(f"j{number}" for number in range(50)))
    assert isinstance(machine.after(250).work, Release)
    assert {lease.job for lease in machine.work.leases} == {job.lease.job for job in jobs[1:]}


def test_rule_21_a_slow_inline_handler_is_none_of_those_that_work_off_what_is_taken_ahead() -> None:
    machine = Machine(concurrency=1, prefetch=64, inline=INLINE)
    machine.warmed().takes("slow")
    machine.after(100).sweep(promoted=1)
    assert machine.claim.most == 2 + 50 - 1


def test_rule_12_a_crash_behind_a_job_is_no_matter_for_a_turn() -> None:
    machine = inline_machine()
    plain, crashed, last = machine.warmed().job("plain"), machine.job("crashed", crashes=1), machine.job("last")
    assert turn(machine.given(plain, crashed, last), plain) is None
    machine.handler_ends(plain)
    while not isinstance(machine.work, Mark):
        machine.give() if isinstance(machine.work, Finish) else machine.end()
    assert started(machine.mark()) == ["crashed"] and turn(machine, crashed) is None
    assert started(machine.handler_ends(crashed)) == ["last"]


@pytest.mark.parametrize("timed", [None, 1, 2])
def test_a_stop_and_a_timeout_of_either_job_refuse_turns(timed: int | None) -> None:
    machine = inline_machine()
    jobs = batch(machine, 10, timed)
    armed(machine, jobs[0])
    assert turn(machine if timed else machine.told(StopAsked()), jobs[1]) is None


def test_one_line_does_not_hold_up_the_other() -> None:
    machine = Machine(concurrency=1, prefetch=64, inline=INLINE)
    assert machine.claim.most == 3, "two places and one ahead"
    inline, pooled = machine.job("inline"), machine.job("pooled")._replace(name="pooled")
    actions = machine.give(inline, pooled)
    begun = [(action.job.lease.job, action.inline) for action in actions if isinstance(action, Start)]
    assert begun == [("pooled", False), ("inline", True)]
    more = [machine.ended(pooled).job("p2")._replace(name="pooled"), machine.job("i2")]
    assert started(machine.give(*more)) == ["p2"], "the inline one waits for the one that runs"
    assert started(machine.handler_ends(inline)) == ["i2"]


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 20))])
def test_turns_change_nothing_but_the_cost(seed: int) -> None:
    """Two machines over the same work, one of which is fed with events alone: they start the same jobs in the same order and tell
    the same ends."""
    logs: list[tuple[list[str], list[str]]] = []
    for turns in (False, True):
        draw, machine, starts = random.Random(seed), inline_machine(), list[str]()
        ends, running = list[str](), list[LeasedJob]()
        count, used = 0, 0
        for _ in range(3000):
            for action in machine.log:
                if isinstance(action, Start):
                    running.append(action.job)
                    starts.append(action.job.lease.job)
                elif isinstance(action, Send) and isinstance(action.call.operation, Finish):
                    ends += [lease.job for lease in action.call.operation.leases]
            machine.log.clear()
            machine.now_ms += draw.choice([0, 0, 1])
            if running and draw.random() < 0.8:
                job = running.pop()
                following = machine.steps.next_start(job.lease, machine.now_ns) if turns else None
                if following is not None:
                    used += 1
                    running.append(following)
                    starts.append(following.lease.job)
                else:
                    machine.on(HandlerEnded(job.lease, None))
            elif isinstance(machine.work, Finish) and machine.work.claim is None:
                machine.end()
            elif "work" in machine.out and count < 400:
                jobs = [machine.job(f"j{count + number}") for number in range(min(machine.claim.most, 400 - count))]
                count += len(jobs)
                machine.give(*jobs)
            elif "work" in machine.out:
                machine.give()
            if machine.steps.wake_at_ns(machine.now_ns) <= machine.now_ns + MS // 2:
                machine.on(TimerFired())
        assert (used > 100) == turns
        logs.append((starts, sorted(ends)))
    assert logs[0] == logs[1] and len(logs[0][0]) == len(logs[0][1]) == 400
