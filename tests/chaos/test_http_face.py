"""The drill over HTTP: its plan hits both legs of the producer's way and kills an app, and a short one is valid."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from chaos import catalogue, installed, processes, replay, runs, spec, toxiproxy, toxiproxy_binary
from chaos.catalogue import APPS
from chaos.errors import HarnessError
from chaos.faults import kills, network_base
from chaos.faults.base import LOST_MS, Scene
from chaos.http_drill import HttpDrill
from chaos.interrupts import Interrupts
from chaos.network import Network
from chaos.plan import NETWORK_FAULT_NAMES, PRODUCER, Plan, PlannedFault, consumer_names, draw, worker_names
from chaos.probe import PATIENCE_S, Address, Silence, refused
from chaos.progress import Progress
from chaos.watch import Watch
from engine.http.settings import HttpSettings
from tests.chaos import judged
from tests.chaos.drills import LEASE_MS, PACE, carried_out, history, prepared
from tests.chaos.test_toxiproxy import program
from tests.engine.helpers.waiting import soon
from tests.engine.http.serving import served

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
    assert not any(set(APPS) & set(planned.targets) for planned in draw(1, workers=WORKERS).faults)


def made_drill(folder: Path, seed: int) -> tuple[HttpDrill, Plan]:
    """A short drill with every kind of fault, and its plan."""
    plan = draw(seed, workers=WORKERS, consumers=CONSUMERS, pace=PACE, load=catalogue.HTTP)
    short = spec.RunSpec.bare(
        id=runs.run_id("bench", seed, "http", 0.0), seed=seed, face="http", lease_ms=LEASE_MS, sweep_ms=200, rate_per_s=80
    )
    short = replace(short, plan=tuple(map(asdict, plan.faults)), pace=asdict(plan.pace), liveness_slack_ms=3_000)
    place = runs.create(folder, short.id)
    short.write(place.path / "spec.json", harness_errors=[])
    return HttpDrill(short, plan, place, Progress(StringIO()), Interrupts(), toxiproxy=toxiproxy_binary.find()), plan


def test_a_replay_is_over_http_again(tmp_path: Path) -> None:
    drill, plan = made_drill(tmp_path, 1)
    found = replay.read(drill.folder.path)
    again = found.scenario(plan.faults)
    assert (found.plan, again.spec.face, again.spec.load) == (plan, "http", "http")
    assert isinstance(prepared(again, tmp_path / "again"), HttpDrill) and again.spec.id.endswith("-http-replay")
    drill.folder.release()


PLACES = [(True, "`make setup` installs"), (False, r"pip install 'ironclaim_harness-.*\[http\]' ironclaim_client-")]


@pytest.mark.parametrize(("checkout", "told"), PLACES)
def test_missing_packages_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkout: bool, told: str) -> None:
    drill, plan = made_drill(tmp_path, 1)
    scenario = replay.read(drill.folder.path).scenario(plan.faults)
    drill.folder.release()
    assert list(scenario.lacking()) == []
    monkeypatch.setattr(installed, "CHECKOUT", checkout)
    monkeypatch.setattr(installed, "OVER_HTTP", ("httpx", "no_client"))
    with pytest.raises(HarnessError, match=f"^a producer over HTTP needs Python packages that are missing: no_client; {told}"):
        prepared(scenario, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def make(folder: Path) -> HttpDrill:
    """Carry a short drill out."""
    folder.mkdir()
    drill = carried_out(made_drill(folder, 1)[0])
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


def test_a_producers_ways_are_harmed_together_and_probed_over_http(ironclaim_url: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        base = stack.enter_context(served(HttpSettings(url=ironclaim_url, allow_changes=True)))
        network = stack.enter_context(Network(ironclaim_url, program=program(), log=tmp_path / "log"))
        app = Address("127.0.0.1", int(base.rpartition(":")[2]))
        entries = [network.connect_to_app(PRODUCER, name, app) for name in APPS]
        ways = network.ways(PRODUCER)
        assert [way.entry for way in ways] == entries and len(set(entries)) == 2
        assert [way.write(f"probe-{at}", PATIENCE_S) for at, way in enumerate(ways)] == ["201", "201"]
        assert all(way.arrived(f"probe-{at}") for at, way in enumerate(ways)) and not ways[0].arrived("probe-9")
        for stream, arrives in (("upstream", False), ("downstream", True)):
            network.poison([PRODUCER], [toxiproxy.blackhole(stream)])
            for at, way in enumerate(ways):
                with pytest.raises(Silence):
                    way.write(f"{stream}-{at}", 0.5)
                there = partial(way.arrived, f"{stream}-{at}")
                assert soon(there, "it was still on its way") if arrives else not there()
            network.heal([PRODUCER])
        network.poison([PRODUCER], [toxiproxy.latency("upstream", 300)])
        trips = network_base.RoundTrips(network, [PRODUCER])

        def slowed() -> bool:
            trips.observe()
            return trips.added_ms()[PRODUCER] >= 150

        # A busy machine makes single trips longer, also those to the app itself.
        soon(slowed, "a longer way through the proxies")
        network.cut([PRODUCER])
        assert all(refused(entry) for entry in entries)


def test_an_app_that_does_not_die_was_not_killed(tmp_path: Path) -> None:
    """As with the mutant whose faults do nothing: requests are in hand, and the process lives."""
    with subprocess.Popen(["sleep", "600"]) as process:
        watch = Watch(tmp_path)
        watch.follow(PRODUCER)
        child = processes.Child("app-1", "app", process, tmp_path / "log")
        crew: Any = SimpleNamespace(children={"app-1": child}, apps={})
        signals = list[int]()

        def wait(condition: Callable[[], bool], *, timeout_s: float, poll_s: float = 0.005) -> bool:
            sent_ns = time.monotonic_ns()
            watch.view(PRODUCER).unanswered.update({f"op-{at}": ("enqueue", sent_ns) for at in range(2)})
            time.sleep(2 * LOST_MS / 1_000)
            return condition()

        scene = Scene(crew, watch, wait, lambda pid, number: signals.append(number), LEASE_MS, 3_000)
        fault = kills.AppKill(scene, PlannedFault("1-app-kill", "app-kill", "app-1", 0))
        injected, witnessed = fault.inject(), fault.witness()
        process.kill()
    assert signals == [signal.SIGSTOP, signal.SIGKILL] and injected.detail.endswith("2 requests in hand")
    assert (witnessed.ok, witnessed.detail) == (False, "app-1 did not die")
    assert not child.exit_expected, "its end would be nobody's plan"
