"""A short drill on real parts: server, workers, load, kill and freeze; and a harness that leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest

from chaos import drill as drill_module
from chaos import mutants, runs, spec
from chaos.drill import Drill
from chaos.faults.base import process_states
from chaos.interrupts import Interrupts
from chaos.mutants import MUTANTS
from chaos.plan import Pace, Plan, draw, worker_names
from chaos.processes import ROOT, Crew
from chaos.progress import Progress
from chaos.spec import RunSpec
from engine import Queue
from engine.history import load_file
from engine.scripts import scripts_folder

LEASE_MS = 1_500
PACE = Pace(lead_in_ms=1_000, delay_max_ms=200, calm_ms=300, settle_ms=1_000)
WORKERS = worker_names(3)


def make_drill(folder: Path, *, seed: int) -> tuple[Drill, Plan]:
    """A drill with short leases and short phases. Seed 1 freezes first, then kills."""
    plan = draw(seed, workers=WORKERS, pace=PACE)
    short = RunSpec(id=runs.run_id("bench", seed, "", 0.0), seed=seed, lease_ms=LEASE_MS, sweep_ms=200, rate_per_s=80)
    return Drill(short, plan, runs.create(folder, short.id), Progress(StringIO()), Interrupts()), plan


def run(drill: Drill, meanwhile: Callable[[], bool] = lambda: True) -> None:
    """Run the drill as the command does. Beside it, `meanwhile` is called again and again until it says that it has acted."""
    over = threading.Event()

    def act() -> None:
        while not over.wait(0.005) and not meanwhile():
            pass

    watcher = threading.Thread(target=act)
    watcher.start()
    try:
        with drill.interrupts:
            drill.run()
    finally:
        over.set()
        watcher.join()


def history(drill: Drill) -> dict[str, list[dict[str, Any]]]:
    """Rows by file name."""
    return {path.stem: list(load_file(path).rows) for path in drill.folder.history.glob("*.jsonl")}


def pids_of(folder: Path) -> set[int]:
    """Process ids of everything that has opened a history file below the folder."""
    found: set[int] = set()
    for path in folder.rglob("history/*.jsonl"):
        lines = path.read_bytes().splitlines()
        if lines and path.stem != "manifest":
            found.add(json.loads(lines[0])["pid"])
    return found


def wait_for(condition: Callable[[], bool], what: str, *, timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} did not happen"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def drilled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Drill, Plan]:
    """One drill for all the tests that only read its history."""
    drill, plan = make_drill(tmp_path_factory.mktemp("runs"), seed=1)
    run(drill)
    assert drill.errors == []
    return drill, plan


def test_every_fault_was_injected_witnessed_and_healed(drilled: tuple[Drill, Plan]) -> None:
    drill, plan = drilled
    rows = [row for row in history(drill)["harness"] if row["kind"] == "fault"]
    stages = [(row["fault"], row["stage"], row["result"]) for row in rows]
    wanted = ("inject", "witness", "heal", "healed")
    assert stages == [(planned.fault, stage, "ok") for planned in plan.faults for stage in wanted]
    assert all(row["items"] for row in rows if row["stage"] == "witness")


def test_the_killed_worker_stopped_in_mid_job_and_its_jobs_ran_elsewhere(drilled: tuple[Drill, Plan]) -> None:
    drill, plan = drilled
    files = history(drill)
    (killed,) = [planned for planned in plan.faults if planned.name == "worker-kill"]
    assert files[killed.target][-1]["kind"] != "close"
    (witness,) = [row for row in files["harness"] if row["fault"] == killed.fault and row["stage"] == "witness"]
    for item in witness["items"]:
        later = [
            row
            for name, rows in files.items()
            for row in rows
            if name != killed.target and row["f"] == "handle" and row["type"] == "invoke"
            if row["items"][0]["job"] == item["job"] and row["items"][0]["fence"] > item["fence"]
        ]
        assert later, f"{item['job']} did not run elsewhere"


def test_the_zombie_sent_a_late_finish_and_was_refused(drilled: tuple[Drill, Plan]) -> None:
    drill, plan = drilled
    (frozen,) = [planned for planned in plan.faults if planned.name == "worker-freeze"]
    results = [
        item["result"]
        for row in history(drill)[frozen.target]
        if row["f"] in ("finish", "retry") and row["type"] == "ok"
        for item in row["items"]
    ]
    assert "stale" in results


def test_phases_follow_the_plan_and_cover_the_run(drilled: tuple[Drill, Plan]) -> None:
    drill, plan = drilled
    rows = [row for row in history(drill)["harness"] if row["kind"] == "phase"]
    assert tuple(row["name"] for row in rows) == plan.phases()
    assert [row["t_ns"] for row in rows] == sorted(row["t_ns"] for row in rows)


def test_the_manifest_names_exactly_the_files_that_exist(drilled: tuple[Drill, Plan]) -> None:
    drill, _ = drilled
    rows = [row for row in history(drill)["manifest"] if row["kind"] == "process"]
    files = {row["file"] for row in rows}
    assert files | {"manifest.jsonl"} == {path.name for path in drill.folder.history.iterdir()}
    assert len(files) == len(rows)


def test_each_process_closed_its_history_but_the_killed_one(drilled: tuple[Drill, Plan]) -> None:
    drill, plan = drilled
    killed = {planned.target for planned in plan.faults if planned.name == "worker-kill"}
    unclosed = {name for name, rows in history(drill).items() if rows[-1]["kind"] != "close"}
    assert unclosed == killed | {f"{name}.sink" for name in killed}


def test_snapshots_are_complete_and_the_deadline_is_not_early(drilled: tuple[Drill, Plan]) -> None:
    drill, _ = drilled
    rows = history(drill)["harness"]
    healed_ns = max(row["t_ns"] for row in rows if row["kind"] == "fault" and row["stage"] == "heal")
    finals = [row for row in rows if row["kind"] == "final"]
    for name in ("deadline", "end"):
        states = {row["state"]: row for row in finals if row["name"] == name}
        assert set(states) == {"waiting", "delayed", "active", "dead", "done"}
        assert [states[state]["count"] for state in ("waiting", "delayed", "active")] == [0, 0, 0]
        assert states["done"]["count"] > 0
        late_ms = (states["done"]["t_ns"] - healed_ns) / 1e6 - drill.spec.liveness_ms
        assert late_ms >= 0
        if name == "deadline":
            assert late_ms < 1_000
    for state in ("done", "dead"):
        listed = [item["job"] for row in finals if row["name"] == "end" and row["state"] == state for item in row["items"]]
        (count,) = {row["count"] for row in finals if row["name"] == "end" and row["state"] == state}
        assert len(set(listed)) == count


def test_clocks_and_samples_come_once_a_second(drilled: tuple[Drill, Plan]) -> None:
    drill, _ = drilled
    rows = history(drill)["harness"]
    clocks = [row for row in rows if row["kind"] == "clock"]
    seconds = (rows[-1]["t_ns"] - rows[0]["t_ns"]) / 1e9
    assert seconds - 3 <= len(clocks) <= seconds + 1
    assert all(abs(row["wall_ns"] / 1e3 - row["srv_us"]) < 2e6 for row in clocks)
    for name in ("server", "queue", "processes"):
        samples = [json.loads(line) for line in (drill.folder.samples / f"{name}.jsonl").read_text().splitlines()]
        assert len(samples) >= len(clocks) - 1
        assert not any("error" in sample for sample in samples)
    assert {sample["proc"] for sample in samples} >= {"harness", "server", "producer-1", *WORKERS, "worker-4"}


def test_nothing_is_left_running(drilled: tuple[Drill, Plan]) -> None:
    drill, _ = drilled
    assert {pid for pid in pids_of(drill.folder.path) if psutil.pid_exists(pid)} == {os.getpid()}


def test_the_mutant_lets_a_zombie_finish_what_another_worker_has_finished(tmp_path: Path) -> None:
    drill, plan = make_drill(tmp_path, seed=1)
    mutant = MUTANTS["finish-without-token-check"]
    drill.lua = mutants.plant(mutant, scripts_folder(), drill.folder.path / "lua")
    drill.plan = replace(plan, faults=plan.faults[:1])
    run(drill)
    assert drill.errors == []
    accepted = Counter(
        item["job"]
        for rows in history(drill).values()
        for row in rows
        if row["f"] == "finish" and row["type"] == "ok"
        for item in row["items"]
        if item["result"] == "ok"
    )
    assert max(accepted.values()) == 2
    assert plan.faults[0].name == "worker-freeze"


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """The test leaves no process behind, directly or below."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) - before == set()


@pytest.mark.usefixtures("nothing_left")
def test_an_interrupt_while_a_worker_is_frozen_heals_it_and_stops_everything(tmp_path: Path) -> None:
    drill, plan = make_drill(tmp_path, seed=1)
    assert plan.faults[0].name == "worker-freeze"

    def interrupt() -> bool:
        """Ctrl-C as soon as some worker is frozen."""
        frozen = any(process_states(child.pid) == {"T"} for child in psutil.Process().children())
        if frozen:
            os.kill(os.getpid(), signal.SIGINT)
        return frozen

    run(drill, interrupt)
    assert drill.errors == ["interrupted by SIGINT"]
    assert drill.loaded
    files = history(drill)
    assert {name for name, rows in files.items() if rows[-1]["kind"] != "close"} == set()
    stages = [row["stage"] for row in files["harness"] if row["kind"] == "fault"]
    # One that comes before the fault is on record leaves no row: the fault undoes itself (test_faults).
    assert stages == [] or (stages[0], stages[-1]) == ("inject", "heal")


@pytest.mark.usefixtures("nothing_left")
def test_a_worker_that_dies_by_itself_ends_the_drill_and_is_recorded(tmp_path: Path) -> None:
    drill, _ = make_drill(tmp_path, seed=1)

    def murder() -> bool:
        """Kill worker-3 behind the harness's back once the load has begun."""
        if drill.loaded:
            drill._crew.children["worker-3"].process.send_signal(signal.SIGKILL)
        return drill.loaded

    run(drill, murder)
    assert len(drill.errors) == 1
    assert drill.errors[0].startswith("unplanned exit of worker-3: killed by SIGKILL")
    (row,) = [row for row in history(drill)["harness"] if row["kind"] == "fault"]
    assert (row["name"], row["stage"], row["result"], row["target"]) == ("unplanned-exit", "witness", "ok", "worker-3")


def calm_drill(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Drill:
    """A drill without faults that waits for little."""
    monkeypatch.setattr(spec, "LIVENESS_SLACK_MS", 0)
    drill, plan = make_drill(folder, seed=1)
    drill.plan = replace(plan, pace=replace(plan.pace, settle_ms=200), faults=())
    return drill


@pytest.mark.usefixtures("nothing_left")
def test_an_interrupt_and_a_death_while_everything_is_stopped_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drill = calm_drill(tmp_path, monkeypatch)

    def interrupt() -> bool:
        """Ctrl-C after the last tick, when a worker has gone by itself."""
        if drill._phase == "end":
            os.kill(os.getpid(), signal.SIGINT)
        return drill._phase == "end"

    stop_all = drill_module.Crew.stop_all

    def stop_late(crew: Crew) -> list[str]:
        """Stop everything, once the signal is there and worker-2 is not any more."""
        crew.children["worker-2"].process.kill()
        crew.children["worker-2"].process.wait()
        wait_for(lambda: bool(drill.interrupts._caught), "the interrupt")
        return stop_all(crew)

    monkeypatch.setattr(drill_module.Crew, "stop_all", stop_late)
    run(drill, interrupt)
    death, interrupted = drill.errors
    assert death.startswith("unplanned exit of worker-2: killed by SIGKILL")
    assert interrupted == "interrupted by SIGINT"


@pytest.mark.usefixtures("nothing_left")
def test_a_queue_that_does_not_drain_is_an_error_and_quiet_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drill = calm_drill(tmp_path, monkeypatch)
    work_ms = 2 * drill.spec.liveness_ms + 2_000

    def burden() -> bool:
        """When the load has ended: a job that is not due for an hour, and one that runs until after the drill has given up."""
        if drill._phase == "drain":
            queue = Queue(drill.spec.queue, url=drill._servers.url)
            payload = {"index": 0, "work_ms": work_ms, "fail_first": 0, "pad": ""}
            queue.enqueue("email", payload, id="due-later", delay_ms=3_600_000)
            queue.enqueue("email", payload, id="long")
            queue.close()
        return drill._phase == "drain"

    run(drill, burden)
    assert drill.errors == [f"the queue was not drained {2 * drill.spec.liveness_ms} ms after the last heal"]
    files = history(drill)
    finals = [row for row in files["harness"] if row["kind"] == "final"]
    listed = {(row["name"], row["state"]): [item["job"] for item in row["items"]] for row in finals}
    assert (listed["give-up", "delayed"], listed["give-up", "active"]) == (["due-later"], ["long"])
    assert (listed["end", "delayed"], listed["end", "active"]) == (["due-later"], [])
    assert "long" in listed["end", "done"]
    end_ns = min(row["t_ns"] for row in finals if row["name"] == "end")
    assert max(rows[-1]["t_ns"] for name, rows in files.items() if name.startswith("worker")) < end_ns


def test_a_killed_harness_leaves_no_process_behind(tmp_path: Path) -> None:
    harness = subprocess.Popen(
        [sys.executable, "-m", "chaos", "bench", "--runs", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    try:
        wait_for(lambda: len(pids_of(tmp_path)) >= 5, "harness, three workers and the producer")
        children = psutil.Process(harness.pid).children(recursive=True)
    finally:
        harness.kill()
        harness.wait()
    assert len(children) >= 5
    wait_for(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children), "their end")
