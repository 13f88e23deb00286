"""`run attended`: the harness of a load whose producers and workers others start."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from chaos import runs
from chaos.attendance import Attendance, own_features
from chaos.drill import Frame
from chaos.interrupts import Interrupts
from chaos.judge import UNKNOWN, VALID, EarlyJudge
from chaos.plan import Pace, Plan
from chaos.run import Run, carry_out
from chaos.scenarios.bench import Jobs, featured
from chaos.spec import RunSpec
from engine import validate

SCENARIO = "attended"


class Attended(Jobs):
    """A run whose processes others start, and which is judged afterwards."""

    DRILL = Attendance
    CALIBRATED, OWN_SERVERS, EARLY = False, False, False

    def announced(self, run: Run[RunSpec]) -> Iterator[str]:
        yield f"run {run.folder.path.name} in {run.folder.path}"

    def drill(self, run: Run[RunSpec], **more: Any) -> Frame[RunSpec]:
        return super().drill(run, url=run.arguments.url, **more)

    def judged_by(self, drill: Frame[RunSpec], early: EarlyJudge | None = None) -> int:
        for error in drill.errors:
            drill.progress.say(f"harness: {error}")
        drill.progress.say(f"judge it: python -m reports judge {drill.folder.path}")
        return UNKNOWN if drill.errors else VALID


def attend(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Record a run whose processes others start; 0 when all of it is there, for `python -m reports judge` to judge. Raises
    HarnessError when it cannot begin."""
    name = validate.queue_name(arguments.queue)
    spec = featured(
        RunSpec(
            id=runs.run_id(SCENARIO, arguments.seed, "", time.time()),
            scenario=SCENARIO,
            seed=arguments.seed,
            queue=name,
            workers=arguments.workers,
            consumers=0,
            producers=arguments.producers,
            rate_per_s=arguments.rate,
            lease_ms=arguments.lease_ms,
        )
    )
    spec = replace(spec, **own_features(arguments.url, name))
    return carry_out(Attended(spec=spec, plan=Plan(spec.seed, Pace(), ())), arguments, interrupts)[0]
