"""`python -m reports.bench grow RUN --rows 1e6 --out FOLDER`: a run as valid as RUN, with so many rows."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from reports.bench.grow import SHAPES, grow
from reports.errors import JudgeError


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m reports.bench")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("grow", help="grow a recorded run to so many rows")
    command.add_argument("run", type=Path)
    command.add_argument("--rows", type=float, required=True)
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--shape", choices=SHAPES, default=SHAPES[0])
    options = parser.parse_args()
    try:
        began_s = time.monotonic()
        rows = grow(options.run, int(options.rows), options.out, shape=options.shape)
    except JudgeError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(f"history: rows={rows} seconds={time.monotonic() - began_s:.1f} folder={options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
