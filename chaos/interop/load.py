"""What the producers of both sides send: drawn from the seed, and told to Bull and to the engine in the words of each.

The payload says what the handler does, as in `bench.workload`: `work_ms` to wait, `fail_first` runs to fail before one returns
`value`. `index` and `by` make payloads differ, so that one which was swapped is noticed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Mix:
    """How much of what. Shares are fractions of all jobs; the others run at once and succeed."""

    rate_per_s: float
    work_ms: tuple[int, int] = (5, 30)
    delayed_share: float = 0.3
    delay_ms: tuple[int, int] = (100, 1_500)
    #: Jobs that fail once or twice, and jobs that fail as often as they may.
    failing_share: float = 0.06
    hopeless_share: float = 0.02


#: How often a job may run, and how long it waits after its first failure.
ATTEMPTS = 3
BACKOFF_MS = 150

#: A run that is told to stop has sent less than this.
SECONDS_MAX = 120


@dataclass(frozen=True, slots=True)
class NewJob:
    """One job to send, `at_ms` after the start of the load."""

    at_ms: float
    payload: dict[str, Any]
    delay_ms: int
    #: "" = none, "fixed" or "exponential".
    backoff: str

    def options(self) -> dict[str, Any]:
        """The options of `queue.add` of Bull."""
        options: dict[str, Any] = {"attempts": ATTEMPTS}
        if self.delay_ms:
            options["delay"] = self.delay_ms
        if self.backoff:
            options["backoff"] = {"type": self.backoff, "delay": BACKOFF_MS}
        return options


def jobs(seed: int, by: str, mix: Mix) -> list[NewJob]:
    """What the producer of that name sends."""
    rng, at_ms, found = random.Random(f"interop {seed} {by}"), 0.0, list[NewJob]()
    while at_ms < SECONDS_MAX * 1_000:
        at_ms += rng.expovariate(mix.rate_per_s / 1_000)
        work_ms, delay_ms, draw = rng.randint(*mix.work_ms), rng.randint(*mix.delay_ms), rng.random()
        fail_first = ATTEMPTS if draw < mix.hopeless_share else rng.randint(1, 2)
        fails = draw < mix.hopeless_share + mix.failing_share
        backoff = rng.choice(("", "fixed", "exponential"))
        delayed = rng.random() < mix.delayed_share
        index = len(found)
        payload = {"by": by, "index": index, "work_ms": work_ms, "fail_first": fail_first if fails else 0}
        found.append(NewJob(at_ms, {**payload, "value": {"index": index}}, delay_ms if delayed else 0, backoff))
    return found


def write_plan(path: Path, sent: Iterable[NewJob]) -> None:
    """The file `plan` of the adapter."""
    lines = [json.dumps({"at_ms": job.at_ms, "data": job.payload, "opts": job.options()}) for job in sent]
    path.write_text("\n".join(lines) + "\n")


def read_plan(path: Path) -> list[NewJob]:
    """What `write_plan` has written."""
    found: list[NewJob] = []
    for line in path.read_text().splitlines():
        told = json.loads(line)
        backoff = told["opts"].get("backoff", {}).get("type", "")
        found.append(NewJob(told["at_ms"], told["data"], told["opts"].get("delay", 0), backoff))
    return found
