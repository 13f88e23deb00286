"""Real drills on a short scenario: each mutant is caught by the check that is named for it, and the clean engine stays clean."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from chaos import mutants
from chaos.drill import Drill
from chaos.mutants import MUTANTS
from chaos.plan import Pace
from engine.wire.scripts import scripts_folder
from tests.chaos import drills
from tests.chaos.judged import TIMEOUT, check_caught, check_verdicts, drilled

pytestmark = TIMEOUT

#: A short run: what its verdict needs and nothing more. Load and faults of one take at most 12 s.
PACE = Pace(lead_in_ms=800, delay_max_ms=200, calm_ms=300, settle_ms=1_000)
LIVENESS_SLACK_MS = 3_000

#: The fault that gives each mutant something to do wrong.
PROVOKED_BY = {
    "finish-without-token-check": "worker-freeze",
    "enqueue-not-idempotent": "net-reply-lost",
    "no-reap": "worker-kill",
    "limit-not-counted": "worker-kill",
    "rate-not-counted": "worker-kill",
    "unique-not-kept": "worker-kill",
    "inject-nothing": "worker-kill",
    "writes-to-a-replaced-primary": "primary-kill",
    "era-ignored": "failover-lossy",
    "moved-taken-as-success": "slot-move",
}

#: What the scenario has beside the short one: limits that are reached in no time, unique keys.
SCENARIOS: dict[str, dict[str, Any]] = {
    "limit-not-counted": {"limits": ({"key": "*", "concurrency": 1},)},
    "rate-not-counted": {"limits": ({"name": "report", "rate": 3, "per_ms": 500},)},
    "unique-not-kept": {"unique_keys": True},
}

#: What a mutant may trip beside the check that is named for it (rule 35). A finish that is accepted from a stale lease finishes a
#: job twice, and refuses the one that was right. A job that is there twice is claimed and finished twice, the first time before
#: the delay of its second enqueue is over, and no enqueue is ever said to be repeated; nor does one say that it has made the job
#: whose second copy another job's unique key has kept out. Faults that do nothing provoke nothing. A lease that nobody takes away
#: leaves its job and the fault unfinished.
CLOSURES = {
    "finish-without-token-check": {"J3", "J6", "J4", "H2"},
    "enqueue-not-idempotent": {"J6", "J3", "J4", "J5", "J8", "H2"},
    "no-reap": {"J13", "H0", "H1", "H2"},
    "limit-not-counted": {"J12"},
    "rate-not-counted": {"J11"},
    "unique-not-kept": {"J14"},
    "inject-nothing": {"H1", "H2"},
    # Clients that nobody answers leave everything where it is, and cannot even stop.
    "writes-to-a-replaced-primary": {"J24", "J13", "J4", "J6", "J7", "J8", "H0", "H1", "H2", "H3"},
    "era-ignored": {"J24"},
    # A job that was never made held a unique key, for the judge.
    "moved-taken-as-success": {"J4", "J14"},
}


def make(folder: Path, *, seed: int, kinds: tuple[str, ...], mutant: str = "") -> Drill:
    """Carry out one short drill."""
    folder.mkdir()
    short, plan = drills.make_drill(folder, seed=seed, kinds=kinds, pace=PACE)
    planned = tuple(asdict(fault) for fault in plan.faults)
    short.spec = replace(short.spec, mutant=mutant, plan=planned, liveness_slack_ms=LIVENESS_SLACK_MS)
    short.spec = replace(short.spec, **SCENARIOS.get(mutant, {}))
    if mutant:
        planted = MUTANTS[mutant]
        short.lua = mutants.plant(planted, scripts_folder(), short.folder.path / "lua")
        if planted.faults_do_nothing:
            short.signal, short.pretend = mutants.pretend, True
    drills.run(short)
    short.spec.write(short.folder.path / "spec.json", harness_errors=short.errors, ended_utc="now")
    return short


def test_every_mutant_has_its_fault_and_its_closure() -> None:
    assert PROVOKED_BY.keys() == CLOSURES.keys() == MUTANTS.keys()
    assert all(mutant.check in CLOSURES[mutant.name] for mutant in MUTANTS.values())


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_mutant_is_caught_by_the_check_that_is_named_for_it(name: str, spark: SparkSession, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    drill = partial(make, seed=1, kinds=(PROVOKED_BY[name],), mutant=name)
    _, verdict = drilled(drill, lambda made: made.folder.path, tmp_path, spark, mutant.verdict)
    check_caught(verdict, mutant.check, mutant.verdict, CLOSURES[name])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_clean_engine_is_valid(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    drill = partial(make, seed=seed, kinds=("worker-kill", "worker-freeze", "net-reply-lost"))
    _, verdict = drilled(drill, lambda made: made.folder.path, tmp_path, spark)
    assert verdict["verdict"] == "valid", json.dumps(verdict["reasons"], indent=1)
    assert set(check_verdicts(verdict).values()) == {"valid"}
