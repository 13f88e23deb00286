"""The logical clock of a channel: whole numbers from -(2^53 - 1) to 2^53 - 1 in a circle, as DSPS defines it.

Python compares clocks here alone (`clock_after` of `lua/dsps/modules/clock.lua` is the twin). After the
largest comes the smallest, so `<` says nothing. Of two different clocks, the later one is less than half the
circle ahead (as in RFC 1982). The circle has an odd number of clocks, so exactly one of two is later. A clock
that is **behind** where somebody has seen it has not wrapped: it went back, by a restored backup or a lost
key.
"""

from __future__ import annotations

from engine.errors import Malformed, ScriptFault

#: The largest clock, the largest whole number whose neighbours a double can tell apart; the smallest is its
#: negative.
CLOCK_MAX = 2**53 - 1
CLOCK_MIN = -CLOCK_MAX
#: How many clocks there are.
CLOCKS = 2 * CLOCK_MAX + 1


def check(field: str, value: object) -> int:
    """Check a clock. Raises Malformed for anything but a whole number in range."""
    if isinstance(value, bool) or not isinstance(value, int) or not CLOCK_MIN <= value <= CLOCK_MAX:
        raise Malformed(field, value, f"a whole number from {CLOCK_MIN} to {CLOCK_MAX}")
    return value


def parse(raw: bytes | str | int) -> int:
    """Read a clock from a server, in decimal digits. Raises ScriptFault."""
    try:
        value = int(raw)
    except ValueError as error:
        raise ScriptFault(f"no clock: {raw!r:.100}") from error
    if not CLOCK_MIN <= value <= CLOCK_MAX:
        raise ScriptFault(f"a clock outside of {CLOCK_MIN} to {CLOCK_MAX}: {value}")
    return value


def ahead(clock: int, steps: int) -> int:
    """The clock that comes so many steps after this one; before it where `steps` is negative."""
    return (clock + steps - CLOCK_MIN) % CLOCKS + CLOCK_MIN


def distance(start: int, end: int) -> int:
    """How many steps lead from `start` forward to `end`: 0 to CLOCKS - 1."""
    return (end - start) % CLOCKS


def after(clock: int, other: int) -> bool:
    """Whether `clock` is later than `other`."""
    return 0 < distance(other, clock) <= CLOCK_MAX


def latest(clock: int, other: int | None) -> int:
    """The later one of two; None is earlier than everything."""
    return clock if other is None or not after(other, clock) else other
