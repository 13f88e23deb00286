"""`python -m reports judge runs/<id>`: the verdict of a run, from its history alone. Exit code 0 valid, 1 violated, 2 unknown."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from reports.errors import CannotJudge, one_line
from reports.judge import judge
from reports.table import render
from reports.verdict import EXIT_CODES

UNKNOWN = EXIT_CODES["unknown"]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(prog="python -m reports", description="Judge recorded runs.")
    commands = root.add_subparsers(dest="command", required=True)
    command = commands.add_parser("judge", help="decide valid, violated or unknown, and write verdict.json")
    command.add_argument("run", type=Path, help="folder of the run, such as runs/latest")
    command.add_argument("--master", default="local[*]", help="Spark master (default: %(default)s)")
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    options = parser().parse_args(arguments)
    try:
        decided = judge(options.run, master=options.master)
    except CannotJudge as error:
        return complain(str(error))
    except KeyboardInterrupt:
        return complain("interrupted")
    except Exception as error:
        return complain(f"the judge failed: {one_line(error)}")
    print(render(decided))
    return EXIT_CODES[decided["verdict"]]


def complain(line: str) -> int:
    """One line on stderr, the verdict on stdout, and the exit code of unknown."""
    print(f"judge: {line}", file=sys.stderr)
    print("verdict: unknown")
    return UNKNOWN


if __name__ == "__main__":
    # A judge that is told to stop takes its JVM and scratch files with it, as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
