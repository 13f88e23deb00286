"""A replay is the spec and the plan of the run that it repeats, of jobs and of channels; what cannot be repeated is refused."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from chaos import calibration, errors, replay, topologies
from chaos.channels.plan import draw as draw_channels
from chaos.channels.plan import publisher_names
from chaos.channels.spec import ChannelSpec
from chaos.plan import Pace, Plan, draw, worker_names
from chaos.scenarios import bench, channels
from chaos.spec import RunSpec, SpecFile
from tests.golden import outcome, same

#: The plan of this seed has a fault in the force of another one.
CROWDED = 4

SLOW = calibration.Calibration(60, (calibration.Trial(60, 1, 1.0, 0.0, 1.0),))


def written(folder: Path, spec: Any, plan: Plan) -> Path:
    """The folder of a run whose spec.json is written as a drill does."""
    folder.mkdir()
    spec = replace(spec, plan=tuple(asdict(planned) for planned in plan.faults), pace=asdict(plan.pace), git_commit="abc")
    made: SpecFile = spec
    made.write(folder / "spec.json", harness_errors=[], ended_utc="now")
    return folder


def jobs(folder: Path) -> tuple[Path, RunSpec, Plan]:
    plan = draw(CROWDED, workers=worker_names(3), pace=Pace(calm_ms=7), minutes=1)
    assert any(planned.during for planned in plan.faults)
    fields: dict[str, Any] = {"mutant": "no-reap", "model": "lanes", "rate_per_s": 90, "lease_ms": 5_000, "direct": ()}
    spec = RunSpec("one", CROWDED, **fields, **bench.features("lanes"))
    return written(folder, spec, plan), spec, plan


def of_channels_too(folder: Path) -> tuple[Path, ChannelSpec, Plan]:
    plan = draw_channels(1, publishers=publisher_names(2), minutes=1)
    spec = channels.preset(ChannelSpec("one", 1, rate=0.5), channels.crossings_of(plan))
    return written(folder, spec, plan), spec, plan


@pytest.mark.parametrize("record", [jobs, of_channels_too])
def test_a_replay_has_the_spec_and_the_plan_of_its_run(record: Callable[[Path], tuple[Path, Any, Plan]], tmp_path: Path) -> None:
    folder, spec, plan = record(tmp_path / "run")
    found = replay.read(folder)
    assert found.plan == plan
    # The durability is written down as what was meant.
    meant = topologies.meant(spec.topology, spec.durability)
    assert json.loads(json.dumps(asdict(found.spec))) == json.loads(json.dumps(asdict(replace(spec, id="", durability=meant))))
    made = found.scenario(plan.faults)
    # Also on a machine that carries less: the rate, the limits and the clocks that were preset belong to what is repeated.
    assert asdict(replace(made.at_rate(SLOW), id="", calibration={})) == asdict(found.spec)
    assert made.plan == plan and made.spec.id.endswith("-replay")
    servers = topologies.label(spec.topology, spec.durability)
    assert servers in made.spec.id and (spec.model != "dsps" or servers == "aof-always")
    assert (made.mutant.name if made.mutant else "") == spec.mutant


def test_the_objectives_of_the_run_are_its_objectives_again(tmp_path: Path) -> None:
    folder, _, plan = jobs(tmp_path / "run")
    assert replay.read(folder).scenario(plan.faults).objectives is None
    (folder / "slo.toml").write_text("")
    assert replay.read(folder).scenario(plan.faults).objectives == folder / "slo.toml"


QUAKE = {"fault": "1-earthquake", "name": "earthquake", "target": "servers", "delay_ms": 0}
LATE = {"fault": "1-net-down", "name": "net-down", "target": "worker-1", "delay_ms": 0, "during": "0-net-down"}
NOT_REPEATED: list[dict[str, Any]] = [
    *({"schema": 2}, {"scenario": "soak"}, {"model": "dsps"}, {"scenario": "channels"}, {"pace": {}}, {"pace": {"rest_ms": 1}}),
    *({"plan": [{"fault": "1-x"}]}, {"lease_ms": 1}, {"plan": [QUAKE]}, {"plan": [LATE]}),
]


def test_a_run_that_cannot_be_repeated_is_refused(tmp_path: Path) -> None:
    folder, _, _ = jobs(tmp_path / "run")
    spec, told = json.loads((folder / "spec.json").read_text()), list[str]()
    for changes in NOT_REPEATED:
        (folder / "spec.json").write_text(json.dumps({**spec, **changes}))
        # What Python says of arguments is its own.
        told.append(re.sub(r"\w+\.__init__\(\) .*(rest_ms|missing).*", r"\1", f"{changes}: {outcome(replay.read, folder)}\n"))
    assert all(": HarnessError: " in line for line in told)
    same("chaos/not_repeated.txt", "".join(told))


def test_a_folder_without_a_readable_spec_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.HarnessError, match=r"spec\.json of .*: No such file or directory"):
        replay.read(tmp_path)
    (tmp_path / "spec.json").write_text("{")
    with pytest.raises(errors.HarnessError, match=r"spec\.json of .* is not JSON"):
        replay.read(tmp_path)
