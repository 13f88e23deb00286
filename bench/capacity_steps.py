"""How a capacity measurement and its processes talk: orders for Locust, what came of them, and what workers note."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import NamedTuple

#: The file in the folder of orders that holds the newest.
ORDER = "order.json"

#: Environment variable: what a worker works on, and where it notes the times of its handlers (`bench.timed_handlers`).
TIMED_VARIABLE = "IRONCLAIM_TIMED"


@dataclass(frozen=True, slots=True)
class Timed:
    """The value of that variable. `file` gets the times."""

    model: str
    url: str
    queue: str
    file: str

    def written(self) -> str:
        """As it stands in the environment."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Timed:
        """From there."""
        return cls(**json.loads(text))


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


class Other(NamedTuple):
    """A created job that has another id than its arrival, or waits before it may run."""

    index: int
    id: str
    delay_ms: float


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of an order. Instants on the monotonic clock. `created`: jobs that the server took, of those `offered`; the
    others were dropped, refused, or not answered. `late_p99_ms`: how late sends began. `cpu_share`: of the process's core.
    `sends`: (index of the arrival, when its send began, when it was answered), in ms from `begin_ns`, of each created job.
    `others`: see `Other`. `made`: jobs that the load of a service yielded, in `made_s` seconds of its own; `payload_bytes`: the
    mean of theirs.
    """

    step: int
    begin_ns: int
    end_ns: int
    offered: int
    created: int
    late_p99_ms: float
    cpu_share: float
    sends: tuple[tuple[int, float, float], ...] = ()
    others: tuple[Other, ...] = ()
    made: int = 0
    made_s: float = 0.0
    payload_bytes: float = 0.0

    @classmethod
    def read(cls, text: str) -> Sent:
        """From the file of an answer."""
        columns = json.loads(text)
        return cls(**{**columns, "others": tuple(Other(*one) for one in columns["others"])})
