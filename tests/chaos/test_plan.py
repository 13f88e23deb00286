"""The plan is a pure function of the seed and only hits workers that are alive. It holds every fault once, or some of them, or
none, for some minutes; what comes while another fault is in force may, and hits other processes."""

import pytest

from chaos import catalogue
from chaos import plan as drawing
from chaos.catalogue import KINDS
from reports.facts import WORKER_KILLS

WORKERS = drawing.worker_names(3)
SEEDS = range(200)
SEED_1 = [
    *(("1-net-down", "worker-3,producer-1", 1829, ""), ("2-worker-kill", "worker-2", 677, "worker-4")),
    *(("3-net-request-lost", "worker-4,producer-1", 748, ""), ("4-net-latency", "worker-1,worker-4,worker-3,producer-1", 51, "")),
    *(("5-worker-freeze", "worker-4", 1717, ""), ("6-net-reply-lost", "worker-1,worker-4,worker-3,producer-1", 1660, "")),
]
PLANS = [drawing.draw(seed, workers=WORKERS) for seed in SEEDS]
CONSUMERS = drawing.consumer_names(1)


def timed(minutes: int, topology: str = "embedded", seeds: range = SEEDS) -> list[drawing.Plan]:
    """The plans of the seeds that are to last so many minutes."""
    return [drawing.draw(seed, workers=WORKERS, consumers=CONSUMERS, topology=topology, minutes=minutes) for seed in seeds]


def test_the_draw_is_the_same_on_every_machine_and_python() -> None:
    drawn = [(one.fault, one.target, one.delay_ms, one.replacement) for one in drawing.draw(1, workers=WORKERS).faults]
    assert drawn == SEED_1
    workers_only = drawing.draw(1, workers=WORKERS, kinds=("worker-kill", "worker-freeze")).faults
    assert [(planned.fault, planned.target, planned.delay_ms, planned.replacement) for planned in workers_only] == [
        ("1-worker-freeze", "worker-2", 1160, ""),
        ("2-worker-kill", "worker-1", 1758, "worker-4"),
    ]


def test_a_worker_that_is_connected_directly_is_killed_before_all_other_faults() -> None:
    """So that what takes its place is hit by the network like everybody."""
    for seed in SEEDS:
        first, *rest = drawing.draw(seed, workers=WORKERS, direct=("worker-1",)).faults
        assert (first.fault, first.target, first.replacement) == ("1-worker-kill", "worker-1", "worker-4")
        assert sorted(planned.name for planned in rest) == sorted(drawing.FAULT_NAMES)
        assert not any("worker-1" in planned.targets for planned in rest)
        assert all("worker-4" in planned.targets for planned in rest if planned.name == "net-latency" and planned is rest[0])


def test_every_plan_holds_each_kind_once() -> None:
    for plan in PLANS:
        assert sorted(planned.name for planned in plan.faults) == sorted(drawing.FAULT_NAMES)
        assert len({planned.fault for planned in plan.faults}) == len(plan.faults) and plan.needs_network()


def test_a_plan_holds_only_the_kinds_that_are_wished_for_in_any_order() -> None:
    plan = drawing.draw(3, workers=WORKERS, kinds=("net-down", "worker-kill"))
    assert sorted(planned.name for planned in plan.faults) == ["net-down", "worker-kill"]
    assert plan == drawing.draw(3, workers=WORKERS, kinds=("worker-kill", "net-down"))
    assert not drawing.draw(3, workers=WORKERS, kinds=("worker-kill",)).needs_network()
    assert drawing.draw(3, workers=WORKERS, kinds=()).faults == ()


def test_a_victim_is_alive_when_its_turn_comes() -> None:
    for plan in PLANS:
        alive = set(WORKERS)
        for planned in plan.faults:
            workers = set(planned.targets) - {drawing.PRODUCER}
            assert workers <= alive
            assert len(workers) == (len(alive) if planned.name in drawing.FLEET_FAULT_NAMES else 1)
            if planned.name == "worker-kill":
                assert planned.replacement not in alive | set(WORKERS)
                alive = alive - workers | {planned.replacement}
            else:
                assert planned.replacement == ""


def test_the_judge_knows_every_fault_that_a_worker_does_not_survive() -> None:
    assert drawing.KILLING == WORKER_KILLS


@pytest.mark.parametrize("name", drawing.KILLING)
def test_a_worker_that_does_not_survive_is_replaced(name: str) -> None:
    for seed in range(20):
        killed, frozen = drawing.draw(seed, workers=WORKERS, kinds=(name, "worker-freeze")).faults
        killed, frozen = (killed, frozen) if killed.name == name else (frozen, killed)
        assert (killed.replacement, frozen.replacement) == ("worker-4", "")


def test_the_producers_are_hit_by_every_network_fault_and_by_no_other() -> None:
    for plan in PLANS:
        for planned in plan.faults:
            assert (drawing.PRODUCER in planned.targets) == (planned.name in drawing.NETWORK_FAULT_NAMES)
            assert planned.target == ",".join(planned.targets)


def test_a_plan_starts_quiet_and_ends_healed_settled_and_drained() -> None:
    for plan in PLANS:
        phases = plan.phases()
        assert phases[0] == "lead-in" and phases[-3:] == ("settle", "drain", "end")
        faults = phases[1:-3]
        assert list(faults[1::2]) == [f"recover-{fault}" for fault in faults[0::2]]
        assert plan.pace.lead_in_ms > 0 and plan.pace.settle_ms > 0
        assert all(0 <= planned.delay_ms <= plan.pace.delay_max_ms for planned in plan.faults)


def test_order_victims_and_delays_vary_with_the_seed() -> None:
    assert {plan.faults[0].name for plan in PLANS} == set(drawing.FAULT_NAMES)
    killed = {planned.target for plan in PLANS for planned in plan.faults if planned.name == "worker-kill"}
    frozen = {planned.target for plan in PLANS for planned in plan.faults if planned.name == "worker-freeze"}
    assert (killed, frozen) == (set(WORKERS), {*WORKERS, "worker-4"})
    assert len({planned.delay_ms for plan in PLANS for planned in plan.faults}) > 100


def test_delays_stay_inside_the_pace() -> None:
    plans = [drawing.draw(seed, workers=WORKERS, pace=drawing.Pace(delay_max_ms=3)) for seed in SEEDS]
    assert {planned.delay_ms for plan in plans for planned in plan.faults} == {0, 1, 2, 3}


@pytest.mark.parametrize("minutes", [1, 3])
def test_a_quarter_of_the_plans_of_some_minutes_is_a_control_without_faults(minutes: int) -> None:
    plans = timed(minutes)
    assert plans == timed(minutes)
    controls = [plan for plan in plans if not plan.faults]
    assert len(SEEDS) / 6 < len(controls) < len(SEEDS) / 3
    assert all(plan.phases() == ("lead-in", "settle", "drain", "end") and not plan.needs_network() for plan in controls)
    for plan in plans:
        assert len(plan.faults) <= drawing.FAULTS_A_MINUTE * minutes
        # Faults of servers come once; the others fill the time.
        filled = any(KINDS[planned.name].hits != catalogue.SERVERS for planned in plan.faults)
        assert not filled or len(plan.faults) == drawing.FAULTS_A_MINUTE * minutes


def test_the_others_hold_a_subset_of_the_kinds_again_and_again_but_faults_of_servers_once() -> None:
    assert len({frozenset(planned.name for planned in plan.faults) for plan in timed(2)}) > 20
    for plan in timed(5, "aof"):
        names = [planned.name for planned in plan.faults]
        assert all(names.count(name) <= 1 for name in names if KINDS[name].hits == catalogue.SERVERS)


def test_a_plan_of_some_minutes_holds_all_kinds_that_are_wished_for() -> None:
    kinds = ("net-down", "worker-kill", "worker-freeze", "net-latency")
    for seed in range(40):
        assert {planned.name for planned in drawing.draw(seed, workers=WORKERS, kinds=kinds, minutes=1).faults} == set(kinds)
        alone = drawing.draw(seed, workers=WORKERS, kinds=("net-down",), minutes=2)
        assert [planned.name for planned in alone.faults] == ["net-down"] * 2 * drawing.FAULTS_A_MINUTE


@pytest.mark.parametrize("topology", ["embedded", "aof", "sentinel"])
def test_a_fault_comes_during_another_one_only_where_it_may_and_hits_others(topology: str) -> None:
    pairs: set[tuple[str, str]] = set()
    for plan in timed(3, topology, range(2_000)):
        for before, planned in zip(plan.faults, plan.faults[1:], strict=False):
            if not planned.during:
                continue
            assert planned.during == before.fault and not before.during
            assert before.name in KINDS[planned.name].during
            assert not {*before.targets, before.replacement} & set(planned.targets), (before, planned)
            pairs.add((before.name, planned.name))
    fitting = catalogue.fitting(topology)
    assert pairs == {(outer, name) for name in fitting for outer in KINDS[name].during if outer in fitting}
    assert not any(planned.during for plan in PLANS for planned in plan.faults)


def test_kinds_come_during_kinds_that_exist_and_no_fault_of_servers_shares_its_time() -> None:
    for kind in KINDS.values():
        assert set(kind.during) <= set(KINDS) - {kind.name}
        assert all(KINDS[name].hits != catalogue.SERVERS for name in kind.during)
        assert not kind.during or kind.hits != catalogue.SERVERS


def test_the_second_kill_of_a_plan_of_each_usual_kind_has_phases_of_its_own() -> None:
    for seed in range(20):
        plan = drawing.draw(seed, workers=WORKERS, direct=WORKERS[:1])
        kills = [planned for planned in plan.faults if planned.name == drawing.KILL]
        assert [planned.phase for planned in kills] == ["kill", "kill-2"] and kills[0].target == WORKERS[0]
        assert len(set(plan.phases())) == len(plan.phases())
        assert all(planned.number == 1 for planned in drawing.draw(seed, workers=WORKERS, minutes=9).faults)


def test_the_phases_of_a_fault_lie_inside_those_of_the_fault_that_is_in_force() -> None:
    faults = (
        drawing.PlannedFault("1-worker-freeze", "worker-freeze", "worker-1", 0),
        drawing.PlannedFault("2-net-down", "net-down", "worker-2,producer-1", 0, during="1-worker-freeze"),
        drawing.PlannedFault("3-worker-kill", "worker-kill", "worker-3", 0, "worker-4"),
    )
    plan = drawing.Plan(1, drawing.Pace(), faults)
    inside = ("freeze", "net-down-in-freeze", "recover-net-down-in-freeze", "recover-freeze")
    assert plan.phases() == ("lead-in", *inside, "kill", "recover-kill", "settle", "drain", "end")
    assert [planned.fault for planned in plan.inside("")] == ["1-worker-freeze", "3-worker-kill"]
    assert plan.inside("1-worker-freeze") == faults[1:2]
