"""Clocks of channels: whole numbers in a circle, in which the smallest comes after the largest.

The judge's twin of `engine.channel.clock`, of which reports may not know.
"""

from __future__ import annotations

#: The largest clock, and how many there are.
CLOCK_MAX = 2**53 - 1
CLOCKS = 2 * CLOCK_MAX + 1

#: A run publishes fewer messages than this: a clock that is nearer to the wrap than that is a clock of a channel that crosses it.
NEAR = 10**9


def distance(start: int, end: int) -> int:
    """How many steps lead from `start` forward to `end`."""
    return (end - start) % CLOCKS


def lag(cursor: int, clock: int) -> int:
    """How many clocks a cursor is behind; 0 where it is ahead of what was known of the clock."""
    steps = distance(cursor, clock)
    return steps if steps <= CLOCK_MAX else 0


def past_wrap(clock: int) -> int:
    """How far a clock is beyond the largest one: 0 is the largest, 1 the smallest, which comes after it, -1 the one before it."""
    steps = distance(CLOCK_MAX, clock)
    return steps if steps <= CLOCK_MAX else steps - CLOCKS


def clock_at(steps: int) -> int:
    """The clock that lies so many steps past the wrap."""
    return (CLOCK_MAX + steps + CLOCK_MAX) % CLOCKS - CLOCK_MAX
