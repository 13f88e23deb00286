"""`python -m chaos bench`. Exits 0 valid, 1 violated, 2 unknown, interrupted, or a failure of the harness."""

from __future__ import annotations

import sys

from chaos.interrupts import Interrupts

if __name__ == "__main__":
    with Interrupts() as caught:
        # Imported here, so that Ctrl-C is one line from the first possible moment on.
        from chaos.cli import main

        code = main(sys.argv[1:], caught)
        caught.ignore()
    sys.exit(code)
