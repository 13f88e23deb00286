"""The drill over HTTP: its plan hits both legs of the producer's way and kills an app, and a short one is valid."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos import catalogue, cli, replay, runs, toxiproxy_binary
from chaos.errors import HarnessError
from chaos.faces import APPS
from chaos.http_face import HttpDrill
from chaos.interrupts import Interrupts
from chaos.plan import NETWORK_FAULT_NAMES, PRODUCER, Plan, consumer_names, draw, worker_names
from chaos.progress import Progress
from chaos.spec import RunSpec
from tests.chaos import judged
from tests.chaos.drills import LEASE_MS, PACE, history, run

WORKERS, CONSUMERS = worker_names(3), consumer_names(1)
PLANS = [draw(seed, workers=WORKERS, consumers=CONSUMERS, load=catalogue.HTTP) for seed in range(50)]


def test_a_plan_holds_each_kind_once_and_kills_each_app_sometimes() -> None:
    kinds = catalogue.usual("embedded", catalogue.HTTP)
    assert sorted(kinds) == sorted((*catalogue.usual("embedded"), "app-kill"))
    assert all(sorted(planned.name for planned in plan.faults) == sorted(kinds) for plan in PLANS)
    assert {planned.target for plan in PLANS for planned in plan.faults if planned.name == "app-kill"} == set(APPS)


def test_each_plan_hits_both_legs_and_a_lost_reply_is_the_producers() -> None:
    for plan in PLANS:
        hit = {planned.name: set(planned.targets) for planned in plan.faults if planned.name in NETWORK_FAULT_NAMES}
        assert all((PRODUCER in names) != names.issuperset(APPS) for names in hit.values())
        assert PRODUCER in hit.pop("net-reply-lost")
        assert {PRODUCER in names for names in hit.values()} == {True, False}
    assert draw(3, workers=WORKERS, load=catalogue.HTTP) == draw(3, workers=WORKERS, load=catalogue.HTTP)


def test_other_drills_know_no_apps() -> None:
    with pytest.raises(HarnessError, match=r"^fault 'app-kill' does not exist; choose from worker-kill, "):
        draw(1, workers=WORKERS, kinds=("app-kill",))
    with pytest.raises(HarnessError, match=r"^fault 'server-pause' does not exist; choose from worker-kill, "):
        draw(1, workers=WORKERS, kinds=("server-pause",), load=catalogue.HTTP)
    assert not any(set(APPS) & set(planned.targets) for planned in draw(1, workers=WORKERS).faults)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--face", "grpc"], "invalid choice: 'grpc'"),
        (["--face", "http", "--model", "dsps"], "--face http is of drills of jobs"),
        (["--face", "http", "--target", "rq"], "--face http is of drills of jobs"),
        (["--face", "http", "--replay", "runs/a"], "--face cannot be given with --replay"),
    ],
)
def test_a_face_that_does_not_fit_is_refused(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.parse(["bench", *arguments])
    assert ended.value.code == 2 and complaint in capsys.readouterr().err


def made_drill(folder: Path, seed: int) -> tuple[HttpDrill, Plan]:
    """A short drill with every kind of fault, and its plan."""
    plan = draw(seed, workers=WORKERS, consumers=CONSUMERS, pace=PACE, load=catalogue.HTTP)
    short = RunSpec(runs.run_id("bench", seed, "http", 0.0), seed, face="http", lease_ms=LEASE_MS, sweep_ms=200, rate_per_s=80)
    short = replace(short, limits=(), unique_keys=False, schedules=(), dependencies=False, routing=False)
    short = replace(
        short, plan=tuple(asdict(planned) for planned in plan.faults), pace=asdict(plan.pace), liveness_slack_ms=3_000
    )
    place = runs.create(folder, short.id)
    short.write(place.path / "spec.json", harness_errors=[])
    return HttpDrill(short, plan, place, Progress(StringIO()), Interrupts(), toxiproxy=toxiproxy_binary.find()), plan


def test_a_replay_is_over_http_again(tmp_path: Path) -> None:
    drill, plan = made_drill(tmp_path, 1)
    found = replay.read(drill.folder.path)
    order = found.order(plan.faults, Interrupts())
    assert (found.plan, order.spec.face, order.spec.load) == (plan, "http", "http")
    made = order.make(order.spec, drill.folder, Progress(StringIO()), None)
    assert isinstance(made, HttpDrill) and order.spec.id.endswith("-http-replay")
    drill.folder.release()


def make(folder: Path) -> HttpDrill:
    """Carry a short drill out."""
    folder.mkdir()
    drill, _ = made_drill(folder, 1)
    run(drill)
    drill.spec.write(drill.folder.path / "spec.json", harness_errors=drill.errors, ended_utc="now")
    drill.folder.release()
    return drill


@judged.TIMEOUT
@pytest.mark.slow
def test_the_clean_engine_is_valid_behind_apps_of_which_one_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    drill, verdict = judged.drilled(make, lambda made: made.folder.path, tmp_path, spark)
    assert (drill.errors, verdict["verdict"]) == ([], "valid"), json.dumps(verdict["reasons"], indent=1)
    rows = history(drill)
    stages = [(row["fault"], row["stage"], row["result"]) for row in rows["harness"] if row["kind"] == "fault"]
    wanted = ("inject", "witness", "heal", "healed")
    assert stages == [(planned.fault, stage, "ok") for planned in drill.plan.faults for stage in wanted]
    enqueues = [row for row in rows[PRODUCER] if row["kind"] == "operation" and row["type"] != "invoke"]
    assert any(row["sends"] > 1 and row["result"] == "repeated" for row in enqueues)
