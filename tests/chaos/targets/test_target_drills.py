"""Real drills: this engine behind an adapter, as all libraries have one, is the control and must be valid; RQ strands what it had
in hand, and the drill finds that by itself."""

import io
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench.peers import environments, libraries
from chaos import progress, runs, toxiproxy_binary
from chaos.interrupts import Interrupts
from chaos.plan import Pace
from chaos.targets.drill import TargetDrill
from chaos.targets.promises import find
from chaos.targets.spec import TargetSpec, draw, wait_ms
from reports.judge import judge
from tests.chaos.judged import TIMEOUT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left"), TIMEOUT]

PACE = Pace(lead_in_ms=2_000, delay_max_ms=500, calm_ms=500, settle_ms=2_000)


def drilled(name: str, kinds: tuple[str, ...], folder: Path, spark: SparkSession, runtime: str = "") -> dict[str, Any]:
    """The verdict of a short drill."""
    library, promise = find(name)
    library = replace(library, runtime=runtime or library.runtime)
    plan = replace(draw(3, workers=4, kinds=kinds), pace=PACE)
    place = runs.create(folder, runs.run_id("target", 3, name, 0.0))
    told: dict[str, Any] = {"promise": promise.for_spec(), "settings": dict(library.default), "packages": ()}
    told |= {"wait_ms": wait_ms(promise, None), "plan": tuple(map(asdict, plan.faults)), "started_utc": "2026-01-01T00:00:00Z"}
    spec = TargetSpec(id=place.path.name, seed=3, target=name, **told)
    more: dict[str, Any] = {"toxiproxy": toxiproxy_binary.find() or toxiproxy_binary.build(print), "runtime": library.runtime}
    more["command"] = environments.command_of(library)
    with Interrupts() as interrupts:
        drill = TargetDrill(spec, plan, place, progress.Progress(io.StringIO()), interrupts, **more)
        drill.run()
    spec.write(place.path / "spec.json", harness_errors=drill.errors, ended_utc="2026-01-01T00:10:00Z")
    return judge(place.path, spark=spark, say=lambda line: None)


def test_this_engine_keeps_its_promise_behind_the_same_adapter(tmp_path: Path, spark: SparkSession) -> None:
    kinds = ("worker-kill", "worker-freeze", "net-reply-lost")
    verdict = drilled(libraries.OURS, kinds, tmp_path, spark, runtime="checkout")
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
    measures = verdict["measures"]
    assert measures["lost"] == measures["stranded"] == measures["late"] == 0 < measures["enqueued"]
    assert measures["kill"]["in_hand"] == measures["kill"]["again"] > 0
    page = (next(tmp_path.glob("*-target-*")) / "report.html").read_text()
    assert "at least once" in page and "What SIGKILL cost" in page


def test_a_run_without_faults_has_nothing_to_tell(tmp_path: Path, spark: SparkSession) -> None:
    verdict = drilled(libraries.OURS, ("none",), tmp_path, spark, runtime="checkout")
    assert (verdict["verdict"], verdict["reasons"], verdict["findings"]) == ("valid", [], [])
    assert verdict["measures"]["finished"] == verdict["measures"]["enqueued"] > 0


def test_rq_strands_the_jobs_that_killed_workers_had_in_hand(tmp_path: Path, spark: SparkSession) -> None:
    verdict = drilled("rq", ("worker-kill",), tmp_path, spark)
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", []), "it promises no more"
    kill = verdict["measures"]["kill"]
    assert kill["in_hand"] > 0 and kill["stranded"] == kill["in_hand"] and kill["again"] == 0
    assert [finding["name"] for finding in verdict["findings"]] == ["stranded"]
