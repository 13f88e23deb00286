"""Lengths of time as DSPS's clients write them: those of Go, such as `1h30m`, `1.5s` or `250ms`."""

from __future__ import annotations

import math

from engine.errors import Malformed
from engine.validate import DURATION_MS_MAX, go_duration_ms


def duration_ms(field: str, text: str) -> int:
    """The length in whole milliseconds, rounded up; a negative one is 0. Raises Malformed."""
    length_ms = go_duration_ms(text)
    if length_ms is None:
        raise Malformed(field, text, "a length of time such as 30s, 1h30m or 250ms")
    return max(0, min(math.ceil(length_ms), DURATION_MS_MAX))
