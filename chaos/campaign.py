"""Many runs: one after the other, each judged at once or all of them together, and the worst exit code of all.

Drills are never side by side: on two cores each would take the other's processor, and its verdict would be unknown.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import runs
from chaos.calibration import Calibration
from chaos.errors import HarnessError, Interrupted
from chaos.interrupts import Interrupts
from chaos.judge import EXIT_CODES, Verdict, judge_all, read_verdict, unknown
from chaos.run import Run, Scenario, carry_out

#: What the judge prints about all of them, in the folder that holds their runs.
LOG = "judge.log"

#: How an error of a drill begins that a signal has ended.
INTERRUPTED = "interrupted by"

BEST_FIRST = tuple(EXIT_CODES[word] for word in ("valid", "missed", "unknown", "violated"))


def worst(codes: Iterable[int]) -> int:
    """Violated beats unknown beats valid; nothing at all is unknown."""
    return max(codes, key=BEST_FIRST.index, default=EXIT_CODES["unknown"])


def worst_of(scenarios: Iterable[Scenario[Any]], arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Carry out each and judge it: the worst exit code. Raises as `carry_out`."""
    return worst([carry_out(scenario, arguments, interrupts)[0] for scenario in scenarios])


@dataclass(frozen=True, slots=True)
class Judged:
    """A run that was judged. `run`: its folder; None for one that could not begin."""

    run: Path | None
    verdict: Verdict

    @property
    def name(self) -> str:
        """Of its folder; empty without one."""
        return self.run.name if self.run else ""


def together(
    scenarios: Sequence[tuple[Scenario[Any], Calibration]], place: Path, arguments: argparse.Namespace, interrupts: Interrupts
) -> list[Judged]:
    """Carry the scenarios out and judge them in one Spark session; their runs are in `place`. One that could not begin, that sent
    no load or that did not come to its end is unknown. Raises Interrupted, and ServerMissing when no server can be started."""
    # Nothing of this place is pruned while it grows.
    here = argparse.Namespace(**{**vars(arguments), "runs": place, "keep": 1_000})
    found = [_recorded(scenario, calibration, here, interrupts) for scenario, calibration in scenarios]
    there = [each for each in found if isinstance(each, Path)]
    judged = judge_all(there, interrupts, place / LOG) if there else []
    complaints = {run: complaint for run, (_, complaint) in zip(there, judged, strict=True)}
    return [
        Judged(None, unknown(each)) if isinstance(each, str) else Judged(each, _verdict(each, complaints[each])) for each in found
    ]


def _verdict(run: Path, complaint: str) -> Verdict:
    return unknown(complaint) if complaint else read_verdict(run)


def _recorded(scenario: Scenario[Any], calibration: Calibration, here: argparse.Namespace, interrupts: Interrupts) -> Path | str:
    """The folder of the run, or why there is nothing to judge."""
    try:
        drill = Run(scenario, here, interrupts, calibration).record()
    except Interrupted:
        raise
    except HarnessError as error:
        return str(error)
    drill.folder.release()
    for error in drill.errors:
        drill.progress.say(f"harness: {error}")
    stop_if_interrupted(drill.errors)
    return drill.folder.path if drill.loaded else "; ".join(drill.errors) or "no load was sent"


def stop_if_interrupted(errors: Iterable[str]) -> None:
    """Nobody wants the drill after one that a signal has ended. Raises Interrupted."""
    for error in errors:
        if error.startswith(INTERRUPTED):
            raise Interrupted(error)


def new_place(folder: Path, name: str, keep: int, among: Callable[[Path], bool] = Path.is_dir) -> Path:
    """A new folder for the runs of a campaign and what comes of them. The oldest of those `among` the others are removed, so that
    so many stay. Raises HarnessError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in sorted(path for path in folder.iterdir() if among(path))[: -(keep - 1)]:
            shutil.rmtree(old, ignore_errors=True)
        return runs.make_unique(folder / name)
    except OSError as error:
        raise HarnessError(f"folder {folder}: {error.strerror or error}") from error


def write(file: Path, content: dict[str, Any]) -> None:
    """Write what was found, for the page, in one step. Raises HarnessError."""
    fresh = file.with_suffix(".tmp")
    try:
        fresh.write_text(json.dumps(content, indent=1) + "\n")
        fresh.replace(file)
    except OSError as error:
        raise HarnessError(f"{file.name} cannot be written: {error.strerror or error}") from error
