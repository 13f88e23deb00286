"""A short drill on real parts (server, proxies, workers, load) with all six faults: its verdict, and everything that its history
must show."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos.drill import Drill
from chaos.plan import FAULT_NAMES, FLEET_FAULT_NAMES, NETWORK_FAULT_NAMES, PRODUCER, PlannedFault
from chaos.targets.faults import is_gone
from tests.chaos import drills, judged
from tests.chaos.judged import TIMEOUT, Verdict

pytestmark = [pytest.mark.slow, TIMEOUT]


def make(folder: Path) -> Drill:
    """Carry out a short drill with every fault."""
    folder.mkdir()
    drill, plan = drills.make_drill(folder, seed=1, kinds=FAULT_NAMES)
    drill.spec = replace(drill.spec, plan=tuple(map(asdict, plan.faults)), liveness_slack_ms=3_000)
    return drills.carried_out(drill)


@pytest.fixture(scope="module")
def judged_drill(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Drill, Verdict]:
    """One drill for all the tests that only read its history, and its verdict."""
    return judged.drilled(make, lambda made: made.folder.path, tmp_path_factory.mktemp("runs"), spark)


@pytest.fixture(scope="module")
def drill(judged_drill: tuple[Drill, Verdict]) -> Drill:
    made, _ = judged_drill
    assert made.errors == []
    return made


def test_the_clean_engine_is_valid_under_every_fault(judged_drill: tuple[Drill, Verdict]) -> None:
    _, verdict = judged_drill
    assert verdict["verdict"] == "valid", json.dumps(verdict["reasons"], indent=1)
    assert (set(judged.check_verdicts(verdict).values()), verdict["measures"]["lost"]) == ({"valid"}, 0)


def test_every_fault_was_injected_witnessed_and_healed(drill: Drill) -> None:
    rows = [row for row in drills.history(drill)["harness"] if row["kind"] == "fault"]
    stages = [(row["fault"], row["stage"], row["result"]) for row in rows]
    wanted = ("inject", "witness", "heal", "healed")
    assert stages == [(planned.fault, stage, "ok") for planned in drill.plan.faults for stage in wanted]
    assert all(row["items"] for row in rows if row["stage"] == "witness" and row["name"] in drills.WORKER_FAULTS)
    assert {row["name"] for row in rows} == set(FAULT_NAMES)


def planned_fault(drill: Drill, name: str) -> PlannedFault:
    (planned,) = [planned for planned in drill.plan.faults if planned.name == name]
    return planned


def test_a_network_fault_hits_the_producer_and_one_worker_or_all(drill: Drill) -> None:
    for name in (name for name in NETWORK_FAULT_NAMES if name in FAULT_NAMES):
        planned = planned_fault(drill, name)
        *workers, producer = planned.targets
        assert (producer, len(workers)) == (PRODUCER, 4 if name in FLEET_FAULT_NAMES else 1)
        assert ("consumer-1" in workers) == (name in FLEET_FAULT_NAMES)
        healed_ns, files = drills.window_ns(drill, planned)[1], drills.history(drill)
        assert all(drills.answered(files[target], since_ns=healed_ns) for target in planned.targets)


def test_lost_replies_made_the_engine_repeat_an_enqueue_a_claim_and_a_finish(drill: Drill) -> None:
    assert {"enqueue", "claim", "finish"} <= drills.repeated(drill, planned_fault(drill, "net-reply-lost"))


def test_a_lease_was_renewed_under_latency(drill: Drill) -> None:
    planned = planned_fault(drill, "net-latency")
    begun_ns, healed_ns = drills.window_ns(drill, planned)
    files = drills.history(drill)
    answers = [row for target in planned.targets for row in drills.answered(files[target], since_ns=begun_ns)]
    extended = [row for row in answers if row["f"] == "extend" and row["done_ns"] < healed_ns]
    renewals = [row for row in extended if "ok" in {item["result"] for item in row["items"]}]
    # Not all: the window begins before the delays are in force.
    assert any(row["done_ns"] - row["last_send_ns"] > 90e6 for row in renewals)


def test_a_lost_connection_was_made_anew(drill: Drill) -> None:
    planned = planned_fault(drill, "net-down")
    _, healed_ns = drills.window_ns(drill, planned)
    files = drills.history(drill)
    for target in planned.targets:
        assert [row for row in files[target] if row["kind"] == "connection" and row["t_ns"] > healed_ns]


def test_the_killed_worker_stopped_in_mid_job_and_its_jobs_ran_elsewhere(drill: Drill) -> None:
    ran = drills.run_elsewhere(drill, planned_fault(drill, "worker-kill"))
    assert ran
    assert all(ran.values()), ran


def test_the_zombie_sent_a_late_finish_and_was_refused(drill: Drill) -> None:
    (frozen,) = [planned for planned in drill.plan.faults if planned.name == "worker-freeze"]
    ended = [row for row in drills.history(drill)[frozen.target] if row["f"] in ("finish", "retry") and row["type"] == "ok"]
    assert "stale" in [item["result"] for row in ended for item in row["items"]]


def test_phases_follow_the_plan_and_cover_the_run(drill: Drill) -> None:
    rows = [row for row in drills.history(drill)["harness"] if row["kind"] == "phase"]
    assert tuple(row["name"] for row in rows) == drill.plan.phases()
    assert [row["t_ns"] for row in rows] == sorted(row["t_ns"] for row in rows)


def test_the_manifest_names_exactly_the_files_that_exist(drill: Drill) -> None:
    rows = [row for row in drills.history(drill)["manifest"] if row["kind"] == "process"]
    files = {row["file"] for row in rows}
    assert files | {"manifest.jsonl"} == {path.name for path in drill.folder.history.iterdir()}
    assert len(files) == len(rows)


def test_each_process_closed_its_history_but_the_killed_one(drill: Drill) -> None:
    killed = {planned.target for planned in drill.plan.faults if planned.name == "worker-kill"}
    unclosed = {name for name, rows in drills.history(drill).items() if rows[-1]["kind"] != "close"}
    assert unclosed == killed | {f"{name}.sink" for name in killed}


def test_snapshots_are_complete_and_the_deadline_is_not_early(drill: Drill) -> None:
    rows = drills.history(drill)["harness"]
    healed_ns = max(row["t_ns"] for row in rows if row["kind"] == "fault" and row["stage"] == "heal")
    finals = [row for row in rows if row["kind"] == "final"]
    for name in ("deadline", "end"):
        states = {row["state"]: row for row in finals if row["name"] == name}
        assert set(states) == {"waiting", "delayed", "active", "dead", "done", "blocked"}
        assert [states[state]["count"] for state in ("waiting", "delayed", "active", "blocked")] == [0, 0, 0, 0]
        assert states["done"]["count"] > 0
        late_ms = (states["done"]["t_ns"] - healed_ns) / 1e6 - drill.spec.liveness_ms
        assert late_ms >= 0
    for state in ("done", "dead"):
        listed = [item["job"] for row in finals if row["name"] == "end" and row["state"] == state for item in row["items"]]
        (count,) = {row["count"] for row in finals if row["name"] == "end" and row["state"] == state}
        assert len(set(listed)) == count


def test_clocks_and_samples_come_once_a_second(drill: Drill) -> None:
    rows = drills.history(drill)["harness"]
    clocks = [row for row in rows if row["kind"] == "clock"]
    seconds = (rows[-1]["t_ns"] - rows[0]["t_ns"]) / 1e9
    # A busy machine leaves some out.
    assert seconds / 2 <= len(clocks) <= seconds + 1
    assert all(abs(row["wall_ns"] / 1e3 - row["srv_us"]) < 2e6 for row in clocks)
    for name in ("server", "queue", "processes"):
        samples = [json.loads(line) for line in (drill.folder.samples / f"{name}.jsonl").read_text().splitlines()]
        assert len(samples) >= len(clocks) - 1 and not any("error" in sample for sample in samples)
    assert {sample["proc"] for sample in samples} >= {"harness", "server", "toxiproxy", "producer-1", *drills.WORKERS, "worker-4"}


def test_nothing_is_left_running(drill: Drill) -> None:
    assert {pid for pid in drills.pids_of(drill.folder.path) if not is_gone(pid)} == {os.getpid()}


def test_the_consumer_inside_locust_worked_beside_the_workers(drill: Drill) -> None:
    files = drills.history(drill)
    told = [(row["role"], row["file"]) for row in files["manifest"] if row["name"] == "consumer-1" and row["kind"] == "process"]
    assert told == [("worker", "consumer-1.jsonl"), ("sink", "consumer-1.sink.jsonl")]
    assert files["consumer-1"][-1]["kind"] == files["consumer-1.sink"][-1]["kind"] == "close"
    answers = [row for row in files["consumer-1"] if (row["f"], row["type"]) == ("finish", "ok")]
    finished = [item["job"] for row in answers for item in row["items"] if item["result"] == "ok"]
    assert len(finished) > 20
    assert set(finished) <= {item["job"] for row in files["consumer-1.sink"] if row["kind"] == "effect" for item in row["items"]}
