"""How long a job waits between two runs."""

from __future__ import annotations

from collections.abc import Callable

from engine.operations import Options

#: Doubling stops here, unless the job itself asks for a longer wait from the start.
DELAY_MS_MAX = 3_600_000


def delay_ms(options: Options, failures: int, draw: Callable[[], float]) -> int:
    """The wait after a failed run. `failures`: failed runs before it; `draw` gives numbers in [0, 1).

    A growing wait gets jitter from half to full: jobs that failed together, because what they all need was away, do not all
    come back in the same millisecond.
    """
    if options.backoff == "fixed":
        return options.backoff_ms
    most_ms = max(options.backoff_ms, DELAY_MS_MAX)
    # Beyond 2^62 every wait above 0 has met its bound, and a shift by an unbounded counter would build a huge number.
    grown_ms = min(most_ms, options.backoff_ms << min(failures, 62))
    return int(grown_ms * (0.5 + draw() / 2))
