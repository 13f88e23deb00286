"""Runs of drills, read from their folder: what was run, the verdict, and whether there is a report."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

#: Runs of one view, the newest ones; entries of the folder that are looked at, and bytes of a file that are read.
RUNS_MAX = 50
_ENTRIES_MAX = 5_000
_FILE_BYTES_MAX = 4 * 1024 * 1024
REPORT = "report.html"
#: A folder of a run: no other file can be named by an address.
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_STARTS_WITH_DATE = re.compile(r"\d{8}-\d{6}-")


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run. `verdict` is valid, violated, unknown, or `not judged`; empty texts: not known."""

    name: str
    verdict: str
    started: str
    scenario: str
    model: str
    seed: str
    commit: str
    reason: str
    report: bool


@dataclass(frozen=True, slots=True)
class RunList:
    """The newest runs, and how many there are."""

    rows: tuple[RunRow, ...]
    count: int


def run_list(folder: Path) -> RunList:
    """The runs of a folder, by the time in their names, the newest first. A folder that cannot be read holds none."""
    names: list[str] = []
    try:
        for entry in folder.iterdir():
            if len(names) >= _ENTRIES_MAX:
                break
            if _STARTS_WITH_DATE.match(entry.name) and RUN_NAME.fullmatch(entry.name) and not entry.is_symlink():
                names.append(entry.name)
    except OSError:
        return RunList((), 0)
    names.sort(reverse=True)
    return RunList(tuple(run_row(folder / name) for name in names[:RUNS_MAX]), len(names))


def run_row(run: Path) -> RunRow:
    """One run, whatever state its folder is in."""
    spec, verdict = _read(run / "spec.json"), _read(run / "verdict.json")
    reasons = verdict.get("reasons")
    first = cast("list[Any]", reasons)[0] if isinstance(reasons, list) and reasons else ""
    return RunRow(
        name=run.name,
        verdict=_text(verdict.get("verdict")) or "not judged",
        started=_text(spec.get("started_utc")).replace("T", " ").removesuffix("Z"),
        scenario=_text(spec.get("scenario")),
        model=_text(spec.get("model")),
        seed=_text(spec.get("seed")),
        commit=_text(spec.get("git_commit"))[:8],
        reason=_text(first),
        report=(run / REPORT).is_file(),
    )


def report_of(folder: Path, name: str) -> Path | None:
    """The report of a run; None when there is no such run or no report. No other file can be asked for."""
    if not RUN_NAME.fullmatch(name):
        return None
    path = folder / name / REPORT
    return path if not path.parent.is_symlink() and not path.is_symlink() and path.is_file() else None


def _read(path: Path) -> Mapping[str, Any]:
    """A JSON object; empty for anything else."""
    try:
        with path.open("rb") as file:
            found: Any = json.loads(file.read(_FILE_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def _text(value: object) -> str:
    return str(value)[:300] if isinstance(value, str | int) and not isinstance(value, bool) else ""
