"""Short drills on real parts, for tests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from chaos import runs, toxiproxy_binary
from chaos.drill import Drill
from chaos.interrupts import Interrupts
from chaos.plan import Pace, Plan, consumer_names, draw, worker_names
from chaos.progress import Progress
from chaos.spec import RunSpec
from engine.history import load_file
from tests.engine.helpers.waiting import whole_lines

LEASE_MS = 1_500
PACE = Pace(lead_in_ms=1_000, delay_max_ms=200, calm_ms=300, settle_ms=1_000)
WORKERS = worker_names(3)
CONSUMERS = consumer_names(1)
WORKER_FAULTS = ("worker-kill", "worker-freeze")


def make_drill(folder: Path, *, seed: int, kinds: Sequence[str] = WORKER_FAULTS, pace: Pace = PACE) -> tuple[Drill, Plan]:
    """A drill with short leases and short phases. With faults of workers alone, seed 1 freezes first, then kills."""
    plan = draw(seed, workers=WORKERS, consumers=CONSUMERS, pace=pace, kinds=kinds)
    short = RunSpec(id=runs.run_id("bench", seed, "", 0.0), seed=seed, lease_ms=LEASE_MS, sweep_ms=200, rate_per_s=80)
    # In so short a run no limit need be reached, and nobody be kept out: J12 and J14 would be unknown.
    short = replace(short, limits=(), unique_keys=False, schedules=(), dependencies=False, routing=False)
    place = runs.create(folder, short.id)
    # Built by the set-up; without it these tests fail with the line that says so.
    toxiproxy = toxiproxy_binary.find() if plan.needs_network() else None
    return Drill(short, plan, place, Progress(StringIO()), Interrupts(), toxiproxy=toxiproxy), plan


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
        lines = whole_lines(path)
        if lines and path.stem != "manifest":
            found.add(json.loads(lines[0])["pid"])
    return found


def wait_for(condition: Callable[[], bool], what: str, *, timeout_s: float = 120.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} did not happen"
        time.sleep(0.01)


def calm_drill(folder: Path) -> Drill:
    """A drill without faults that waits for little."""
    drill, plan = make_drill(folder, seed=1)
    drill.spec = replace(drill.spec, liveness_slack_ms=2_000)
    drill.plan = replace(plan, pace=replace(plan.pace, settle_ms=200), faults=())
    return drill
