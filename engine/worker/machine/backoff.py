"""How long a failed job waits for its next run. Pure code, a part of the state machine."""

from __future__ import annotations

from collections.abc import Callable

from engine.ops.jobs import Options

#: A growing wait stops here, unless the job itself asks for a longer one from the start or has a bound of its
#: own.
DELAY_MS_MAX = 3_600_000


def delay_ms(options: Options, failures: int, draw: Callable[[], float]) -> int:
    """The wait after a failed run. `failures`: failed runs before it; `draw` gives numbers in [0, 1)."""
    wait_ms = _grown_ms(options, failures)
    if options.backoff_max_ms:
        wait_ms = min(wait_ms, options.backoff_max_ms)
    elif options.backoff not in ("fixed", "custom"):
        wait_ms = min(wait_ms, max(options.backoff_ms, DELAY_MS_MAX))
    jitter = options.jitter_share
    return int(wait_ms * (1 - jitter + jitter * draw())) if jitter else wait_ms


def _grown_ms(options: Options, failures: int) -> int:
    """The wait before the upper bound and the jitter are applied."""
    match options.backoff:
        case "fixed":
            return options.backoff_ms
        case "exponential":
            # Beyond 2^62 every wait above 0 has met its bound, and a shift by an unbounded counter would
            # build a huge number.
            return options.backoff_ms << min(failures, 62)
        case "linear":
            return options.backoff_ms * (failures + 1)
        case "geometric":
            return options.backoff_ms * (failures + 1) ** 2
        case "custom":
            return options.backoff_delays_ms[min(failures, len(options.backoff_delays_ms) - 1)]
