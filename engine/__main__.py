"""`python -m engine`: the console command `ironclaim`, also where it is not installed."""

from __future__ import annotations

import sys

from engine.command.main import main

if __name__ == "__main__":
    sys.exit(main())
