"""`python -m reports.bench judge --rows 1e6 3e6`: what judging histories of that size costs, and what the judge finds in them.

`python -m reports.bench grow RUN --rows 1e6 --out FOLDER` only makes a history: as valid as RUN, with at least so many rows.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from engine.command_line import Parser
from reports.bench.command import Order, bench
from reports.bench.grow import SHAPES, grow
from reports.errors import JudgeError
from reports.interrupts import INTERRUPTS
from reports.seed import add_seed
from reports.session import chosen_master

UNKNOWN = 2

ROWS_MAX = 1_000_000_000


def rows(text: str) -> int:
    """A number of rows, such as 1e6. Raises ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 1 <= number <= ROWS_MAX:
        raise argparse.ArgumentTypeError(f"rows is {text!r}: it must be a number from 1 to 1e9")
    return int(number)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = Parser(prog="python -m reports.bench", description="How the judge scales.")
    commands = root.add_subparsers(dest="command", required=True)
    growing = commands.add_parser("grow", help="grow a recorded run to so many rows")
    growing.add_argument("run", type=Path, help="folder of a valid run of jobs")
    growing.add_argument("--rows", type=rows, required=True, help="at least so many, such as 1e6")
    growing.add_argument("--out", type=Path, required=True, help="the folder to make")
    command = commands.add_parser("judge", help="judge histories of several sizes, with violations planted")
    command.add_argument("--rows", type=rows, nargs="+", default=[1_000_000], help="the sizes (default 1e6)")
    add_seed(command, "of the recorded drill and the violations")
    command.add_argument("--run", type=Path, help="grow this valid run (default: record one)")
    command.add_argument("--master", help="Spark master (default as of python -m reports judge)")
    command.add_argument("--workers", type=int, default=0, help="judge on a standalone cluster of so many workers here")
    command.add_argument("--memory", default="2g", help="memory of each of them (default %(default)s)")
    for each in (growing, command):
        each.add_argument("--shape", choices=SHAPES, default=SHAPES[0], help="what most rows are about (default %(default)s)")
    return root


def main() -> int:
    """The exit code."""
    INTERRUPTS.install()
    options = parser().parse_args()
    try:
        if options.command == "judge":
            master = chosen_master(options.master)
            order = Order(options.rows, options.seed, options.shape, options.run, master, options.workers, options.memory)
            return bench(order, lambda line: print(line, flush=True))
        began_s = time.monotonic()
        grown = grow(options.run, options.rows, options.out, shape=options.shape)
        print(f"history: rows={grown.rows} seconds={time.monotonic() - began_s:.1f}")
    except (JudgeError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return UNKNOWN
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return UNKNOWN
    return 0


if __name__ == "__main__":
    sys.exit(main())
