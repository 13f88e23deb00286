"""`run interop`: the original Bull under Node beside the engine on one queue, each run with a verdict of its own."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from chaos import campaign, runs
from chaos.drill import Frame
from chaos.interop import node
from chaos.interop.crew import MixedDrill
from chaos.interop.scenarios import EARLY_MS, LEASE_MS, SCENARIOS, SWEEP_MS, Mixture, find
from chaos.interrupts import Interrupts
from chaos.progress import Progress
from chaos.run import Run
from chaos.scenarios.bench import Jobs
from chaos.spec import RunSpec

QUEUE = "mixed"

#: After the last heal, the lease and this much is the time by which nothing may be stuck: the least that the judge accepts.
LIVENESS_SLACK_MS = 2_000


@dataclass(frozen=True, slots=True)
class InteropSpec(RunSpec):
    """A run with Bull. By when delayed jobs start at p99, and how much too early a job may: Bull's timers end a little early."""

    delayed_p99_ms: int = 0
    early_ms: int = EARLY_MS


@dataclass(frozen=True, kw_only=True)
class Interop(Jobs):
    """A run of both."""

    mixture: Mixture = field(repr=False)

    DRILL = MixedDrill
    CALIBRATED, EARLY = False, False

    def announced(self, run: Run[RunSpec]) -> Iterator[str]:
        yield f"run {run.spec.id} in {run.folder.path}: {self.mixture.about}"

    def drill(self, run: Run[RunSpec], **more: Any) -> Frame[RunSpec]:
        return super().drill(run, mixture=self.mixture, **more)


def interop(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Carry out the runs, one after the other. Returns the worst exit code.

    Raises HarnessError and ServerMissing when a run cannot begin.
    """
    chosen = [find(arguments.scenario)] if arguments.scenario else list(SCENARIOS)
    node.modules(Progress(sys.stdout).say)
    return campaign.worst_of((of_mixture(mixture, arguments.seed) for mixture in chosen), arguments, interrupts)


def of_mixture(mixture: Mixture, seed: int) -> Interop:
    """The run of a mixture."""
    spec = InteropSpec.bare(
        id=runs.run_id("interop", seed, mixture.name, time.time()),
        seed=seed,
        scenario=f"interop {mixture.name}",
        queue=QUEUE,
        model="bull",
        lease_ms=LEASE_MS,
        sweep_ms=SWEEP_MS,
        workers=len(mixture.workers),
        consumers=0,
        rate_per_s=round(mixture.mix.rate_per_s * len(mixture.producers)),
        liveness_slack_ms=LIVENESS_SLACK_MS,
        findings=mixture.findings,
        delayed_p99_ms=mixture.delayed_p99_ms,
        versions={"bull": node.version()},
    )
    return Interop(spec=spec, plan=mixture.plan(seed), mixture=mixture)
