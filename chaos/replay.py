"""`replay RUN`: the plan of a recorded run once more, from its spec.json alone: the same faults, pace, load and servers."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from bench.models import DSPS, LANES
from chaos import runs, topologies
from chaos.channels import mutants as channel_mutants
from chaos.channels.faults import FAULTS as CHANNEL_FAULTS
from chaos.channels.spec import Channel, ChannelSpec
from chaos.errors import HarnessError
from chaos.faces import DIRECT
from chaos.faults import FAULTS
from chaos.interrupts import Interrupts
from chaos.judge import OBJECTIVES
from chaos.mutants import find, of_jobs
from chaos.plan import Pace, Plan, PlannedFault
from chaos.run import Scenario, carry_out
from chaos.scenarios import bench
from chaos.scenarios.channels import Channels
from chaos.shrink import shrink
from chaos.spec import SPEC_SCHEMA, RunSpec, SpecFile

#: Scenario of a run that can be repeated, by whether it is of channels.
SCENARIOS = {False: "bench", True: "channels"}

#: What a replay does not take from the run that it repeats: it is about the machine and the day.
OF_A_RUN = ("id", "planted", "plan", "pace", "calibration", "versions", "git_commit", "machine", "started_utc")

S = TypeVar("S", bound=SpecFile)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a run was, without what was only known when it ran. `folder`: that of the run."""

    folder: Path
    spec: RunSpec | ChannelSpec
    plan: Plan

    def scenario(self, faults: Sequence[PlannedFault]) -> Scenario[Any]:
        """The run once more, with these faults of its plan."""
        spec: Any = self.spec
        model = "" if spec.model == LANES else spec.model
        face = spec.face if isinstance(spec, RunSpec) and spec.face != DIRECT else ""
        servers = topologies.label(spec.topology, spec.durability)
        label = "-".join(filter(None, [model, face, spec.mutant, servers, "replay"]))
        spec = replace(spec, id=runs.run_id("bench", spec.seed, label, time.time()))
        plan = replace(self.plan, faults=tuple(faults))
        kept = self.folder / OBJECTIVES
        same: dict[str, Any] = {"objectives": kept if kept.exists() else None, "own_rate": True}
        if isinstance(spec, ChannelSpec):
            return Channels(spec=spec, plan=plan, mutant=find(spec.mutant, channel_mutants.MUTANTS), **same)
        return bench.of_plan(spec, plan, mutant=find(spec.mutant, of_jobs.MUTANTS), **same)

    def options(self, arguments: argparse.Namespace) -> argparse.Namespace:
        """The arguments with the run's own model and rate, which a calibration is to judge and not to change."""
        rate = getattr(self.spec, "rate_per_s", None)
        return argparse.Namespace(**{**vars(arguments), "model": self.spec.model, "rate": rate})


def replay(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Repeat the plan of a run, or shrink it, and judge that. Returns the exit code. Raises as `carry_out`."""
    recorded = read(arguments.replay)
    options = recorded.options(arguments)
    if arguments.shrink:
        return shrink(recorded, options, interrupts)
    return carry_out(recorded.scenario(recorded.plan.faults), options, interrupts)[0]


def read(folder: Path) -> Recorded:
    """What spec.json in the folder of a run says. Raises HarnessError for a run that cannot be repeated."""
    name = f"spec.json of {folder.resolve().name}"
    try:
        content = json.loads((folder / "spec.json").read_text())
    except OSError as error:
        raise HarnessError(f"{name}: {error.strerror or error}") from error
    except ValueError as error:
        raise HarnessError(f"{name} is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SPEC_SCHEMA:
        schema = content.get("schema") if isinstance(content, dict) else None
        raise HarnessError(f"{name} has schema {schema!r}: only schema {SPEC_SCHEMA} can be repeated")
    channels = content.get("model") == DSPS
    if content.get("scenario") != SCENARIOS[channels]:
        raise HarnessError(
            f"{name} has scenario {content.get('scenario')!r} and model {content.get('model')!r}: only drills of jobs (scenario "
            f"{SCENARIOS[False]!r}) and of channels (scenario {SCENARIOS[True]!r}, model {DSPS!r}) can be repeated"
        )
    if not content.get("pace"):
        raise HarnessError(f"{name} has no pace: it was written before runs could be repeated")
    try:
        spec = spec_of(ChannelSpec if channels else RunSpec, content)
        plan = plan_of(content, CHANNEL_FAULTS if channels else FAULTS)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise HarnessError(f"{name} cannot be repeated: {error}") from error
    return Recorded(folder.resolve(), spec, plan)


def spec_of(kind: type[S], content: Mapping[str, Any]) -> S:
    """The spec of a run, without what was only known when it ran. Raises HarnessError for a value out of its bounds, and
    TypeError for one of another type."""
    fields: Any = kind
    kept = {field.name for field in dataclasses.fields(fields)} & set(content) - set(OF_A_RUN)
    values = {name: frozen(content[name]) for name in kept}
    if "channels" in values:
        values["channels"] = tuple(Channel(**{key: frozen(part) for key, part in one.items()}) for one in values["channels"])
    return kind(**{"id": "", **values})


def frozen(value: Any) -> Any:
    """A list of JSON as the tuple that it was."""
    return tuple(value) if isinstance(value, list) else value


def plan_of(content: Mapping[str, Any], faults: Mapping[str, object]) -> Plan:
    """The plan of a run. Raises HarnessError for a fault that does not exist, or that comes during none before it, and TypeError
    for another shape."""
    planned = tuple(PlannedFault(**entry) for entry in content["plan"])
    for at, one in enumerate(planned):
        if one.name not in faults:
            raise HarnessError(f"fault {one.name!r} of the plan does not exist; those of this load are {', '.join(faults)}")
        if one.during and one.during not in {earlier.fault for earlier in planned[:at]}:
            raise HarnessError(f"fault {one.fault!r} of the plan comes during {one.during!r}, which is not before it in the plan")
    return Plan(content["seed"], Pace(**content["pace"]), planned)
