"""Clocks of channels: integers in a circle, in which the smallest comes after the largest.

Duplicates `engine.channel.clock`, which reports may not import.
"""

from __future__ import annotations

#: The largest clock, and the number of clocks.
CLOCK_MAX = 2**53 - 1
CLOCKS = 2 * CLOCK_MAX + 1

#: A clock within this distance of the wrap belongs to a channel that is meant to cross it: a run publishes fewer messages.
NEAR = 10**9


def distance(start: int, end: int) -> int:
    """Number of steps forward from `start` to `end`."""
    return (end - start) % CLOCKS


def lag(cursor: int, clock: int) -> int:
    """Number of clocks by which a cursor is behind; 0 when it is ahead of the last known clock."""
    steps = distance(cursor, clock)
    return steps if steps <= CLOCK_MAX else 0


def past_wrap(clock: int) -> int:
    """Steps of a clock beyond the largest one: 0 is the largest, 1 the smallest (which follows it), -1 the one before it."""
    steps = distance(CLOCK_MAX, clock)
    return steps if steps <= CLOCK_MAX else steps - CLOCKS


def clock_at(steps: int) -> int:
    """The clock that lies this many steps past the wrap."""
    return (CLOCK_MAX + steps + CLOCK_MAX) % CLOCKS - CLOCK_MAX
