"""The command `mischief`: a run for each old format with a foreign client that meddles, and the verdict on it."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from chaos import mutants, runs
from chaos.calibration import Calibration
from chaos.command import Order, carry_out, features
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.mischief.clients import CLIENTS, LOCK_MS
from chaos.mischief.drill import MischiefDrill
from chaos.mutants import Mutant
from chaos.plan import Pace, Plan
from chaos.planting import Edit
from chaos.progress import Progress
from chaos.runs import RunFolder
from chaos.spec import RunSpec
from engine.redis.scripts import scripts_folder

PACE = Pace(lead_in_ms=2_000, delay_max_ms=0, calm_ms=0, settle_ms=15_000)
SWEEP_MS, LIVENESS_SLACK_MS = 250, 9_000

#: The defects that these runs must catch, by the format whose run it is.
MUTANTS = {
    "bananas": Mutant(
        name="written-back-runs-again",
        defect="a completed job that a slow foreign promotion has written back as pending runs again",
        check="J6",
        verdict="violated",
        edits=(Edit("written-back-has-run", "local ended_ms = nil"),),
    )
}


def mischief(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Carry out the run of each format that was asked for. Returns the worst exit code.

    Raises HarnessError and ServerMissing when a run cannot begin.
    """
    asked = (arguments.model,) if arguments.model else tuple(CLIENTS)
    if unknown := [name for name in asked if name not in CLIENTS]:
        raise HarnessError(f"model {unknown[0]!r} has no foreign client; choose from {', '.join(CLIENTS)}")
    mutant = None
    if arguments.mutant:
        mutant = next((MUTANTS[name] for name in asked if name in MUTANTS and MUTANTS[name].name == arguments.mutant), None)
        if mutant is None or len(asked) > 1:
            known = ", ".join(f"{one.name} of {model}" for model, one in MUTANTS.items())
            raise HarnessError(f"mutant {arguments.mutant!r} does not exist for this model; choose from {known}")
    codes = [carry_out(order(model, arguments.seed, interrupts, mutant), arguments, interrupts)[0] for model in asked]
    # Violated beats unknown beats valid.
    return next(code for code in (1, 2, 0) if code in codes)


def order(model: str, seed: int, interrupts: Interrupts, mutant: Mutant | None = None) -> Order[RunSpec]:
    """The run of one format."""
    plan = Plan(seed, PACE, ())
    planted = mutant.name if mutant else ""
    spec = RunSpec(
        id=runs.run_id("mischief", seed, "-".join(filter(None, (model, planted))), time.time()),
        seed=seed,
        mutant=planted,
        scenario="mischief",
        model=model,
        lease_ms=LOCK_MS,
        sweep_ms=SWEEP_MS,
        liveness_slack_ms=LIVENESS_SLACK_MS,
    )
    # A foreign client knows neither limits nor unique keys of the engine.
    spec = replace(spec, **{**features(model), "limits": (), "unique_keys": False, "results": False})

    def about(spec: RunSpec) -> str:
        return f"a foreign client of {model} meddles with {spec.rate_per_s} jobs/s, seed {spec.seed}"

    def rated(spec: RunSpec, calibration: Calibration) -> RunSpec:
        return replace(spec, rate_per_s=calibration.rate_per_s, calibration=calibration.for_spec())

    def make(spec: RunSpec, folder: RunFolder, progress: Progress, toxiproxy: Path | None) -> MischiefDrill:
        drill = MischiefDrill(spec, plan, folder, progress, interrupts, toxiproxy=toxiproxy)
        if mutant:
            drill.lua = mutants.plant(mutant, scripts_folder(), folder.path / "lua")
        return drill

    return Order(spec, plan, make, about, rated, mutant)
