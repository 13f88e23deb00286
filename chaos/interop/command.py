"""The command `interop`: runs with the original Bull, each with a folder, a history and a verdict of its own."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from chaos import machine, runs, topology
from chaos.command import conclude, prune, utc
from chaos.interop import node
from chaos.interop.drill import MixedDrill
from chaos.interop.scenarios import EARLY_MS, LEASE_MS, SCENARIOS, SWEEP_MS, Scenario, find
from chaos.interrupts import Interrupts
from chaos.progress import Progress
from chaos.spec import RunSpec

QUEUE = "mixed"


def interop(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Carry out the scenarios, one after the other. Returns the worst exit code.

    Raises HarnessError and ServerMissing when a run cannot begin.
    """
    progress = Progress(sys.stdout)
    chosen = [find(arguments.scenario)] if arguments.scenario else list(SCENARIOS)
    node.modules(progress.say)
    codes: list[int] = []
    for scenario in chosen:
        interrupts.check()
        drill = make(scenario, arguments.runs.absolute(), arguments.seed, progress, interrupts)
        progress.say(f"run {drill.spec.id} in {drill.folder.path}: {scenario.about}")
        carry_out(drill)
        codes.append(conclude(drill, progress))
        drill.folder.release()
    prune(progress, arguments, time.time())
    # False beats unknown beats true.
    return next(code for code in (1, 2, 0) if code in codes)


def make(scenario: Scenario, folder: Path, seed: int, progress: Progress, interrupts: Interrupts) -> MixedDrill:
    """A run of the scenario in a folder of its own."""
    now_s = time.time()
    spec = RunSpec(
        id=runs.run_id("interop", seed, scenario.name, now_s),
        seed=seed,
        scenario=f"interop {scenario.name}",
        queue=QUEUE,
        model="bull",
        lease_ms=LEASE_MS,
        sweep_ms=SWEEP_MS,
        workers=len(scenario.workers),
        consumers=0,
        rate_per_s=round(scenario.mix.rate_per_s * len(scenario.producers)),
        liveness_slack_ms=LIVENESS_SLACK_MS,
        limits=(),
        unique_keys=False,
        schedules=(),
        dependencies=False,
        routing=False,
        plan=tuple(asdict(planned) for planned in scenario.faults),
        started_utc=utc(now_s),
    )
    place = runs.create(folder, spec.id)
    versions = {**machine.versions(topology.binary(), None), "bull": node.version()}
    spec = replace(spec, id=place.path.name, versions=versions, machine=machine.machine_card())
    drill = MixedDrill(spec, scenario.plan(seed), place, progress, interrupts, scenario=scenario)
    write(drill)
    return drill


#: After the last heal, the lease and this much is the time by which nothing may be stuck: the least that the judge accepts.
LIVENESS_SLACK_MS = 2_000


def carry_out(drill: MixedDrill) -> None:
    """Run it, and say in its spec that it has ended."""
    drill.run()
    write(drill, ended_utc=utc(time.time()))


def write(drill: MixedDrill, **more: str) -> None:
    scenario = drill.scenario
    drill.spec.write(
        drill.folder.path / "spec.json",
        **drill.outcome(),
        findings=list(scenario.findings),
        delayed_p99_ms=scenario.delayed_p99_ms,
        early_ms=EARLY_MS,
        **more,
    )
