"""The verbs `run` and `check`: from a `chaos.toml` to a verdict, or to what would run and what is missing."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos.drill import Frame
from chaos.interrupts import Interrupts
from chaos.judge import UNKNOWN, VALID
from chaos.progress import Progress
from chaos.run import Run, Scenario, carry_out
from chaos.service import trial
from chaos.service.drill import ServiceDrill
from chaos.service.file import read
from chaos.service.known import Known, lacking, objectives, resolved
from chaos.service.spec import ServiceSpec
from engine.errors import redacted_url


@dataclass(frozen=True, kw_only=True)
class Service(Scenario[ServiceSpec]):
    """A run of the service of a file."""

    known: Known = field(repr=False)

    DRILL = ServiceDrill
    CALIBRATED = False

    def about(self, spec: ServiceSpec) -> str:
        known = self.known
        apps = f", {len(known.service.apps)} apps" if known.service.apps else ""
        load = "tasks of Locust users" if known.of_users else "jobs"
        servers = redacted_url(known.service.servers) if known.service.servers else spec.topology
        return f"{spec.workers} workers{apps}, {spec.rate_per_s} {load}/s to queue {spec.queue}, {servers}, seed {spec.seed}"

    def drill(self, run: Run[ServiceSpec], **more: Any) -> Frame[ServiceSpec]:
        return super().drill(run, service=self.known.service, of_users=self.known.of_users, **more)


def run(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Drill the service of a file and judge it. Returns the exit code. Raises HarnessError, before anything has started, for a
    file that says what it must not."""
    scenario = of_file(arguments)
    with tempfile.TemporaryDirectory() as folder:
        scenario = replace(scenario, objectives=objectives(scenario.known.service, Path(folder)))
        return carry_out(scenario, arguments, interrupts)[0]


def of_file(arguments: argparse.Namespace) -> Service:
    """The run of the service of a file, without its objectives. Raises HarnessError."""
    known = resolved(read(arguments.file))
    spec = known.spec(arguments.seed)
    return Service(spec=spec, plan=known.plan(spec), known=known)


def check(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Say what `run` would do and what is missing, and run one job of the load. Returns 0 when nothing is."""
    progress = Progress(sys.stdout)
    scenario = of_file(arguments)
    spec, plan, known = scenario.spec, scenario.plan, scenario.known
    progress.say(scenario.about(spec))
    for planned in plan.faults:
        progress.say(f"planned: {planned.name} of {planned.target}")
    if not plan.faults:
        progress.say("planned: no fault")
    missing = list(lacking(known.service, spec, plan))
    for words in missing:
        progress.say(f"missing: {words}")
    with tempfile.TemporaryDirectory() as folder:
        objectives(known.service, Path(folder))
    for words in trial.tried(known.service, spec, known.of_users, interrupts):
        progress.say(words)
    progress.say("check: something is missing" if missing else "check: ready")
    return UNKNOWN if missing else VALID
