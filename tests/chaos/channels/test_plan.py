"""The plan of a run on channels, its spec, and where its clocks stand before the load."""

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest

from bench.channels.workload import LOCUST_SHARE, PLAIN_SHARES, ChannelWorkload
from chaos.channels.plan import FAULT_NAMES, KILL, PACE, RESTORE, draw, publisher_names
from chaos.channels.spec import Channel, ChannelSpec, Crossings, preset_channels
from chaos.plan import SERVERS
from chaos.scenarios.channels import crossings_of
from engine.models.dsps import CLOCK_MAX, clock_ahead

PUBLISHERS = publisher_names(2)


def test_a_plan_is_a_function_of_its_seed_and_holds_each_fault_once() -> None:
    plans = [draw(seed, publishers=PUBLISHERS) for seed in range(1, 30)]
    assert plans == [draw(seed, publishers=PUBLISHERS) for seed in range(1, 30)]
    for plan in plans:
        assert sorted([planned.name for planned in plan.faults]) == sorted(FAULT_NAMES)
        assert plan.needs_network()
    assert len({tuple(planned.name for planned in plan.faults) for plan in plans}) > 20


def test_the_snapshot_is_put_back_last() -> None:
    for seed in range(1, 30):
        assert draw(seed, publishers=PUBLISHERS).faults[-1].name == RESTORE


def test_a_killed_subscriber_is_replaced_and_its_replacement_may_be_hit() -> None:
    hit_later: set[str] = set()
    for seed in range(1, 60):
        plan = draw(seed, publishers=PUBLISHERS)
        (kill,) = [planned for planned in plan.faults if planned.name == KILL]
        assert (kill.target in PLAIN_SHARES, kill.replacement) == (True, "subscriber-3")
        later = plan.faults[plan.faults.index(kill) + 1 :]
        assert all(kill.target not in planned.targets for planned in later)
        hit_later.update(name for planned in later for name in planned.targets)
    assert "subscriber-3" in hit_later


def test_the_network_fails_one_publisher_so_that_the_other_goes_on() -> None:
    for seed in range(1, 30):
        for planned in draw(seed, publishers=PUBLISHERS).faults:
            if planned.name in (KILL, RESTORE, "server-restart"):
                assert planned.target in (SERVERS, *PLAIN_SHARES)
                continue
            assert len([name for name in planned.targets if name in PUBLISHERS]) == 1
            everybody = planned.name in ("net-latency", "net-down")
            assert (LOCUST_SHARE in planned.targets) == everybody
            assert len(planned.targets) == (4 if everybody else 2)


def test_each_clock_wraps_when_what_is_planned_until_its_instant_is_published() -> None:
    workload, crossings = ChannelWorkload(3), Crossings(first_ms=2_000, last_ms=20_000)
    made = preset_channels(workload, crossings)
    assert [channel.name for channel in made] == [channel.name for channel in workload.channels]
    planned, at_start = workload.new_messages(crossings.last_ms), workload.new_messages(0)
    for channel in made:
        if channel.name == "short":
            assert channel.preset_clock is None
            continue
        assert channel.preset_clock is not None and 0 < channel.preset_clock <= CLOCK_MAX
        assert clock_ahead(channel.preset_clock, at_start[channel.name]) > 0
        # A message comes before the wrap, also where that is due with the first.
        assert clock_ahead(channel.preset_clock, 1) > 0
        assert clock_ahead(channel.preset_clock, max(2, planned[channel.name])) < 0


@pytest.mark.slow
def test_crossings_are_spread_over_the_load() -> None:
    workload, crossings = ChannelWorkload(1), Crossings()
    presets = {channel.name: channel.preset_clock for channel in preset_channels(workload, crossings)}
    span_ms = crossings.last_ms - crossings.first_ms
    wrapped: list[int] = []
    for part in range(4):
        counts = workload.new_messages(crossings.first_ms + part * span_ms / 3 + 1)
        wrapped.append(sum(clock is not None and clock_ahead(clock, counts[name]) < 0 for name, clock in presets.items()))
    assert wrapped[-1] == len([clock for clock in presets.values() if clock is not None])
    assert all(later - earlier >= 7 for earlier, later in pairwise(wrapped)), wrapped


def test_clocks_wrap_while_the_faults_of_the_plan_last() -> None:
    usual = crossings_of(draw(1, publishers=PUBLISHERS))
    assert Crossings().last_ms - 5_000 < usual.last_ms <= Crossings().last_ms
    for seed in range(60):
        plan = draw(seed, publishers=PUBLISHERS, minutes=1)
        found = crossings_of(plan)
        # With few faults the load is over soon.
        assert found.first_ms + 2_000 < found.last_ms < PACE.lead_in_ms + PACE.settle_ms + 16_000 * len(plan.faults) + 1_000
        assert found.last_ms < usual.last_ms


def test_the_spec_says_what_the_judge_needs(tmp_path: Path) -> None:
    channel = Channel("orders", "fan-out 1", ("reader",), (), 1, 1_000, CLOCK_MAX)
    ChannelSpec("run", 1, channels=(channel,)).write(tmp_path / "spec.json", harness_errors=[])
    written = json.loads((tmp_path / "spec.json").read_text())
    assert (written["model"], written["scenario"], written["topology"]) == ("dsps", "channels", "aof")
    assert written["channels"] == [{**asdict(channel), "subscribers": ["reader"], "slow": []}]
    assert (written["schema"], written["harness_errors"]) == (1, []) and "lease_ms" not in written
