"""`python -m chaos COMMAND`. Exit code 0 valid, 1 violated, 2 unknown, interrupted, or a failure of the harness."""

from __future__ import annotations

import sys

INTERRUPTED_EXIT_CODE = 2


def run() -> int:
    """Run the command and return its exit code."""
    try:
        from chaos.interrupts import Interrupts
    except KeyboardInterrupt:
        # Ctrl-C before anything catches it: a matter of milliseconds, but a traceback all the same.
        print("chaos: interrupted by SIGINT", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE
    with Interrupts() as caught:
        # Imported here, so that Ctrl-C is one line from the first possible moment on.
        from chaos.cli import main

        code = main(sys.argv[1:], caught)
        caught.ignore()
    return code


if __name__ == "__main__":
    sys.exit(run())
