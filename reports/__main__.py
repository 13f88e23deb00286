"""`python -m reports judge runs/<id>`: the verdict of a run, from its history alone. Exit code 0 valid, 1 violated, 2 unknown.
3: valid, and an objective was missed."""

from __future__ import annotations

import logging
import sys

from reports.interrupts import INTERRUPTS

#: Exit code of unknown. A literal, because the module that defines it may not be imported yet when an interrupt needs it.
UNKNOWN = 2


def run() -> int:
    """Run the command and return its exit code. The signal handlers are installed before the slow imports."""
    INTERRUPTS.install()
    # Py4J logs a traceback for the call that a signal cuts off.
    logging.disable()
    try:
        from reports.command import main

        code = main()
    except KeyboardInterrupt:
        print("judge: interrupted", file=sys.stderr)
        code = UNKNOWN
    INTERRUPTS.ignore()
    return code


if __name__ == "__main__":
    sys.exit(run())
