"""Run it: `python -m bench.micro --help`."""

from __future__ import annotations

import sys

from bench.micro.command import main

if __name__ == "__main__":
    sys.exit(main())
