"""Violations planted in a history, and whether the judge finds these and nothing else.

They are planted in the recorded run, which comes last in a grown history, by the kinds of the corruptor that concern single jobs.
What the judge finds in the small run is then what it must find in the large one: no more, no less.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as parquet

from reports.bench.grow import Grown
from reports.corrupt.command import KINDS
from reports.corrupt.history import History
from reports.errors import JudgeError

#: Columns that say what a violation is; `detail` holds times, which a larger history moves.
COLUMNS = ("check", "subject", "kind", "level")

Finding = tuple[str, ...]

#: The id of a job of a schedule ends with the time of its tick, which is later in a grown history.
TICK = re.compile(r"(?<=^cron:)(.*:)(\d+)$")


@dataclass(frozen=True)
class Compared:
    """What the judge found of what was planted: all, found, and what it found beside that."""

    planted: frozenset[Finding]
    found: frozenset[Finding]

    @property
    def missing(self) -> list[Finding]:
        """What it did not find."""
        return sorted(self.planted - self.found)

    @property
    def extra(self) -> list[Finding]:
        """What it found and nobody planted."""
        return sorted(self.found - self.planted)

    def __str__(self) -> str:
        return f"planted={len(self.planted & self.found)}/{len(self.planted)} extra={len(self.extra)}"


def plant(run: Path, seed: int, out: Path) -> dict[str, str]:
    """Write a copy of a run with every kind of violation of single jobs. Returns the subject of each kind by its name.

    Raises JudgeError when the run lacks what a kind needs.
    """
    history = History(run, random.Random(f"{seed} 0"))
    subjects = {one.name: one.edit(history) for one in KINDS.values() if not one.apart}
    for rows in history.files.values():
        # An edit may let a job run beyond the end of its worker's file, which in a longer file would look like rows out of order.
        if rows[-1]["kind"] == "close":
            rows[-1]["t_ns"] = max(row["t_ns"] for row in rows)
    if out.exists():
        shutil.rmtree(out)
    history.write(out)
    return {name: subject for name, subject in subjects.items() if subject}


def findings(run: Path) -> frozenset[Finding]:
    """What the judge found in a run: violations, and checks that are not valid. Raises JudgeError when it was not judged."""
    try:
        verdict = json.loads((run / "verdict.json").read_text())
        table = parquet.read_table(run / "tables" / "violations.parquet", columns=list(COLUMNS))
    except (OSError, ValueError) as error:
        raise JudgeError(f"{run.name} was not judged: {error}") from error
    rows = zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)
    checks = {
        (check["id"], "the check", "verdict", check["verdict"]) for check in verdict["checks"] if check["verdict"] != "valid"
    }
    return frozenset(checks.union(tuple(map(str, row)) for row in rows))


def later(found: frozenset[Finding], grown: Grown) -> frozenset[Finding]:
    """The same findings in a grown history, whose last part is later than it was."""

    def moved(match: re.Match[str]) -> str:
        tick_ms = int(match[2])
        return f"{match[1]}{tick_ms + grown.later_ms if tick_ms >= grown.begin_ms else tick_ms}"

    return frozenset((check, TICK.sub(moved, subject), *rest) for check, subject, *rest in found)


def unseen(found: frozenset[Finding], subjects: dict[str, str]) -> list[str]:
    """The planted kinds of whose subject the check that must see it found nothing."""
    seen = {(finding[0], finding[1]) for finding in found}
    return sorted(name for name, subject in subjects.items() if (KINDS[name].check, subject) not in seen)
