"""`campaign models`: a short drill and the costs of each model, and one table of all of them.

Every model gets the same seed, load, pace and faults, as far as it carries them, and its costs on a server of its own afterwards.
What has no time any more stays unknown: the whole ends within its budget.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.models import NAMES
from chaos import campaign, machine, runs, topology
from chaos.calibration import Calibration
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.judge import EXIT_CODES, SHOW_TIMEOUT_S, UNKNOWN, exit_code, show, stop
from chaos.plan import Pace
from chaos.processes import ROOT, child_environment
from chaos.progress import Progress
from chaos.run import carry_out, measure, toxiproxy_program
from chaos.scenarios import bench
from chaos.spec import RunSpec
from engine.testing import start_guarded

COMPARE_SCHEMA = 1
FILE = "models.json"

#: Everything together takes at most so long; a drill with its verdict begins only while this much of it is left.
BUDGET_S = 30 * 60
DRILL_S = 180
#: The costs of one model take at most so long.
COSTS_S = 240

#: All six faults, and what a fault needs to be seen, within 45 seconds or so.
PACE = Pace(lead_in_ms=6_000, delay_max_ms=300, calm_ms=1_000, settle_ms=8_000)
LEASE_MS = 2_000
SWEEP_MS = 250
#: Two retries of the slowest back-off fit in before the drill gives up: 2 s and 8 s.
LIVENESS_SLACK_MS = 9_000


def models(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Measure each model, write models.json, draw the table. Returns the worst exit code of the verdicts, unknown when something
    is missing. Raises HarnessError, ServerMissing and ToxiproxyMissing when it cannot begin, or is interrupted."""
    if unknown := [name for name in arguments.models if name not in NAMES]:
        raise HarnessError(f"model {unknown[0]!r} does not exist; choose from {', '.join(NAMES)}")
    wanted = [name for name in NAMES if name in (arguments.models or NAMES)]
    now_s, began_s = time.time(), time.monotonic()
    progress = Progress(sys.stdout)
    server, toxiproxy = topology.binary(), toxiproxy_program(progress, interrupts)
    # Once: every model gets the same load.
    calibration = measure(progress, arguments, interrupts)
    folder = runs.create(arguments.runs.absolute(), runs.run_id("compare", arguments.seed, "all", now_s))
    found: dict[str, Any] = {
        "schema": COMPARE_SCHEMA,
        "id": folder.path.name,
        "seed": arguments.seed,
        "quick": arguments.quick,
        "started_utc": runs.utc(now_s),
        **machine.provenance(server, toxiproxy),
        "models": [],
    }
    for number, model in enumerate(wanted, start=1):
        left_s = BUDGET_S - SHOW_TIMEOUT_S - (time.monotonic() - began_s)
        progress.say(f"compare: model {number} of {len(wanted)}, {model}; {left_s / 60:.0f} minutes are left")
        found["models"].append(one(model, arguments, interrupts, progress, folder.path / "logs", left_s, calibration))
        # After each, so that an interrupt leaves what there is.
        (folder.path / FILE).write_text(json.dumps(found, indent=1) + "\n")
    runs.link_latest(arguments.runs.absolute(), folder.path.name)
    show(["models", str(folder.path)], interrupts)
    folder.release()
    progress.say(f"compare: {time.monotonic() - began_s:.0f} s for {len(wanted)} models, in {folder.path}")
    return worst(found["models"])


def one(
    model: str,
    arguments: argparse.Namespace,
    interrupts: Interrupts,
    progress: Progress,
    logs: Path,
    left_s: float,
    calibration: Calibration,
) -> dict[str, Any]:
    """A model's drill, judged, and its costs; what could not be had is None, with the reason in `trouble`."""
    began_s = time.monotonic()
    entry: dict[str, Any] = {"model": model, "run": None, "verdict": None, "costs": None, "trouble": []}
    if left_s < DRILL_S:
        entry["trouble"].append("there was no time for it")
        return entry
    spec = RunSpec(
        id=runs.run_id("compare", arguments.seed, model, time.time()),
        seed=arguments.seed,
        scenario="compare",
        model=model,
        lease_ms=LEASE_MS,
        sweep_ms=SWEEP_MS,
        liveness_slack_ms=LIVENESS_SLACK_MS,
    )
    try:
        _, run = carry_out(bench.drawn(spec, pace=PACE), arguments, interrupts, calibration)
        entry["run"], entry["verdict"] = run.name, json.loads((run / "verdict.json").read_text())
    except (OSError, ValueError) as error:
        entry["trouble"].append(f"the drill has no verdict: {error}")
    except HarnessError as error:
        interrupts.check()
        entry["trouble"].append(f"the drill could not be run: {error}")
    entry["drill_s"] = round(time.monotonic() - began_s, 1)
    left_s -= entry["drill_s"]
    try:
        entry["costs"] = costs(model, arguments.quick, logs, interrupts, min(COSTS_S, left_s))
    except (OSError, ValueError, subprocess.TimeoutExpired, CostsFailed) as error:
        entry["trouble"].append(f"the costs could not be measured: {error}")
    for trouble in entry["trouble"]:
        progress.say(f"compare: {model}: {trouble}")
    return entry


class CostsFailed(Exception):
    """The process that measures costs ended with an error, which its log tells."""


def costs(model: str, quick: bool, logs: Path, interrupts: Interrupts, timeout_s: float) -> dict[str, Any]:
    """The costs of a model, measured in a process of its own. Raises CostsFailed, TimeoutExpired, OSError and ValueError."""
    out, log = logs / f"costs-{model}.json", logs / f"costs-{model}.log"
    command = [sys.executable, "-m", "bench.micro.model_costs", "--model", model, "--out", str(out)]
    with log.open("ab") as errors:
        process = start_guarded(
            command + (["--quick"] if quick else []), cwd=ROOT, env=child_environment({}), stdin=subprocess.DEVNULL, stderr=errors
        )
        try:
            code = exit_code(process, interrupts, max(1.0, timeout_s))
        finally:
            stop(process)
    if code:
        lines = log.read_text(errors="replace").strip().splitlines() or ["no reason given"]
        raise CostsFailed(f"exit code {code}: {lines[-1]}")
    return json.loads(out.read_text())


def worst(entries: list[dict[str, Any]]) -> int:
    """Violated beats unknown beats valid; what is missing is unknown."""
    codes = [EXIT_CODES[entry["verdict"]["verdict"]] if entry["verdict"] else UNKNOWN for entry in entries]
    return campaign.worst([*codes, *(UNKNOWN for entry in entries if entry["costs"] is None)])
