"""Several drills one after the other, judged together: one Spark session costs less than one for each.

Drills are never side by side: on two cores each would take the other's processor, and its verdict would be unknown.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import verdicts
from chaos.calibration import Calibration
from chaos.command import Order, record
from chaos.errors import HarnessError, Interrupted
from chaos.interrupts import Interrupts
from chaos.judge import judge_all
from chaos.verdicts import Verdict

#: What the judge prints about all of them, in the folder that holds their runs.
LOG = "judge.log"


@dataclass(frozen=True, slots=True)
class Judged:
    """A drill that was judged. `run`: its folder; None for one that could not begin."""

    run: Path | None
    verdict: Verdict


def carry_out(
    orders: Sequence[tuple[Order[Any], Calibration]], place: Path, arguments: argparse.Namespace, interrupts: Interrupts
) -> list[Judged]:
    """Carry the drills out and judge them; their runs are in `place`. One that could not begin, that sent no load or that did not
    come to its end is unknown. Raises Interrupted, and ServerMissing when no server can be started at all."""
    # Nothing of this place is pruned while it grows.
    here = argparse.Namespace(**{**vars(arguments), "runs": place, "keep": 1_000})
    found = [_drilled(order, calibration, here, interrupts) for order, calibration in orders]
    there = [each for each in found if isinstance(each, Path)]
    judged = judge_all(there, interrupts, place / LOG) if there else []
    complaints = {run: complaint for run, (_, complaint) in zip(there, judged, strict=True)}
    return [
        Judged(None, verdicts.unknown(each)) if isinstance(each, str) else Judged(each, _verdict(each, complaints[each]))
        for each in found
    ]


def _verdict(run: Path, complaint: str) -> Verdict:
    return verdicts.unknown(complaint) if complaint else verdicts.read(run)


def _drilled(order: Order[Any], calibration: Calibration, here: argparse.Namespace, interrupts: Interrupts) -> Path | str:
    """The folder of the run, or why there is nothing to judge."""
    try:
        drill = record(order, here, interrupts, calibration)
    except Interrupted:
        raise
    except HarnessError as error:
        return str(error)
    drill.folder.release()
    for error in drill.errors:
        drill.progress.say(f"harness: {error}")
        if error.startswith(INTERRUPTED):
            raise Interrupted(error)
    return drill.folder.path if drill.loaded else "; ".join(drill.errors) or "no load was sent"


#: How an error of a drill begins that a signal has ended.
INTERRUPTED = "interrupted by"
