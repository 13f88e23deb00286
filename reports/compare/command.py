"""The command `compare`: arguments, the table on stdout, a JSON file and a page, and the exit code."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from reports.errors import JudgeError
from reports.seed import add_seed
from reports.verdict import place

FILE = "comparison.json"
PAGE_FILE = "comparison.html"

#: Exit codes.
DECIDED, REFUSED = 0, 2


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    command.add_argument("--a", type=Path, nargs="+", required=True, metavar="RUN", help="judged runs of A, or a folder of them")
    command.add_argument("--b", type=Path, nargs="+", required=True, metavar="RUN", help="judged runs of B, or a folder of them")
    command.add_argument("--metric", action="append", default=[], help="test this one, may be repeated; all: every one")
    command.add_argument("--margin", type=float, default=5.0, help="B is the same when surely within this many %% (default: 5)")
    command.add_argument("--any", action="store_true", help="compare in spite of what forbids it, with a warning")
    add_seed(command, "draws the resamples")
    command.add_argument("--out", type=Path, default=Path("runs/comparison"), help="folder of the results (default: %(default)s)")


def compare(options: argparse.Namespace) -> tuple[str, int]:
    """The text to print and the exit code. Writes the JSON file and the page.

    Raises JudgeError when a run cannot be read, when something forbids the comparison, or when a file cannot be written.
    """
    # NumPy is imported only here: other commands do without.
    from reports.compare.decide import decide
    from reports.compare.page import document
    from reports.compare.sides import obstacles, read_side
    from reports.compare.words import record, render

    if not 0 < options.margin < 100:
        raise JudgeError(f"--margin is {options.margin:g}: it must be above 0 and below 100")
    a, b = read_side(options.a), read_side(options.b)
    forbidden = obstacles(a, b)
    if forbidden and not options.any:
        raise JudgeError(f"{'; '.join(forbidden)} (--any compares nevertheless)")
    found = decide(a, b, options.metric, margin=options.margin / 100, seed=options.seed, overridden=forbidden)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JudgeError(f"folder {options.out} cannot be made: {error.strerror or error}") from error
    place(options.out / FILE, json.dumps(record(found), indent=2) + "\n")
    place(options.out / PAGE_FILE, document(found, options.out))
    return render(found), REFUSED if found.too_few else DECIDED
