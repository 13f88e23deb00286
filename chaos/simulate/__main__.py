"""`python -m chaos.simulate run | rules`, for one release: it is `python -m chaos simulate [rules]` now."""

from __future__ import annotations

import shlex
import sys

from chaos.cli import main
from chaos.interrupts import Interrupts

if __name__ == "__main__":
    words = sys.argv[1:]
    words = ["simulate", *(words[1:] if words[:1] == ["run"] else words)]
    print(f"chaos: type now: python -m chaos {shlex.join(words)}", file=sys.stderr)
    with Interrupts() as caught:
        sys.exit(main(words, caught))
