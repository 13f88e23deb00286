"""A drill in which the history of one worker cannot be written any more: the engine goes on, and the run proves nothing."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
from pyspark.sql import SparkSession

from chaos.drill import Drill
from chaos.faults import FAULTS, disks
from chaos.plan import PlannedFault
from tests.chaos import drills, judged

pytestmark = [pytest.mark.slow, judged.TIMEOUT]

FULL = PlannedFault("1-recorder-disk-full", "recorder-disk-full", "worker-1", 0)


@dataclass
class FullDrill(Drill):
    """A drill that knows this fault, which no plan draws."""

    FAULTS: ClassVar = {**FAULTS, FULL.name: disks.RecorderDiskFull}


def make(folder: Path) -> Drill:
    folder.mkdir(parents=True)
    drill, plan = drills.make_drill(folder, seed=1, kinds=())
    spec = replace(drill.spec, plan=(asdict(FULL),), liveness_slack_ms=3_000)
    return drills.carried_out(FullDrill(spec, replace(plan, faults=(FULL,)), drill.folder, drill.progress, drill.interrupts))


def test_the_engine_goes_on_and_the_verdict_is_unknown_for_the_hole(tmp_path: Path, spark: SparkSession) -> None:
    drill, verdict = judged.drilled(make, lambda made: made.folder.path, tmp_path / "runs", spark, "unknown")
    assert drill.errors == []
    files = drills.history(drill)
    stages = [(row["stage"], row["result"]) for row in files["harness"] if row["kind"] == "fault"]
    assert stages == [(stage, "ok") for stage in ("inject", "witness", "heal", "healed")]
    assert files["worker-1"][-1]["kind"] != "close" and files["worker-1.sink"][-1]["kind"] == "close"
    assert verdict["verdict"] == "unknown", json.dumps(verdict["reasons"], indent=1)
    assert any(reason.startswith("H0 ") and "worker-1.jsonl" in reason for reason in verdict["reasons"])
