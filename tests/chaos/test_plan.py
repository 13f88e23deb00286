"""The plan is a pure function of the seed, holds every fault once, and only hits workers that are alive."""

from __future__ import annotations

from chaos.faults import FAULTS
from chaos.plan import FAULT_NAMES, Pace, draw, worker_names

WORKERS = worker_names(3)
SEEDS = range(200)
PLANS = [draw(seed, workers=WORKERS) for seed in SEEDS]


def test_same_seed_same_plan() -> None:
    assert draw(7, workers=WORKERS) == draw(7, workers=WORKERS)


def test_the_draw_is_the_same_on_every_machine_and_python() -> None:
    assert [
        (planned.fault, planned.target, planned.delay_ms, planned.replacement) for planned in draw(1, workers=WORKERS).faults
    ] == [
        ("1-worker-freeze", "worker-2", 1160, ""),
        ("2-worker-kill", "worker-1", 1758, "worker-4"),
    ]


def test_every_plan_holds_kill_and_freeze_once_each_and_a_fault_exists_for_both() -> None:
    for plan in PLANS:
        assert sorted(planned.name for planned in plan.faults) == sorted(FAULT_NAMES) == sorted(FAULTS)
        assert len({planned.fault for planned in plan.faults}) == len(plan.faults)


def test_a_victim_is_alive_when_its_turn_comes() -> None:
    for plan in PLANS:
        alive = set(WORKERS)
        for planned in plan.faults:
            assert planned.target in alive
            if planned.name == "worker-kill":
                assert planned.replacement not in alive | set(WORKERS)
                alive = alive - {planned.target} | {planned.replacement}
            else:
                assert planned.replacement == ""


def test_a_plan_starts_quiet_and_ends_healed_settled_and_drained() -> None:
    for plan in PLANS:
        phases = plan.phases()
        assert phases[0] == "lead-in"
        assert phases[-3:] == ("settle", "drain", "end")
        faults = phases[1:-3]
        assert list(faults[1::2]) == [f"recover-{fault}" for fault in faults[0::2]]
        assert plan.pace.lead_in_ms > 0
        assert plan.pace.settle_ms > 0
        assert all(0 <= planned.delay_ms <= plan.pace.delay_max_ms for planned in plan.faults)


def test_order_victims_and_delays_vary_with_the_seed() -> None:
    assert {plan.faults[0].name for plan in PLANS} == set(FAULT_NAMES)
    killed = {planned.target for plan in PLANS for planned in plan.faults if planned.name == "worker-kill"}
    frozen = {planned.target for plan in PLANS for planned in plan.faults if planned.name == "worker-freeze"}
    assert killed == set(WORKERS)
    assert frozen == {*WORKERS, "worker-4"}
    assert len({planned.delay_ms for plan in PLANS for planned in plan.faults}) > 100


def test_delays_stay_inside_the_pace() -> None:
    plans = [draw(seed, workers=WORKERS, pace=Pace(delay_max_ms=3)) for seed in SEEDS]
    assert {planned.delay_ms for plan in plans for planned in plan.faults} == {0, 1, 2, 3}
