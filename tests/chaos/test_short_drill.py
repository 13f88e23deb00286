"""The drill of the first tier, judged: replies that real proxies lose, a worker killed in mid-job, leases that end too early. And
the same with a planted defect: the late finish that the clean engine refuses is accepted, and J3 must say so.

Each fault waits for its effect, and J3 rests on the order of calls alone: neither depends on the speed of the machine. A slow one
sends the load late. Then the judge calls the clean run unknown, for late work alone (`Verdict.too_slow`), and that is let pass.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from chaos import mutants, runs, toxiproxy_binary
from chaos.drill import Drill
from chaos.interrupts import Interrupts
from chaos.judge import Verdict, parsed
from chaos.mutants.of_jobs import MUTANTS
from chaos.plan import PRODUCER, Pace, Plan, PlannedFault
from chaos.progress import Progress
from chaos.spec import RunSpec
from engine.redis.scripts import scripts_folder
from tests.chaos.drills import carried_out, history, repeated, run_elsewhere
from tests.chaos.judged import TIMEOUT
from tests.reports.conftest import verdict_of

pytestmark = TIMEOUT

PACE = Pace(lead_in_ms=1_000, delay_max_ms=0, calm_ms=300, settle_ms=500)
FAULTS = (
    PlannedFault("1-net-reply-lost", "net-reply-lost", f"worker-1,worker-2,{PRODUCER}", 0),
    PlannedFault("2-worker-kill", "worker-kill", "worker-1", 0, "worker-3"),
    PlannedFault("3-lease-expired", "lease-expired", "worker-2", 0),
)

MUTANT = MUTANTS["finish-without-token-check"]


#: A drill that is over, and the verdict on it.
Drilled = tuple[Drill, Verdict]


@pytest.fixture(scope="module")
def drills(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Drilled, Drilled]:
    """The drill of the clean engine, and that of the mutant, which goes on while the first is judged."""
    client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    with ThreadPoolExecutor(1) as judge:
        clean = drilled("", FAULTS, tmp_path_factory.mktemp("clean"), spark)
        # Held here: what the drill forks has no thread but this one, and would shut down the connection of the others to Spark.
        _held = judge.submit(lambda: (spark.version, client.get_thread_connection()))
        judging = judge.submit(verdict_of, clean.folder.path, spark)
        planted = drilled(MUTANT.name, FAULTS[2:], tmp_path_factory.mktemp("planted"), spark)
        verdicts = parsed(judging.result()), parsed(verdict_of(planted.folder.path, spark))
    made = (clean, verdicts[0]), (planted, verdicts[1])
    for drill, verdict in made:
        assert drill.errors == [], verdict.reasons
    return made


def drilled(mutant: str, faults: tuple[PlannedFault, ...], folder: Path, spark: SparkSession) -> Drill:
    """Carry out the drill, of the clean engine or of a mutant."""
    # In so short a run no limit need be reached, and nobody be kept out: J12 and J14 would be unknown.
    told: dict[str, Any] = {"plan": tuple(map(asdict, faults)), "pace": asdict(PACE), "liveness_slack_ms": 2_000}
    told |= {"workers": 2, "consumers": 0, "lease_ms": 2_000, "sweep_ms": 200, "rate_per_s": 40}
    spec = RunSpec.bare(id=runs.run_id("bench", 1, mutant, 0.0), seed=1, mutant=mutant, **told)
    place = runs.create(folder, spec.id)
    drill = Drill(spec, Plan(1, PACE, faults), place, Progress(StringIO()), Interrupts(), toxiproxy=toxiproxy_binary.find())
    drill.lua = mutants.plant(MUTANTS[mutant], scripts_folder(), place.path / "lua") if mutant else None
    before = children(spark)
    carried_out(drill)
    assert children(spark) <= before, "servers, proxies and processes are gone"
    return drill


def children(spark: SparkSession) -> set[psutil.Process]:
    """All processes below this one, but for those of Spark, which comes and goes with them as it judges."""
    gateway: Any = spark.sparkContext._gateway
    own = [child for child in psutil.Process().children() if child.pid != gateway.proc.pid]
    return {*own, *(below for child in own for below in child.children(recursive=True))}


def test_the_clean_engine_is_valid_with_lost_replies_a_killed_worker_and_ended_leases(drills: tuple[Drilled, Drilled]) -> None:
    drill, verdict = drills[0]
    assert verdict.verdict == "valid" or verdict.too_slow, verdict.reasons
    stages = [(row["fault"], row["stage"], row["result"]) for row in history(drill)["harness"] if row["kind"] == "fault"]
    assert stages == [(fault.fault, stage, "ok") for fault in FAULTS for stage in ("inject", "witness", "heal", "healed")]
    assert {"enqueue", "claim", "finish"} <= repeated(drill, FAULTS[0])
    ran = run_elsewhere(drill, FAULTS[1])
    assert ran
    assert all(ran.values()), ran


def test_a_late_finish_that_is_accepted_is_found_by_the_check_of_that_name(drills: tuple[Drilled, Drilled]) -> None:
    _, verdict = drills[1]
    assert (verdict.verdict, verdict.checks[MUTANT.check]) == ("violated", "violated"), verdict.reasons
    assert {check for check, found in verdict.checks.items() if found == "violated"} <= MUTANT.closure, verdict.reasons
