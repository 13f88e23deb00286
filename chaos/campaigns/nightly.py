"""`campaign nightly`: the drills of a date, judged together, and the page of the last nights."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from bench.models import DSPS
from chaos import campaign, machine, runs
from chaos.calibration import Calibration
from chaos.campaigns.cells import NightDrill, night
from chaos.channels.spec import ChannelSpec
from chaos.errors import HarnessError, TooSlow
from chaos.interrupts import Interrupts
from chaos.judge import Verdict, show, unknown
from chaos.plan import Pace
from chaos.processes import ROOT
from chaos.progress import Progress
from chaos.run import Scenario, measure
from chaos.scenarios import bench, channels
from chaos.spec import RunSpec

SCHEMA = 1
FILE = "nightly.json"

#: The folder of all nights beside the runs, and how many nights stay.
FOLDER = "nightly"
KEEP = 14

#: How many drills are judged together.
TOGETHER = 6

PACE = Pace(lead_in_ms=5_000, delay_max_ms=500, calm_ms=2_000, settle_ms=6_000)
LEASE_MS = 3_000
SWEEP_MS = 250
#: Two retries of the slowest back-off fit in before a drill gives up: 2 s and 8 s.
LIVENESS_SLACK_MS = 9_000

NO_TIME = "no time was left for it"


def nightly(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Drill the cells of a date, or the one that was named. Returns 1 when one is violated, and 2 when none is valid.

    On a machine that is too slow every cell is unknown. Raises HarnessError and ServerMissing when it cannot begin.
    """
    began_s = time.monotonic()
    day: date = arguments.date or datetime.now(UTC).date()
    wanted = chosen(night(day), arguments.only)
    progress = Progress(sys.stdout)
    calibration, left_out = None, NO_TIME
    try:
        calibration = measure(progress, arguments, interrupts)
    except TooSlow as error:
        left_out = str(error)
    everything = arguments.runs.absolute()
    # One cell alone is a run like any other, and no night.
    place = everything if arguments.only else new_place(everything / FOLDER, day)
    results: list[CellResult] = []
    for first in range(0, len(wanted), TOGETHER):
        batch = wanted[first : first + TOGETHER]
        spent_s = time.monotonic() - began_s
        if calibration and enough(spent_s, first, len(batch), 60 * arguments.minutes):
            done = drilled(batch, place, calibration, arguments, interrupts)
        else:
            done = [CellResult(drill, "", unknown(left_out)) for drill in batch]
        for result in done:
            results.append(result)
            progress.say(f"nightly: {result.drill.cell.name} {result.verdict.verdict} ({len(results)} of {len(wanted)})")
            if result.run and result.verdict.verdict == "valid" and not arguments.only:
                runs.slim(place / result.run)
        if not arguments.only:
            # After each batch, so that an interrupt leaves what there is.
            campaign.write(place / FILE, content(day, results))
    if not arguments.only:
        show(["nights", str(place.parent)], interrupts)
    progress.say(f"nightly: {(time.monotonic() - began_s) / 60:.0f} minutes, in {place}")
    for line in filter(None, (complaint(day, result) for result in results)):
        progress.say(line)
    progress.say(last_line(results))
    return exit_code(results)


def new_place(folder: Path, day: date) -> Path:
    """A new folder for the runs of a night; the oldest nights are removed. Raises HarnessError."""
    return campaign.new_place(folder, day.isoformat(), KEEP, lambda path: (path / FILE).exists())


def chosen(drills: Sequence[NightDrill], only: str) -> list[NightDrill]:
    """The drills to carry out. Raises HarnessError for a cell that does not exist."""
    found = [drill for drill in drills if only in ("", drill.cell.name)]
    if not found:
        raise HarnessError(f"cell {only!r} does not exist; choose from {', '.join(sorted(drill.cell.name for drill in drills))}")
    return found


def enough(spent_s: float, done: int, wanted: int, budget_s: float) -> bool:
    """Whether so many more drills fit into the time, when each takes as long as those before; the first ones are not asked."""
    return not done or spent_s + wanted * spent_s / done <= budget_s


def drilled(
    drills: Sequence[NightDrill], place: Path, calibration: Calibration, arguments: argparse.Namespace, interrupts: Interrupts
) -> list[CellResult]:
    """Carry out these drills and judge them together."""
    judged = campaign.together([(drawn(drill), calibration) for drill in drills], place, arguments, interrupts)
    return [CellResult(drill, each.name, each.verdict) for drill, each in zip(drills, judged, strict=True)]


def drawn(drill: NightDrill) -> Scenario[Any]:
    """The drill of a cell; of jobs with everything that the load has on its model. Raises HarnessError."""
    cell = drill.cell
    same: dict[str, Any] = {"id": runs.run_id("nightly", drill.seed, cell.name, time.time()), "seed": drill.seed}
    same |= {"scenario": "nightly", "topology": cell.topology, "durability": cell.durability}
    plan: dict[str, Any] = {"pace": PACE, "kinds": drill.faults}
    if cell.model == DSPS:
        return channels.drawn(ChannelSpec(**same), **plan)
    times: dict[str, Any] = {"lease_ms": LEASE_MS, "sweep_ms": SWEEP_MS, "liveness_slack_ms": LIVENESS_SLACK_MS}
    return bench.drawn(RunSpec(model=cell.model, **same, **times), **plan)


def content(day: date, results: Sequence[CellResult]) -> dict[str, Any]:
    """What was found, as it is written for the page."""
    return {
        "schema": SCHEMA,
        "date": day.isoformat(),
        "ended_utc": runs.utc(time.time()),
        "git_commit": machine.git_commit(ROOT),
        "machine": machine.machine_card(),
        "line": last_line(results),
        "cells": [
            {
                "cell": result.drill.cell.name,
                "model": result.drill.cell.model,
                "topology": result.drill.cell.topology,
                "durability": result.drill.cell.durability,
                "seed": result.drill.seed,
                "faults": list(result.drill.faults),
                "run": result.run,
                "verdict": result.verdict.verdict,
                "reason": complaint(day, result),
            }
            for result in results
        ],
    }


@dataclass(frozen=True, slots=True)
class CellResult:
    """The drill of a cell and its verdict. `run`: its folder, empty where it could not begin."""

    drill: NightDrill
    run: str
    verdict: Verdict


def repeat(day: date, cell: str) -> str:
    """The line that repeats the drill of a cell on any machine."""
    return f"python -m chaos campaign nightly --date {day.isoformat()} --only {cell}"


def complaint(day: date, result: CellResult) -> str:
    """A line on a cell that is not valid, with the one that repeats it: `error: ...` where it is violated, `warning: ...` where
    it is unknown; empty for a valid one."""
    verdict, cell = result.verdict, result.drill.cell.name
    if verdict.verdict == "valid":
        return ""
    level = "error" if verdict.verdict == "violated" else "warning"
    return f"{level}: {cell} is {verdict.verdict}: {verdict.reason or 'no reason was given'}; repeat it: {repeat(day, cell)}"


def counts(results: Sequence[CellResult]) -> Counter[str]:
    """How many cells have each verdict."""
    return Counter(result.verdict.verdict for result in results)


def last_line(results: Sequence[CellResult]) -> str:
    """The line for scripts."""
    by = counts(results)
    return f"nightly: cells {len(results)}, valid {by['valid']}, unknown {by['unknown']}, violated {by['violated']}"


def exit_code(results: Sequence[CellResult]) -> int:
    """1 when a cell is violated; 2 when none is valid, for then the night has proved nothing; else 0, with unknown cells too."""
    by = counts(results)
    if by["violated"]:
        return 1
    return 0 if by["valid"] else 2
