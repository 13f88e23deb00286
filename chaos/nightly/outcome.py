"""What follows from the verdicts of a night: its lines, and its exit code. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from chaos.nightly.cells import NightDrill
from chaos.verdicts import Verdict


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
