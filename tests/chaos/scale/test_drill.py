"""A short drill on real parts: the load doubles twice and falls, and workers come and go by the metrics that are served."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos import runs
from chaos.interrupts import Interrupts
from chaos.plan import Plan
from chaos.progress import Progress
from chaos.scaling import FILE, ScaleDrill, Times, followed
from chaos.scenarios.scale import PACE, spec_of
from tests.chaos import drills, judged

TIMES = Times(lead_in_s=4, doubled_s=8, fall_s=25, stable_s=2)


def make(folder: Path) -> ScaleDrill:
    """Of 40 jobs/s with one handler a worker, two workers are wanted at most; of 10 a second, one."""
    spec = replace(spec_of(1), concurrency=1, rate_per_s=40)
    place, progress = runs.create(folder, spec.id), Progress(StringIO())
    return drills.carried_out(ScaleDrill(spec, Plan(1, PACE, ()), place, progress, Interrupts(), times=TIMES))


@pytest.mark.slow
@judged.TIMEOUT
def test_workers_come_with_the_load_and_go_with_it(tmp_path: Path, spark: SparkSession) -> None:
    drill, verdict = judged.drilled(make, lambda made: made.folder.path, tmp_path, spark)
    assert (verdict["verdict"], drill.errors) == ("valid", []), verdict["reasons"]
    looks = json.loads((drill.folder.path / FILE).read_text())["looks"]
    assert followed(looks), [(look["at_s"], look["there"], look["wanted_workers"]) for look in looks]
    assert list(dict.fromkeys(look["phase"] for look in looks)) == ["setup", *ScaleDrill.PHASES]
    # Who was told to stop has taken its leave, with its history whole, and finished what it had.
    rows = drills.history(drill)
    retired = [name for name in rows if name.startswith("worker-") and not name.startswith("worker-1")]
    assert retired and all(rows[name][-1]["kind"] == "close" for name in retired)
    assert {row["name"] for row in rows["harness"] if row["kind"] == "phase"} >= {*ScaleDrill.PHASES, "drain", "end"}
