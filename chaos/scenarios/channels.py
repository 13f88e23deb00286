"""`run channels`: load on channels, whose clocks wrap in mid-load."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.models import DSPS
from chaos import asked, catalogue, runs, topologies
from chaos.calibration import RATES_PER_S, Calibration
from chaos.channels.crew import workload_of
from chaos.channels.drill import ChannelDrill
from chaos.channels.mutants import PLANTED
from chaos.channels.plan import draw, publisher_names
from chaos.channels.spec import ChannelSpec, Crossings, preset_channels
from chaos.drill import Frame
from chaos.interrupts import Interrupts
from chaos.judge import validate_objectives
from chaos.mutants import Mutant
from chaos.plan import Plan
from chaos.run import Run, Scenario, carry_out

#: The last clock wraps so long before the faults of a plan are over, as far as that is known before.
CROSSED_BEFORE_MS = 4_000


@dataclass(frozen=True, kw_only=True)
class Channels(Scenario[ChannelSpec]):
    """A run on channels. `crossings`: when clocks wrap; None = they are preset, for the rate of the spec."""

    crossings: Crossings | None = None

    DRILL = ChannelDrill

    def about(self, spec: ChannelSpec) -> str:
        subscribers = sum(channel.fan_out for channel in spec.channels)
        crew = f"{subscribers} subscribers in {spec.subscribers + spec.consumers} processes, {spec.publishers} publishers"
        return f"{len(spec.channels)} channels at {spec.rate:.0%} of their rates, {crew}, seed {spec.seed}"

    def at_rate(self, calibration: Calibration) -> ChannelSpec:
        spec = super().at_rate(calibration)
        if self.crossings is None:
            return spec
        share = min(1.0, calibration.rate_per_s / RATES_PER_S[0])
        return preset(replace(spec, rate=spec.rate * share), self.crossings)

    def drill(self, run: Run[ChannelSpec], **more: Any) -> Frame[ChannelSpec]:
        planted = self.mutant.name if self.mutant and self.mutant.name in PLANTED else ""
        return super().drill(run, planted=planted, **more)


def channels(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Run the drill of channels and judge it. Returns the exit code. Raises as `chaos.scenarios.bench.bench`."""
    mutant, _, topology = asked.of_channels(arguments)
    servers = topologies.label(topology, arguments.durability or "")
    label = "-".join(filter(None, [DSPS, arguments.mutant, servers]))
    spec = ChannelSpec(
        id=runs.run_id("bench", arguments.seed, label, time.time()),
        seed=arguments.seed,
        mutant=arguments.mutant,
        topology=topology,
        durability=arguments.durability or "",
    )
    if arguments.slo:
        validate_objectives(arguments.slo, channels=True)
    shape: dict[str, Any] = {"kinds": arguments.faults, "minutes": arguments.minutes}
    return carry_out(drawn(spec, mutant=mutant, objectives=arguments.slo, **shape), arguments, interrupts)[0]


def drawn(
    spec: ChannelSpec,
    *,
    crossings: Crossings | None = None,
    mutant: Mutant | None = None,
    objectives: Path | None = None,
    **shape: Any,
) -> Channels:
    """The drill of a spec with the faults of its seed. `crossings`: when clocks wrap; None = while the faults last. `shape`: of
    the plan pace, kinds and minutes. Raises HarnessError."""
    plan = draw(spec.seed, publishers=publisher_names(spec.publishers), topology=spec.topology, **shape)
    return Channels(spec=spec, plan=plan, crossings=crossings or crossings_of(plan), mutant=mutant, objectives=objectives)


def crossings_of(plan: Plan) -> Crossings:
    """When clocks wrap: all while the load lasts, also where a failover has lost some of the messages that bring them there."""
    usual, pace = Crossings(), plan.pace
    faults_ms = sum(catalogue.KINDS[planned.name].seconds * 1_000 + planned.delay_ms + pace.calm_ms for planned in plan.faults)
    lasts_ms = pace.lead_in_ms + faults_ms + pace.settle_ms
    return replace(usual, last_ms=min(usual.last_ms, lasts_ms - CROSSED_BEFORE_MS))


def preset(spec: ChannelSpec, crossings: Crossings) -> ChannelSpec:
    """The spec with its clocks preset for its rate."""
    return replace(spec, channels=preset_channels(workload_of(spec), crossings))
