"""The command `simulation`: how near the queueing simulator comes to the steps of a measurement, printed."""

from __future__ import annotations

import argparse
from pathlib import Path

from reports.capacity import measurement
from reports.errors import JudgeError
from reports.simulation.measured import WITHIN, WITHIN_JOBS, compare
from reports.table import grid

#: Fewer points, from a low rate to one beyond what the workers do, show little.
POINTS_LEAST = 3

HEADS = ("jobs/s", "figure", "measured", "simulated", "off by", "near")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    command.add_argument("run", type=Path, help=f"folder of `python -m chaos capacity --validate`, or its {measurement.FILE}")
    command.add_argument("--seed", type=int, default=1, help="of the simulation (default: %(default)s)")


def near_to_measured(options: argparse.Namespace) -> tuple[str, int]:
    """The table, and the exit code: 0 when all figures are near, 1 when not. Raises JudgeError when there is too little to
    compare."""
    found = compare(measurement.read(options.run), seed=options.seed)
    points = {one.step.rate for one in found}
    if len(points) < POINTS_LEAST:
        raise JudgeError(
            f"points that can be compared beside the calmest: {len(points)}, it needs {POINTS_LEAST}; measure them with "
            "`python -m chaos capacity --validate`"
        )
    rows = [
        [f"{one.step.rate:,.1f}", one.name, f"{one.measured:,.1f}", f"{one.simulated:,.1f}", f"{one.off:.1%}",
         "yes" if one.within else "no"]
        for one in found
    ]  # fmt: skip
    near = sum(one.within for one in found)
    words = f"within {WITHIN:.0%}, or {WITHIN_JOBS:g} job of a backlog"
    last = f"simulation: points={len(points)} near={near}/{len(found)} ({words})"
    return "\n".join([*grid("Measured, and simulated", HEADS, rows), "", last]), 0 if near == len(found) else 1
