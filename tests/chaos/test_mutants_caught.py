"""Real drills on a short scenario: each mutant is caught by the check that is named for it, and the clean engine stays clean."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos.calibration import Calibration, Trial
from chaos.command import record
from chaos.drill import Drill
from chaos.interrupts import Interrupts
from chaos.mutants.outcome import missed
from chaos.mutants.short import calibration_of, every, order
from chaos.plan import Pace
from chaos.verdicts import parsed
from tests.chaos import drills
from tests.chaos.judged import TIMEOUT, check_verdicts, drilled

pytestmark = TIMEOUT

PLANTED = every()

#: One for each tier: the other drills are of the third.
SOON = "limit-not-counted"

PACE = Pace(lead_in_ms=800, delay_max_ms=200, calm_ms=300, settle_ms=1_000)
LIVENESS_SLACK_MS = 3_000

CALIBRATION = Calibration(120, (Trial(120, 240, 1.0, 0, 1.0),))


def drill_of(name: str, folder: Path) -> Path:
    """Carry out the drill of a mutant; the folder of its run."""
    planted = PLANTED[name]
    arguments = argparse.Namespace(runs=folder, keep=100, keep_days=100)
    with Interrupts() as interrupts:
        wanted = order(planted.shape, 1, interrupts, planted.mutant)
        made = record(wanted, arguments, interrupts, calibration_of(planted.shape, CALIBRATION))
    made.folder.release()
    return made.folder.path


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == SOON else pytest.mark.nightly) for name in sorted(PLANTED)]
)
def test_a_mutant_is_caught_by_the_check_that_is_named_for_it(name: str, spark: SparkSession, tmp_path: Path) -> None:
    mutant = PLANTED[name].mutant
    _, verdict = drilled(partial(drill_of, name), lambda run: run, tmp_path, spark, mutant.verdict)
    assert missed(mutant, parsed(verdict)) == ""


def clean(seed: int, folder: Path) -> Drill:
    """Carry out one short drill of the clean engine."""
    folder.mkdir()
    short, plan = drills.make_drill(folder, seed=seed, kinds=("worker-kill", "worker-freeze", "net-reply-lost"), pace=PACE)
    planned = tuple(asdict(fault) for fault in plan.faults)
    short.spec = replace(short.spec, plan=planned, liveness_slack_ms=LIVENESS_SLACK_MS)
    drills.run(short)
    short.spec.write(short.folder.path / "spec.json", harness_errors=short.errors, ended_utc="now")
    return short


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_clean_engine_is_valid(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    _, verdict = drilled(partial(clean, seed), lambda made: made.folder.path, tmp_path, spark)
    assert verdict["verdict"] == "valid", json.dumps(verdict["reasons"], indent=1)
    assert set(check_verdicts(verdict).values()) == {"valid"}
