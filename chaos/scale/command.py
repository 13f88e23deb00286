"""The command `scale`: the load doubles and falls, workers follow the signal, and the judge decides."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from chaos import runs
from chaos.calibration import Calibration
from chaos.command import Order, carry_out
from chaos.interrupts import Interrupts
from chaos.judge import EXIT_CODES, MISSED, VALID
from chaos.plan import Pace, Plan
from chaos.progress import Progress
from chaos.runs import RunFolder
from chaos.scale.drill import FILE, ScaleDrill, followed, numbers_of
from chaos.spec import RunSpec

SLO = Path(__file__).with_name("slo.toml")
#: The phases last as `Times` says.
PACE = Pace(delay_max_ms=0, calm_ms=0)
LEASE_MS, SWEEP_MS, CONCURRENCY = 5_000, 500, 2


def scale(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Carry out the drill and judge it. Returns the exit code, 3 also when the workers did not follow. Raises as `bench`."""

    def about(spec: RunSpec) -> str:
        return f"{spec.rate_per_s // 4} jobs/s, twice and four times as many, and as before; workers follow, seed {spec.seed}"

    def rated(spec: RunSpec, calibration: Calibration) -> RunSpec:
        return replace(spec, rate_per_s=calibration.rate_per_s, calibration=calibration.for_spec())

    def make(spec: RunSpec, folder: RunFolder, progress: Progress, toxiproxy: Path | None) -> ScaleDrill:
        return ScaleDrill(spec, plan, folder, progress, interrupts, toxiproxy=toxiproxy)

    spec, plan = spec_of(arguments.seed), Plan(arguments.seed, PACE, ())
    code, folder = carry_out(Order(spec, plan, make, about, rated, objectives=SLO), arguments, interrupts)
    looks = json.loads((folder / FILE).read_text())["looks"] if (folder / FILE).exists() else []
    progress = Progress(sys.stdout)
    if code == VALID and not followed(looks):
        progress.say("the number of workers did not rise and fall with the load")
        code = MISSED
    verdict = next(word for word, known in EXIT_CODES.items() if known == code)
    first, most, last = numbers_of(looks)
    progress.say(f"scale: workers {first} to {most} to {last}, verdict {verdict}")
    return code


def spec_of(seed: int) -> RunSpec:
    """The run of a seed. Limits, keys and the like are not what it is about, and would hold work back from workers."""
    return RunSpec(
        id=runs.run_id("scale", seed, "", time.time()),
        seed=seed,
        scenario="scale",
        lease_ms=LEASE_MS,
        sweep_ms=SWEEP_MS,
        workers=1,
        consumers=0,
        concurrency=CONCURRENCY,
        limits=(),
        unique_keys=False,
        schedules=(),
        dependencies=False,
        routing=False,
    )
