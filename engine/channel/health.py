"""Which of several storages are asked: one that failed is left out for a while, and then tried beside the others without being
waited for. So a server that is away costs one call its patience, and not every call. No I/O.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from engine.spared import logger

log = logger("ironclaim.channel")

#: For how long one is left out that failed, twice as long each time it fails again.
_ASIDE_MS_MIN = 500
_ASIDE_MS_MAX = 30_000
#: After so many different ones nothing more is said.
_FAULTS_MAX = 100


class Health:
    """The health of the storages of one channel."""

    def __init__(self, channel: str, storages: Iterable[str], now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._channel = channel
        self._storages = tuple(storages)
        self._now_ns = now_ns
        #: Those that failed last: until when they are left out, and for how long that was.
        self._aside: dict[str, tuple[int, int]] = {}
        self._faults: set[tuple[str, str]] = set()

    def chosen(self, among: Iterable[str] | None = None) -> list[str]:
        """The storages to ask: all that are not left out, or all when there are no others."""
        now_ns = self._now_ns()
        wanted = [id for id in self._storages if among is None or id in among]
        return [id for id in wanted if id not in self._aside or now_ns >= self._aside[id][0]] or wanted

    def doubtful(self, storages: Iterable[str]) -> bool:
        """Whether one of these failed when it was asked last."""
        return any(id in self._aside for id in storages)

    def answered(self, id: str) -> None:
        """This storage answered: it is left out no longer."""
        if self._aside.pop(id, None) is not None:
            log.info("storage %s of channel %s works again", id, self._channel)

    def failed(self, id: str, why: object) -> None:
        """This storage did not answer: leave it out for a while. Logged once until it answers again."""
        if id not in self._aside:
            log.warning("storage %s of channel %s is left out until it works again: %s", id, self._channel, why)
        before_ms = self._aside[id][1] if id in self._aside else _ASIDE_MS_MIN // 2
        aside_ms = min(before_ms * 2, _ASIDE_MS_MAX)
        self._aside[id] = (self._now_ns() + aside_ms * 1_000_000, aside_ms)

    def faulted(self, id: str, why: object) -> None:
        """This storage works and cannot do this one thing, as where a key is damaged. It is not left out, because other calls are
        none the worse for that. Each fault is logged once."""
        fault = (id, str(why))
        if fault not in self._faults and len(self._faults) < _FAULTS_MAX:
            self._faults.add(fault)
            log.warning("storage %s of channel %s: %s", id, self._channel, why)
