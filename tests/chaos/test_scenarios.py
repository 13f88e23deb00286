"""Every scenario is prepared: a folder with the spec of its run, what is said of it, and the drill that carries it out."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from chaos import plan, run
from chaos.attendance import Attendance
from chaos.campaigns import short
from chaos.channels.drill import ChannelDrill
from chaos.channels.spec import ChannelSpec
from chaos.drill import Drill
from chaos.http_drill import HttpDrill
from chaos.mutants import of_services
from chaos.mutants.of_jobs import MUTANTS
from chaos.scaling import ScaleDrill
from chaos.scenarios import attended, bench, channels, mischief, scale, soak, target
from chaos.scenarios.mischief import MischiefDrill
from chaos.service.drill import ServiceDrill
from chaos.soaking import Soak, Times
from chaos.spec import RunSpec
from chaos.targets.drill import TargetDrill
from tests.chaos.drills import prepared
from tests.given import Output, Patch

NONE = plan.Plan(1, plan.Pace(), ())
BENCH, SOAK = "20260101-000000-bench-seed1", "20260101-000000-soak-seed1"
NO_REAP = "mutant no-reap: leases that ran out are never reaped; J13 must make the verdict violated"


def of_target() -> run.Scenario[Any]:
    return target.of_name("rq", argparse.Namespace(seed=1, minutes=None, faults=("worker-kill",)))


def of_service() -> run.Scenario[Any]:
    times = {"lease_ms": short.LEASE_MS, "sweep_ms": short.SWEEP_MS, "liveness_slack_ms": short.LIVENESS_SLACK_MS}
    return of_services.drawn(("worker-freeze",), 1, None, plan.Pace(), **times)


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (lambda: bench.drawn(RunSpec(BENCH)), Drill, "3 workers, 1 in Locust, 120 jobs/s, "),
        (lambda: bench.drawn(RunSpec(BENCH, face="http")), HttpDrill, ", a producer over HTTP, "),
        (lambda: bench.of_plan(RunSpec(BENCH), NONE, mutant=MUTANTS["no-reap"]), Drill, NO_REAP),
        (lambda: channels.drawn(ChannelSpec(BENCH, 1)), ChannelDrill, "44 channels at 100% of their"),
        (lambda: mischief.of_model("bull", 1), MischiefDrill, "a foreign client of bull meddles with 120 jobs/s, seed 1"),
        (lambda: scale.Scale(spec=scale.spec_of(1), plan=scale.Plan(1, scale.PACE, ())), ScaleDrill, "30 jobs/s, twice and "),
        (lambda: soak.SoakRun(spec=RunSpec(SOAK), plan=NONE, times=Times(120)), Soak, "every 10 s, 2 min"),
        (of_target, TargetDrill, "rq promises to run a job at most once, recovery bound none; seed 1"),
        (of_service, ServiceDrill, "a small service, 25 jobs/s, seed 1"),
    ],
    ids=["bench", "http", "mutant", "channels", "mischief", "scale", "soak", "target", "service"],
)
def test_a_scenario_has_all_its_own(make: Any, kind: type, said: str, tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(target, "command_of", lambda library: ["adapter"])
    scenario = make()
    drill = prepared(scenario, tmp_path)
    assert type(drill) is kind and drill.plan == scenario.plan
    written = json.loads((drill.folder.path / "spec.json").read_text())
    assert [entry["fault"] for entry in written["plan"]] == [planned.fault for planned in scenario.plan.faults]
    assert written["id"] == drill.folder.path.name and written["git_commit"] and written["pace"] and not written["harness_errors"]
    out = capsys.readouterr().out
    assert said in out and str(drill.folder.path) in out
    assert kind is Soak or out.count("planned: ") == max(1, len(written["plan"]))
    drill.folder.release()


def test_an_attended_run_starts_no_server_and_measures_nothing(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("IRONCLAIM_REDIS_SERVER", str(tmp_path / "gone"))
    made = attended.Attended(spec=RunSpec("20260101-000000-attended-seed1"), plan=NONE)
    drill = prepared(made, tmp_path / "runs", url="redis://127.0.0.1:1")
    assert isinstance(drill, Attendance) and drill.url == "redis://127.0.0.1:1" and drill.spec.calibration == {}
    drill.folder.release()
