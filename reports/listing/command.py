"""The command `list`: its arguments, the table as plain text, and the page `index.html`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from reports.errors import JudgeError
from reports.listing.entries import STATES, Entry, entries
from reports.listing.page import document
from reports.table import cut, grid, number, seconds
from reports.verdict import place

PAGE_FILE = "index.html"

HEADS = ("date", "scenario", "model", "seed", "label", "commit", "verdict", "violations", "recovery", "p99 ms", "jobs")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    command.add_argument("runs", type=Path, nargs="?", default=Path("runs"), help="folder of all runs (default: %(default)s)")


def list_runs(options: argparse.Namespace) -> tuple[str, int]:
    """The table of all runs and exit code 0. Writes the page into the folder.

    Raises JudgeError when the folder cannot be read or the page cannot be written.
    """
    try:
        found = entries(options.runs)
    except OSError as error:
        raise JudgeError(f"folder {options.runs}: {error.strerror or error}") from error
    page = options.runs / PAGE_FILE
    place(page, document(found))
    return render(found, page), 0


def render(found: Sequence[Entry], page: Path) -> str:
    """The table, and a last line that counts the runs by verdict."""
    with_slo = any(one.slo for one in found)
    heads = (*HEADS, *(("objectives",) if with_slo else ()), "run")
    body = [[*row(one), *((one.slo,) if with_slo else ()), one.name] for one in found]
    table = grid("runs", heads, body, right=(3, 7, 8, 9, 10))
    reasons = [f"  {one.name}: {cut(one.reason)}" for one in found if one.reason]
    sections = [table, ["reasons", *reasons] if reasons else [], [last_line(found, page)]]
    return "\n\n".join("\n".join(section) for section in sections if section)


def row(one: Entry) -> list[str]:
    """The cells of a run."""
    head = [one.date, one.scenario, one.model, number(one.seed), one.label, one.commit, one.state]
    return [*head, number(one.violations), seconds(one.recovery_ms), number(one.p99_ms), number(one.jobs)]


def last_line(found: Sequence[Entry], page: Path) -> str:
    """The line for scripts."""
    states = Counter(one.state for one in found)
    counts = " ".join(f"{state.replace(' ', '_')}={states[state]}" for state in STATES)
    return f"list: runs={len(found)} {counts} page={page}"
