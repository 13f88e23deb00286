"""The verb `run channels`: from arguments to a run on channels and its verdict."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from bench.models import DSPS
from chaos import catalogue, runs, topologies
from chaos.calibration import RATES_PER_S, Calibration
from chaos.channels import presets
from chaos.channels.crew import workload_of
from chaos.channels.drill import ChannelDrill
from chaos.channels.mutants import MUTANTS, PLANTED
from chaos.channels.plan import draw, publisher_names
from chaos.channels.presets import Crossings
from chaos.channels.spec import ChannelSpec
from chaos.command import Order, at_its_rate, carry_out
from chaos.interrupts import Interrupts
from chaos.judge import validate_objectives
from chaos.mutants import Mutant, find, plant, pretend
from chaos.plan import Plan
from chaos.processes import send
from chaos.progress import Progress
from chaos.runs import RunFolder
from engine.redis.scripts import scripts_folder

#: The last clock wraps so long before the faults of a plan are over, as far as that is known before.
CROSSED_BEFORE_MS = 4_000


def bench_channels(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Run the drill of channels and judge it. Returns the exit code. Raises as `chaos.command.bench`."""
    mutant = find(arguments.mutant, MUTANTS)
    topology = arguments.topology or topologies.AOF
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
    plan = draw(
        spec.seed,
        publishers=publisher_names(spec.publishers),
        kinds=arguments.faults,
        topology=spec.topology,
        minutes=arguments.minutes,
    )
    drill = order(spec, plan, crossings(plan), interrupts, mutant)
    return carry_out(replace(drill, objectives=arguments.slo), arguments, interrupts)[0]


def crossings(plan: Plan) -> Crossings:
    """When clocks wrap: all while the load lasts, also where a failover has lost some of the messages that bring them there."""
    usual, pace = Crossings(), plan.pace
    faults_ms = sum(catalogue.KINDS[planned.name].seconds * 1_000 + planned.delay_ms + pace.calm_ms for planned in plan.faults)
    lasts_ms = pace.lead_in_ms + faults_ms + pace.settle_ms
    return replace(usual, last_ms=min(usual.last_ms, lasts_ms - CROSSED_BEFORE_MS))


def order(
    spec: ChannelSpec, plan: Plan, crossings: Crossings, interrupts: Interrupts, mutant: Mutant | None
) -> Order[ChannelSpec]:
    """The drill of a spec and a plan, with its clocks preset for the rate that a calibration picks."""

    def rated(spec: ChannelSpec, calibration: Calibration) -> ChannelSpec:
        rate = spec.rate * min(1.0, calibration.rate_per_s / RATES_PER_S[0])
        return preset(replace(spec, rate=rate, calibration=calibration.for_spec()), crossings)

    return replace(of_plan(preset(spec, crossings), plan, interrupts, mutant), rated=rated)


def of_plan(spec: ChannelSpec, plan: Plan, interrupts: Interrupts, mutant: Mutant | None = None) -> Order[ChannelSpec]:
    """The drill of a spec whose clocks are preset, and of a plan, at the rate of the spec."""

    def make(spec: ChannelSpec, folder: RunFolder, progress: Progress, toxiproxy: Path | None) -> ChannelDrill:
        drill = ChannelDrill(spec, plan, folder, progress, interrupts, toxiproxy=toxiproxy)
        if mutant:
            drill.lua = plant(mutant, scripts_folder(), folder.path / "lua")
            drill.planted = mutant.name if mutant.name in PLANTED else ""
            drill.signal = pretend if mutant.faults_do_nothing else send
            drill.pretend = mutant.faults_do_nothing
        return drill

    def about(spec: ChannelSpec) -> str:
        subscribers = sum(channel.fan_out for channel in spec.channels)
        crew = f"{subscribers} subscribers in {spec.subscribers + spec.consumers} processes, {spec.publishers} publishers"
        return f"{len(spec.channels)} channels at {spec.rate:.0%} of their rates, {crew}, seed {spec.seed}"

    return Order(spec, plan, make, about, at_its_rate, mutant)


def preset(spec: ChannelSpec, crossings: Crossings) -> ChannelSpec:
    """The spec with its clocks preset for its rate."""
    return replace(spec, channels=presets.channels(workload_of(spec), crossings))
