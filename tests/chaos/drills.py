"""Short drills on real parts, for tests."""

import argparse
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

from chaos import progress, runs, spec, toxiproxy_binary
from chaos.calibration import Calibration, Trial
from chaos.drill import Drill, Frame
from chaos.interrupts import Interrupts
from chaos.plan import Pace, Plan, PlannedFault, consumer_names, draw, worker_names
from chaos.run import Run, Scenario
from record.history import load_file
from tests.engine.helpers.waiting import whole_lines

#: What a calibration says of a machine that carries the usual load.
CARRIED = Calibration(120, (Trial(120, 240, 1.0, 0, 1.0),))

LEASE_MS = 1_500
PACE = Pace(lead_in_ms=1_000, delay_max_ms=200, calm_ms=300, settle_ms=1_000)
WORKERS = worker_names(3)
CONSUMERS = consumer_names(1)
WORKER_FAULTS = ("worker-kill", "worker-freeze")

D = TypeVar("D", bound=Frame[Any])


def make_drill(folder: Path, *, seed: int, kinds: Sequence[str] = WORKER_FAULTS, **more: Any) -> tuple[Drill, Plan]:
    """A drill with short leases and short phases, or what `more` has of the spec. With faults of workers alone, seed 1 freezes
    first, then kills. `direct` of it: workers without a proxy, which are killed first."""
    plan = draw(seed, workers=WORKERS, consumers=CONSUMERS, pace=PACE, kinds=kinds, direct=more.get("direct", ()))
    fields: dict[str, Any] = {"lease_ms": LEASE_MS, "sweep_ms": 200, "rate_per_s": 80, "direct": (), **more}
    # In so short a run no limit need be reached, and nobody be kept out: J12 and J14 would be unknown.
    short = spec.RunSpec.bare(id=runs.run_id("bench", seed, "", 0.0), seed=seed, **fields)
    place = runs.create(folder, short.id)
    # Built by the set-up; without it these tests fail with the line that says so.
    toxiproxy = toxiproxy_binary.find() if plan.needs_network() else None
    return Drill(short, plan, place, progress.Progress(StringIO()), Interrupts(), toxiproxy=toxiproxy), plan


def prepared(scenario: Scenario[Any], folder: Path, calibration: Calibration = CARRIED, **options: Any) -> Frame[Any]:
    """The drill of a scenario, in a folder of its own, as the command makes it on a machine that carries its load."""
    arguments = argparse.Namespace(runs=folder, keep=100, keep_days=100, **options)
    return Run(scenario, arguments, Interrupts(), calibration).prepare()


def recorded(scenario: Scenario[Any], folder: Path, calibration: Calibration = CARRIED) -> Frame[Any]:
    """The drill of a scenario, carried out as a campaign does."""
    arguments = argparse.Namespace(runs=folder, keep=100, keep_days=100)
    with Interrupts() as interrupts:
        return Run(scenario, arguments, interrupts, calibration).record()


@contextmanager
def beside(meanwhile: Callable[[], bool]) -> Iterator[None]:
    """What is done in this context has `meanwhile` called beside it, again and again until it says that it has acted."""
    over = threading.Event()

    def act() -> None:
        while not over.wait(0.005) and not meanwhile():
            pass

    watcher = threading.Thread(target=act)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def run(drill: Frame[Any], meanwhile: Callable[[], bool] = lambda: True) -> None:
    """Run the drill as the command does, and beside it `meanwhile`."""
    with beside(meanwhile), drill.interrupts:
        drill.run()


def when(condition: Callable[[], object], act: Callable[[], object]) -> Callable[[], bool]:
    """For `beside`: act once, as soon as this is so."""

    def acted() -> bool:
        if now := bool(condition()):
            act()
        return now

    return acted


def interrupt() -> None:
    """Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


def carried_out(drill: D) -> D:
    """The drill, once it has run as the command runs it, with the spec that the judge reads."""
    run(drill)
    drill.spec.write(drill.folder.path / "spec.json", harness_errors=drill.errors, ended_utc="now")
    return drill


def history(drill: Drill) -> dict[str, list[dict[str, Any]]]:
    """Rows by file name."""
    return {path.stem: list(load_file(path).rows) for path in drill.folder.history.glob("*.jsonl")}


def window_ns(drill: Drill, planned: PlannedFault) -> tuple[int, int]:
    """From the injection of a fault to its heal."""
    rows = [row for row in history(drill)["harness"] if row["kind"] == "fault" and row["fault"] == planned.fault]
    t_ns = {row["stage"]: row["t_ns"] for row in rows}
    return t_ns["inject"], t_ns["heal"]


def answered(rows: list[dict[str, Any]], *, since_ns: int) -> list[dict[str, Any]]:
    """Operations that were sent since then and that the server answered."""
    return [row for row in rows if row["srv_us"] is not None and (row["last_send_ns"] or 0) > since_ns]


def repeated(drill: Drill, planned: PlannedFault) -> set[str]:
    """The operations to which the server has said, since the fault began, that it did them before."""
    begun_ns, _ = window_ns(drill, planned)
    files = history(drill)
    rows = [row for target in planned.targets for row in answered(files[target], since_ns=begun_ns)]
    return {row["f"] for row in rows if "repeated" in (row["result"], *(item.get("result") for item in row["items"]))}


def run_elsewhere(drill: Drill, killed: PlannedFault) -> dict[str, bool]:
    """The jobs that a killed worker had in hand, and whether each has run on another one, under a later fence."""
    files = history(drill)
    assert files[killed.target][-1]["kind"] != "close"
    (witness,) = [row for row in files["harness"] if row["fault"] == killed.fault and row["stage"] == "witness"]
    others = [rows for name, rows in files.items() if name != killed.target]
    runs = [row["items"][0] for rows in others for row in rows if (row["f"], row["type"]) == ("handle", "invoke")]
    return {one["job"]: any(run["job"] == one["job"] and run["fence"] > one["fence"] for run in runs) for one in witness["items"]}


def pids_of(folder: Path) -> set[int]:
    """Process ids of everything that has opened a history file below the folder."""
    found: set[int] = set()
    for path in folder.rglob("history/*.jsonl"):
        lines = whole_lines(path)
        if lines and path.stem != "manifest":
            found.add(json.loads(lines[0])["pid"])
    return found


def calm_drill(folder: Path) -> Drill:
    """A drill without faults that waits for little."""
    drill, plan = make_drill(folder, seed=1)
    drill.spec = replace(drill.spec, liveness_slack_ms=2_000)
    drill.plan = replace(plan, pace=replace(plan.pace, settle_ms=200), faults=())
    return drill
