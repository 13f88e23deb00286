"""How a fetch waits: it polls, rests until a storage reports a publication, and polls again. No wake-up is lost: a waiting
call has been listening since before its poll, and a storage that could not tell for a while tells as soon as it can again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from engine.channel.steps import Rest, Steps

T = TypeVar("T")

#: The longest wait, as in the original.
WAIT_MS_MAX = 30_000
#: A look from time to time keeps the subscriber alive, and bounds what a lost notification could cost.
_LOOK_MS = 10_000
#: How long a rest may be while a storage may not tell.
_DEAF_MS = 1_000


def waiting(
    look: Callable[[int], Steps[tuple[T, bool]]],
    wait_ms: int,
    ttl_s: int,
    now_ns: Callable[[], int] = time.monotonic_ns,
    has_more: Callable[[T], bool] = lambda _: False,
) -> Steps[T]:
    """Look until one says that it has something to tell, or the time is over; what the last one brought. Each is told how many
    ms had been waited for it: 0 for the first alone. After one that has more to find, the next follows at once: nothing
    tells of messages that are there already."""
    begun_ns = now_ns()
    waited_ms = 0
    until_ns = begun_ns + min(wait_ms, WAIT_MS_MAX) * 1_000_000
    while True:
        found, speaks = yield from look(waited_ms)
        left_ms = (until_ns - now_ns()) // 1_000_000
        if speaks or left_ms <= 0:
            return found
        most_ms = 0 if has_more(found) else min(left_ms, _LOOK_MS, ttl_s * 1000 // 3)
        if not (yield Rest(most_ms, min(most_ms, _DEAF_MS))):
            return found
        waited_ms = max(1, (now_ns() - begun_ns) // 1_000_000)
