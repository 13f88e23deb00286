"""The worker's state machine and schedules: what is due ticks, in the sweep, and holds up nothing (rule 24)."""

import pytest

from engine.worker.machine.events import StopAsked
from tests.engine.using import SERVER_MS, Claim, Count, Counts, DueSchedule, Machine, Sweep, Swept, Tick, Ticked, exits

SECOND = '{"every_ms":1000}'
MARS = '{"zone":"Mars/Olympus","cron":"* * * * *"}'


def due(name: str, timing: str = SECOND, expected_ms: int = SERVER_MS) -> DueSchedule:
    return DueSchedule(name, "7", expected_ms, SERVER_MS, timing, "{}")


def swept(machine: Machine, *schedules: DueSchedule, sleep_ms: int = 0) -> None:
    """Answer a sweep."""
    assert isinstance(machine.out["sweep"].operation, Sweep)
    machine.answer("sweep", Swept(machine.srv_us, sleep_ms, due=schedules))


def outstanding(machine: Machine) -> Tick:
    operation = machine.out["sweep"].operation
    assert isinstance(operation, Tick)
    return operation


@pytest.mark.feature("BQ10", "BN13", "MQ08")
def test_what_is_due_ticks_before_the_next_sweep() -> None:
    machine = Machine()
    swept(machine, due("a"), due("b"))
    first = outstanding(machine)
    assert first == Tick("0" * 15 + "1", 2, "a", "7", SERVER_MS, (SERVER_MS,), SERVER_MS + 1000, 0, "allow")
    machine.answer("sweep", Ticked(machine.srv_us, "ticked", ("cron:a:1",)))
    assert (outstanding(machine).schedule, outstanding(machine).counter) == ("b", 3)
    machine.answered("sweep", Ticked(machine.srv_us, "moved")).wait(2)
    # Their counters are taken: no later sweep is mistaken for an earlier one.
    operation = machine.out["sweep"].operation
    assert isinstance(operation, Sweep) and operation.counter == 4


def test_ticks_are_reckoned_from_the_servers_time_in_the_reply() -> None:
    tick = outstanding(Machine().answered("sweep", Swept((SERVER_MS + 2500) * 1000, 0, due=(due("a"),))))
    assert (tick.ticks_ms, tick.next_ms) == ((SERVER_MS, SERVER_MS + 1000, SERVER_MS + 2000), SERVER_MS + 3000)


@pytest.mark.parametrize("timing", ["", "no JSON", '{"cron":"x"}', '{"zone":"Mars/Olympus","months":"9"}', '{"every_ms":"9"}'])
def test_what_cannot_be_read_is_set_aside_and_the_next_one_ticks(timing: str) -> None:
    machine = Machine()
    swept(machine, due("bad", timing), due("good"))
    tick = outstanding(machine)
    assert (tick.schedule, tick.ticks_ms, tick.next_ms, tick.error != "") == ("bad", (), 0, True)
    assert outstanding(machine.answered("sweep", Ticked(machine.srv_us, "ticked"))).error == ""


def test_a_zone_that_is_not_known_here_is_left_to_others_for_half_a_minute_and_then_set_aside() -> None:
    machine = Machine()
    swept(machine, due("bad", MARS), due("good"))
    assert (outstanding(machine).schedule, outstanding(machine).counter) == ("good", 2)
    machine.answer("sweep", Ticked(machine.srv_us, "ticked"))
    # It stays due, which must not make this worker sweep without a pause.
    began_ms, operation = machine.now_ms, machine.sweeps_after(200)
    assert isinstance(operation, Sweep) and operation.yields, "a follower that knows the zone may lead"
    swept(machine, due("bad", MARS))
    while "sweep" not in machine.out:
        machine.wait(201)
        assert machine.now_ms - began_ms < 30_500
        swept(machine, due("bad", MARS))
    assert machine.now_ms - began_ms >= 30_000
    tick = outstanding(machine)
    assert (tick.schedule, tick.next_ms, "tzdata" in tick.error) == ("bad", 0, True)


def test_each_tick_of_a_zone_that_is_not_known_here_is_left_for_so_long() -> None:
    """Others tick it, late perhaps: that this worker has waited before says nothing about the next one."""
    machine = Machine()
    for at in range(200):
        swept(machine, due("theirs", MARS, SERVER_MS + at))
        assert "sweep" not in machine.out
        machine.wait(201)


def test_a_tick_that_the_server_refuses_holds_up_no_other_and_waits_a_sweep() -> None:
    machine = Machine()
    swept(machine, due("bad"), due("good"))
    assert outstanding(machine.failed("sweep", fault=True)).schedule == "good"
    assert isinstance(machine.answered("sweep", Ticked(machine.srv_us, "ticked")).sweeps_after(1000), Sweep)


def test_after_a_tick_that_went_unanswered_the_next_sweep_asks_anew() -> None:
    """It may have been carried out: whether the schedule is still due, the server says."""
    machine = Machine()
    swept(machine, due("a"), due("b"))
    assert "sweep" not in machine.failed("sweep").out
    swept(machine.after(1001), due("b"), sleep_ms=1000)
    assert outstanding(machine).schedule == "b"


def test_a_worker_whose_tick_made_a_job_claims_again() -> None:
    machine = Machine()
    machine.given().wake(False)
    assert machine.work is None
    swept(machine, due("a"))
    assert isinstance(machine.answered("sweep", Ticked(machine.srv_us, "ticked", ("cron:a:1",))).work, Claim)


def test_burst_counts_after_the_ticks() -> None:
    machine = Machine(burst=True)
    swept(machine, due("a"))
    assert outstanding(machine).schedule == "a"
    machine.answer("sweep", Ticked(machine.srv_us, "ticked", ("cron:a:1",)))
    assert isinstance(machine.out["sweep"].operation, Count)
    assert not exits(machine.answered("sweep", Counts(machine.srv_us, 1, 0, 0, 0, 0, 0, 0)).log)


@pytest.mark.feature("BN25")
def test_a_machine_without_classes_sweeps_and_claims_nothing() -> None:
    machine = Machine(concurrency=0, classes=())
    for _ in range(3):
        assert set(machine.out) == {"sweep"}
        swept(machine, due("a"))
        machine.answered("sweep", Ticked(machine.srv_us, "ticked", ("cron:a:1",))).wait(2)
    assert exits(machine.on(StopAsked()))
