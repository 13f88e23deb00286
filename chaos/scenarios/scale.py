"""`run scale`: the load doubles twice and falls again, and workers follow the metrics of the queue."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from chaos import runs
from chaos.drill import Frame
from chaos.interrupts import Interrupts
from chaos.judge import EXIT_CODES, MISSED, VALID, EarlyJudge
from chaos.plan import Pace, Plan
from chaos.run import carry_out
from chaos.scaling import FILE, ScaleDrill, followed, numbers_of
from chaos.scenarios.bench import Jobs
from chaos.spec import RunSpec

SLO = Path(__file__).with_name("scale.toml")
#: The phases last as `Times` says.
PACE = Pace(delay_max_ms=0, calm_ms=0)
LEASE_MS, SWEEP_MS, CONCURRENCY = 5_000, 500, 2


class Scale(Jobs):
    """A run in which workers come and go, and are to follow the load."""

    DRILL = ScaleDrill

    def about(self, spec: RunSpec) -> str:
        return f"{spec.rate_per_s // 4} jobs/s, twice and four times as many, and as before; workers follow, seed {spec.seed}"

    def judged_by(self, drill: Frame[RunSpec], early: EarlyJudge | None = None) -> int:
        code, file = super().judged_by(drill, early), drill.folder.path / FILE
        looks = json.loads(file.read_text())["looks"] if file.exists() else []
        if code == VALID and not followed(looks):
            drill.progress.say("the number of workers did not rise and fall with the load")
            code = MISSED
        verdict = next(word for word, known in EXIT_CODES.items() if known == code)
        first, most, last = numbers_of(looks)
        drill.progress.say(f"scale: workers {first} to {most} to {last}, verdict {verdict}")
        return code


def scale(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Carry out the drill and judge it. Returns the exit code, 3 also when the workers did not follow. Raises as `bench`."""
    plan = Plan(arguments.seed, PACE, ())
    return carry_out(Scale(spec=spec_of(arguments.seed), plan=plan, objectives=SLO), arguments, interrupts)[0]


def spec_of(seed: int) -> RunSpec:
    """The run of a seed. Limits, keys and the like are not what it is about, and would hold work back from workers."""
    times = {"lease_ms": LEASE_MS, "sweep_ms": SWEEP_MS}
    crew = {"workers": 1, "consumers": 0, "concurrency": CONCURRENCY}
    return RunSpec.bare(id=runs.run_id("scale", seed, "", time.time()), seed=seed, scenario="scale", **times, **crew)
