"""A small autoscaler: what it reads in the metrics of a queue, and what it decides. It stands for KEDA or a
HorizontalPodAutoscaler, and scales down as they do: to the most that was wanted of late."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from chaos.errors import HarnessError

_SAMPLE = re.compile(r'ironclaim_(\w+)\{queue="[^"]*"\} (\S+)')
WANTED = "wanted_workers"
#: What is written down of each look, as the metrics are called.
WRITTEN = (WANTED, "workers", "worker_utilisation_ratio", "oldest_waiting_seconds", "arrivals_per_second")


def read(page: str) -> dict[str, float]:
    """The numbers of a queue that are written down, by name without `ironclaim_`. Raises HarnessError when the page does not say
    how many workers are wanted."""
    found = {match[1]: float(match[2]) for line in page.splitlines() if (match := _SAMPLE.fullmatch(line))}
    if WANTED not in found:
        raise HarnessError(f"the metrics have no ironclaim_{WANTED}: {page[:100]!r}")
    return {name: found[name] for name in WRITTEN if name in found}


@dataclass
class Scaler:
    """Follows what is wanted: up at once, down to the most that was wanted in the last `stable_s`."""

    stable_s: float
    #: When so many were wanted (monotonic s), and how many.
    _wanted: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, now_s: float, wanted: int) -> int:
        """How many workers there should be."""
        self._wanted = [(at_s, count) for at_s, count in self._wanted if at_s > now_s - self.stable_s] + [(now_s, wanted)]
        return max(count for _, count in self._wanted)
