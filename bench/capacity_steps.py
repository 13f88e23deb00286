"""How a capacity measurement and its processes talk: orders for Locust, what came of them, and the times of handlers."""

from __future__ import annotations

from dataclasses import dataclass

#: The file in the folder of orders that holds the newest.
ORDER = "order.json"

#: Environment variable: the file that gets the times of a worker's handlers (`bench.timed_handlers`).
TIMES_VARIABLE = "IRONCLAIM_TIMES"


@dataclass(frozen=True, slots=True)
class Order:
    """One step that is wished for."""

    step: int
    rate_per_s: float
    seconds: float

    @property
    def answer(self) -> str:
        """The file in the same folder that says what came of it."""
        return f"step-{self.step}.json"


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of an order. Instants on the monotonic clock. `created`: jobs that the server took, of those `offered`; the
    others were dropped, refused, or not answered. `late_p99_ms`: how late sends began. `cpu_share`: of the process's core."""

    step: int
    begin_ns: int
    end_ns: int
    offered: int
    created: int
    late_p99_ms: float
    cpu_share: float
