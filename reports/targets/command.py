"""The command `targets`: other job queues compared by their runs, as a table and as the page `queues.html`. No Spark."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.errors import JudgeError
from reports.table import grid, number
from reports.targets.promise import of_target
from reports.verdict import FILE, place

if TYPE_CHECKING:
    from reports.targets.compared import Entry

PAGE_FILE = "queues.html"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    command.add_argument("runs", type=Path, nargs="+", metavar="run", help="folders of judged runs of targets")
    command.add_argument("--page", type=Path, help=f"file to write (default: {PAGE_FILE} beside the first run)")


def compare_targets(options: argparse.Namespace) -> tuple[str, int]:
    """The table and exit code 0. Raises JudgeError when a folder is not that of a judged run of a target."""
    # What draws takes half a second to load, which other commands need not wait for.
    from reports.targets.compared import document

    page: Path = options.page or options.runs[0].resolve().parent / PAGE_FILE
    found = sorted((entry(run, page.parent) for run in options.runs), key=lambda one: (one.target, one.name))
    place(page, document(found))
    return render(found, page), 0


def entry(run: Path, beside: Path) -> Entry:
    """One run. Raises JudgeError."""
    from reports.targets.compared import Entry

    try:
        decided: Mapping[str, Any] = json.loads((run / FILE).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise JudgeError(f"{run.name} has no {FILE} that can be read: judge it first ({error})") from error
    if not of_target(decided.get("spec", {})):
        raise JudgeError(f"{run.name} is not a run of a target: its scenario is {decided.get('spec', {}).get('scenario')!r}")
    return Entry(run.resolve().name, decided, os.path.relpath(run.resolve(), beside.resolve()))


def render(found: Sequence[Entry], page: Path) -> str:
    """The matrix, and a last line."""
    heads = ("target", "promise", "faults", "in hand", "again", "lost", "doubled", "late", "stranded", "verdict", "run")
    body = [
        [
            *(one.target, one.promise.words, number(len(one.decided["spec"]["plan"]))),
            *(number(value) for value in (one.kill("in_hand"), one.kill("again"))),
            *(number(one.measures.get(kind)) for kind in ("lost", "doubled", "late", "stranded")),
            *(one.decided["verdict"], one.name),
        ]
        for one in found
    ]
    broken = sum(one.decided["verdict"] == "violated" for one in found)
    last = f"targets: runs={len(found)} violated={broken} page={page}"
    return "\n\n".join(["\n".join(grid("queues compared", heads, body, right=range(2, 9))), last])
