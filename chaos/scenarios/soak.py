"""`run soak`: steady load and a fault every ten seconds for minutes, to see that nothing grows that should not."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chaos import runs
from chaos.drill import Frame
from chaos.interrupts import Interrupts
from chaos.judge import EarlyJudge, show
from chaos.plan import Pace, Plan, worker_names
from chaos.run import Run, carry_out
from chaos.scenarios.bench import Jobs
from chaos.soaking import FILE, Soak, Times, draw, verdict
from chaos.spec import RunSpec

#: Short, so that a fault and its recovery fit between two faults.
LEASE_MS = 3_000
SWEEP_MS = 250
RATE_PER_S = 50
CONCURRENCY = 4

#: What has ended is kept for so long, so that a queue in balance neither grows nor shrinks after the warm-up.
RETENTION_MS = 30_000


@dataclass(frozen=True, kw_only=True)
class SoakRun(Jobs):
    """A soak, which is judged by the lines of memory and latency."""

    times: Times

    DRILL = Soak
    CALIBRATED, EARLY = False, False

    def announced(self, run: Run[RunSpec]) -> Iterator[str]:
        spec, times = run.spec, self.times
        yield f"soak {spec.id} in {run.folder.path}"
        often = f"a fault every {times.fault_every_s:g} s, {times.total_s / 60:g} min"
        yield f"{spec.workers} workers, {spec.rate_per_s} jobs/s, {often}"

    def drill(self, run: Run[RunSpec], **more: Any) -> Frame[RunSpec]:
        drill: Any = super().drill(run, **more)
        drill.times = self.times
        return drill

    def judged_by(self, drill: Any, early: EarlyJudge | None = None) -> int:
        code = verdict(drill, drill.progress)
        if drill.ended_s:
            (drill.folder.path / FILE).write_text(json.dumps(drill.content()) + "\n")
            show(["soak", str(drill.folder.path)], drill.interrupts)
        return code


def soak(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Run the soak. Returns the exit code: 0 steady, 1 leaking, 2 unknown. Raises HarnessError and ServerMissing."""
    minutes = arguments.minutes if arguments.hours is None else arguments.hours * 60
    times = Times(minutes * 60)
    spec = RunSpec(
        id=runs.run_id("soak", arguments.seed, "", time.time()),
        seed=arguments.seed,
        scenario="soak",
        lease_ms=LEASE_MS,
        sweep_ms=SWEEP_MS,
        concurrency=CONCURRENCY,
        consumers=0,
        rate_per_s=RATE_PER_S,
        retention_ms=RETENTION_MS,
        load_bound_s=round(times.total_s) + 300,
    )
    faults = draw(spec.seed, worker_names(spec.workers), round(times.total_s / times.fault_every_s))
    return carry_out(SoakRun(spec=spec, plan=Plan(spec.seed, Pace(), faults), times=times), arguments, interrupts)[0]
