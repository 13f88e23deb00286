"""`replay RUN`: the plan of a recorded run once more, from its spec.json alone: the same faults, pace, load and servers; and
`shrink RUN`: the least of a violated run's faults that is enough for the violation."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bench.models import DSPS, LANES
from chaos import runs, topologies
from chaos.campaign import stop_if_interrupted
from chaos.catalogue import DIRECT
from chaos.channels import mutants as channel_mutants
from chaos.channels.faults import FAULTS as CHANNEL_FAULTS
from chaos.channels.spec import Channel, ChannelSpec
from chaos.ddmin import minimal
from chaos.errors import HarnessError
from chaos.faults import FAULTS
from chaos.interrupts import Interrupts
from chaos.judge import EXIT_CODES, OBJECTIVES, UNKNOWN
from chaos.mutants import find, of_jobs
from chaos.plan import Pace, Plan, PlannedFault
from chaos.progress import Progress
from chaos.run import Scenario, carry_out, measure
from chaos.scenarios import bench
from chaos.scenarios.channels import Channels
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


VIOLATED = EXIT_CODES["violated"]
WORDS = {code: name for name, code in EXIT_CODES.items()}


class Repeatable(Protocol):
    """A recorded run that can be repeated with some of its faults."""

    @property
    def folder(self) -> Path: ...

    @property
    def plan(self) -> Plan: ...

    def scenario(self, faults: Sequence[PlannedFault]) -> Scenario[Any]: ...


def shrink(recorded: Repeatable, arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Repeat a violated run with fewer and fewer faults, and say which are enough. Returns 1 when the violation came again, 2
    when it did not. Raises HarnessError for a run that is not violated, and as `carry_out`."""
    folder, faults = recorded.folder, recorded.plan.faults
    wanted = violated_checks(folder)
    if not wanted:
        raise HarnessError(f"{folder.name} is not violated: there is nothing to shrink (`show` judges it)")
    progress = Progress(sys.stdout)
    calibration = measure(progress, arguments, interrupts)
    tried: dict[tuple[str, ...], bool] = {}

    def enough(left: tuple[PlannedFault, ...]) -> bool:
        """Whether a drill with these faults alone violates one of the same checks."""
        names = tuple(planned.fault for planned in left)
        if names not in tried:
            progress.say(f"shrink: drill {len(tried) + 1}, with {listed(names)}")
            code, run = carry_out(recorded.scenario(without_others(faults, left)), arguments, interrupts, calibration)
            stop_if_interrupted(json.loads((run / "spec.json").read_text()).get("harness_errors", []))
            seen = violated_checks(run)
            again = sorted(wanted & seen)
            others = f" by {', '.join(sorted(seen))} alone" if seen else ""
            came = f"violated by {', '.join(again)} again" if again else f"{WORDS[code]}{others}, so it is taken for not enough"
            progress.say(f"shrink: {listed(names)}: {came} ({run.name})")
            tried[names] = bool(again)
        return tried[names]

    left = minimal(faults, enough)
    if left == faults and not enough(faults):
        progress.say(f"shrink: the violation did not come again, not even with all {len(faults)} faults, in {len(tried)} drills")
        return UNKNOWN
    found = listed([planned.fault for planned in left])
    progress.say(f"shrink: {len(left)} of {len(faults)} faults are enough, after {len(tried)} drills: {found}")
    return VIOLATED


def without_others(faults: Sequence[PlannedFault], left: Sequence[PlannedFault]) -> tuple[PlannedFault, ...]:
    """The faults that are left of a plan. A worker whose kill is left out goes on in the place of its replacement, and what came
    during a fault that is left out comes by itself."""
    kept = {planned.fault for planned in left}
    stays: dict[str, str] = {}
    found: list[PlannedFault] = []
    for planned in faults:
        target = ",".join(stays.get(name, name) for name in planned.targets)
        if planned.fault in kept:
            found.append(replace(planned, target=target, during=planned.during if planned.during in kept else ""))
        elif planned.replacement:
            stays[planned.replacement] = target
    return tuple(found)


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "no fault"


def violated_checks(run: Path) -> set[str]:
    """The checks that a run violates; none where it has no verdict."""
    try:
        checks = json.loads((run / "verdict.json").read_text())["checks"]
        return {check["id"] for check in checks if check["verdict"] == "violated"}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
