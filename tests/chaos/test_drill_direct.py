"""A short drill on real parts: one worker is connected directly and all others through proxies, and one of each is killed."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos.drill import Drill
from tests.chaos import drills, judged

pytestmark = [pytest.mark.slow, judged.TIMEOUT]

#: So long that it is told from a closed connection, also on a busy machine.
LEASE_MS = 12_000


def make(folder: Path) -> Drill:
    """Carry out the drill."""
    folder.mkdir()
    told: dict = {"lease_ms": LEASE_MS, "sweep_ms": 1_000, "liveness_slack_ms": 3_000}
    drill, plan = drills.make_drill(folder, seed=1, kinds=("net-latency", "worker-kill"), direct=("worker-1",), **told)
    drill.spec = replace(drill.spec, plan=tuple(map(asdict, plan.faults)), pace=asdict(drills.PACE))
    return drills.carried_out(drill)


def test_the_kill_of_a_direct_worker_shows_and_those_behind_proxies_wait_for_leases(spark: SparkSession, tmp_path: Path) -> None:
    drill, verdict = judged.drilled(make, lambda made: made.folder.path, tmp_path, spark)
    assert drill.errors == [] and verdict["verdict"] == "valid", json.dumps(verdict["reasons"], indent=1)
    first, other = verdict["measures"]["recovery"]
    assert (first["target"], first["connected"], other["connected"]) == ("worker-1", "direct", "proxied")
    rows = [row for rows in drills.history(drill).values() for row in rows]
    held = {item["job"] for row in rows if (row["fault"], row["stage"]) == (first["fault"], "witness") for item in row["items"]}
    reaps = [row for row in rows if row["f"] == "reap" for item in row["items"] if item.get("job") in held]
    assert held and reaps and all(row["incarnation"] for row in reaps), "taken because of the connection, not of the lease"
    assert first["jobs"] and first["recovery_ms"] < other["recovery_ms"]
