"""A short drill on real parts in which faults come while others are in force: a worker is killed while another one is frozen, and
connections are cut while a third one is. Both witnesses of each pair, the order of their stages, and a verdict."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos import toxiproxy_binary
from chaos.drill import Drill
from chaos.plan import PRODUCER, Plan, PlannedFault
from tests.chaos import judged
from tests.chaos.drills import PACE, carried_out, history, make_drill

pytestmark = [pytest.mark.slow, judged.TIMEOUT]

FAULTS = (
    PlannedFault("1-worker-freeze", "worker-freeze", "worker-1", 0),
    PlannedFault("2-worker-kill", "worker-kill", "worker-2", 0, "worker-4", during="1-worker-freeze"),
    PlannedFault("3-worker-freeze", "worker-freeze", "worker-3", 0),
    PlannedFault("4-net-down", "net-down", f"worker-4,{PRODUCER}", 0, during="3-worker-freeze"),
)


def make(folder: Path) -> Drill:
    """Carry out the drill."""
    folder.mkdir()
    drill, _ = make_drill(folder, seed=1)
    drill.plan = Plan(1, PACE, FAULTS)
    drill.toxiproxy = toxiproxy_binary.find()
    drill.spec = replace(drill.spec, plan=tuple(map(asdict, FAULTS)), pace=asdict(PACE), liveness_slack_ms=3_000)
    return carried_out(drill)


def test_faults_in_the_force_of_others_are_witnessed_and_the_clean_engine_is_valid(spark: SparkSession, tmp_path: Path) -> None:
    drill, verdict = judged.drilled(make, lambda made: made.folder.path, tmp_path, spark)
    assert drill.errors == []
    rows = history(drill)["harness"]
    stages = [(row["fault"], row["stage"], row["result"]) for row in rows if row["kind"] == "fault"]
    wanted: list[tuple[str, str, str]] = []
    for outer, inner in (FAULTS[:2], FAULTS[2:]):
        wanted += [(outer.fault, stage, "ok") for stage in ("inject", "witness")]
        wanted += [(inner.fault, stage, "ok") for stage in ("inject", "witness", "heal", "healed")]
        wanted += [(outer.fault, stage, "ok") for stage in ("heal", "healed")]
    assert stages == wanted
    phases = [row for row in rows if row["kind"] == "phase"]
    assert tuple(row["name"] for row in phases) == drill.plan.phases()
    assert [row["t_ns"] for row in phases] == sorted(row["t_ns"] for row in phases)
    assert verdict["verdict"] == "valid", json.dumps(verdict["reasons"], indent=1)
    # The page shows what came in the force of another fault as phases of its own.
    assert {"kill-in-freeze", "net-down-in-freeze"} <= {line["phase"] for line in verdict["measures"]["percentiles"]}
