"""Lengths of time as DSPS's clients write them: those of Go, such as `1h30m`, `1.5s` or `250ms`."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from engine.errors import Malformed
from engine.validate import DURATION_MS_MAX

_UNITS_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3_600 * 10**9}
_PART = re.compile(r"([0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(ns|us|µs|μs|ms|s|m|h)")
#: How they are written.
WRITTEN = re.compile(rf"([+-]?)((?:{_PART.pattern}){{1,10}}|0)")


def duration_ms(field: str, text: str) -> int:
    """The length in whole milliseconds, rounded up; a negative one is 0. Raises Malformed."""
    found = WRITTEN.fullmatch(text)
    if found is None:
        raise Malformed(field, text, "a length of time such as 30s, 1h30m or 250ms")
    total_ns = sum(Decimal(number) * _UNITS_NS[unit] for number, unit in _PART.findall(text))
    if found.group(1) == "-":
        return 0
    return min(math.ceil(total_ns / 10**6), DURATION_MS_MAX)
