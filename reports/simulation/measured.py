"""The simulator fed with a measurement: how far it is off at the measured points, and what it says of a plan."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reports.capacity import measurement
from reports.capacity.basis import Basis
from reports.capacity.measurement import Bin, Measurement, Step
from reports.capacity.plan import Numbers
from reports.capacity.question import Question
from reports.errors import JudgeError
from reports.seed import add_seed
from reports.simulation.queueing import simulate
from reports.simulation.system import RANDOM, Load, Outcome, Sampler, System, measured, quantiles
from reports.table import grid

#: The simulator must come as close to p50, p99 and backlog, or, of a backlog of few jobs, within so many.
WITHIN = 0.1
WITHIN_JOBS = 1.0

#: Simulated seconds of a plan, fewer when they would be too many jobs, and the share of them that is not counted.
PLAN_S = 60.0
PLAN_JOBS = 300_000
WARM_UP = 0.2


@dataclass(frozen=True)
class Compared:
    """A measured value and the simulated one."""

    step: Step
    name: str
    measured: float
    simulated: float

    @property
    def off(self) -> float:
        """By what share the simulation is off."""
        return abs(self.simulated - self.measured) / self.measured if self.measured else float(self.simulated > 0)

    @property
    def within(self) -> bool:
        """Whether that is close enough."""
        near = self.name == "backlog" and abs(self.simulated - self.measured) <= WITHIN_JOBS
        return near or self.off <= WITHIN


def pickup(step: Step) -> Sampler | None:
    """What passes beside the service when nothing is busy: at each quantile of this step the latency less the service time, less
    the server's time."""
    if not step.latency_ms.histogram or not step.service_ms.histogram:
        return None
    shares = np.linspace(0, 1, 1_001)
    beside = quantiles(step.latency_ms.histogram, shares) - quantiles(step.service_ms.histogram, shares)
    beside = np.maximum(0.0, beside - step.server.us_per_job / 1_000)
    return lambda draw, count: np.interp(draw.random(count), shares, beside)


def calm(steps: Sequence[Step]) -> Step:
    """The step whose workers were least busy."""
    return min(steps, key=lambda step: step.utilisation)


def compare(found: Measurement, *, seed: int = 1) -> tuple[Compared, ...]:
    """p50, p99 and backlog of each step whose arrivals are known, as measured and as simulated with the same arrivals; but of the
    calmest one, from which it is learned what passes beside queues and handlers."""
    made: list[Compared] = []
    known = [step for step in found.sound if step.arrivals_ms and step.service_ms.histogram]
    for step in known:
        learned = calm(known)
        if step is learned:
            continue
        system = System(
            service=measured(step.service_ms.histogram),
            pickup=pickup(learned),
            workers=step.workers,
            handlers_at_once=step.handlers_at_once,
            server_us_per_job=step.server.us_per_job,
            worker_us_per_job=step.worker.cpu_share * step.workers / step.finished_per_s * 1e6,
        )
        due_s = [at_ms / 1_000 for at_ms in step.arrivals_ms]
        came = simulate(Load(rate=step.rate, seconds=step.seconds, due_s=due_s), system, seed)
        made += [
            Compared(step, "p50", step.latency_ms.p50, came.percentile(0.5)),
            Compared(step, "p99", step.latency_ms.p99, came.percentile(0.99)),
            Compared(step, "backlog", step.waiting.mean, came.waiting),
        ]
    return tuple(made)


def of_plan(found: Measurement, basis: Basis, asked: Question, plan: Numbers, *, seed: int = 1) -> Outcome:
    """What the jobs of a plan go through: random arrivals, and the measured service times moved by how the handlers differ."""
    top = found.met[-1]
    seconds = min(PLAN_S, PLAN_JOBS / asked.rate)
    service: Sequence[Bin] = top.service_ms.histogram
    system = System(
        service=measured(service, asked.handler_ms - basis.handler_ms),
        pickup=pickup(calm(found.sound)),
        shards=plan.shards,
        workers=max(1, plan.workers // plan.shards),
        handlers_at_once=basis.handlers_at_once,
        server_us_per_job=basis.server_us_per_job,
        worker_us_per_job=basis.worker_us_per_job,
    )
    load = Load(rate=asked.rate, seconds=seconds, warm_up_s=seconds * WARM_UP, arrivals=RANDOM)
    return simulate(load, system, seed)


# The command `simulation`: how near the queueing simulator comes to the steps of a measurement, printed.


#: Fewer points, from a low rate to one beyond what the workers do, show little.
POINTS_LEAST = 3

HEADS = ("jobs/s", "figure", "measured", "simulated", "off by", "near")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    command.add_argument("run", type=Path, help=f"folder of `python -m chaos capacity --validate`, or its {measurement.FILE}")
    add_seed(command, "of the simulation")


def near_to_measured(options: argparse.Namespace) -> tuple[str, int]:
    """The table, and the exit code: 0 when all figures are near, 1 when not. Raises JudgeError when there is too little to
    compare."""
    found = compare(measurement.read(options.run), seed=options.seed)
    points = {one.step.rate for one in found}
    if len(points) < POINTS_LEAST:
        raise JudgeError(
            f"points that can be compared beside the calmest: {len(points)}, it needs {POINTS_LEAST}; measure them with "
            "`python -m chaos capacity --validate`"
        )
    rows = [
        [f"{one.step.rate:,.1f}", one.name, f"{one.measured:,.1f}", f"{one.simulated:,.1f}", f"{one.off:.1%}",
         "yes" if one.within else "no"]
        for one in found
    ]  # fmt: skip
    near = sum(one.within for one in found)
    words = f"within {WITHIN:.0%}, or {WITHIN_JOBS:g} job of a backlog"
    last = f"simulation: points={len(points)} near={near}/{len(found)} ({words})"
    return "\n".join([*grid("Measured, and simulated", HEADS, rows), "", last]), 0 if near == len(found) else 1
