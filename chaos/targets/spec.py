"""What a drill of a job queue is, as it is written to `spec.json`, and the faults that are drawn from its seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.errors import HarnessError
from chaos.plan import PRODUCER, Pace, Plan, PlannedFault, worker_names
from chaos.spec import SpecFile, check_bounds
from chaos.targets.promises import AT_LEAST_ONCE, AT_MOST_ONCE, Promise
from record.options import SEEDS

#: A machine that is busy, and a process that has to start: so much later than its bound is a recovery still in time.
SLACK_MS = 10_000

#: Where no bound is named: for how long what is left is waited for at the end, and for how long a worker stands still. A queue
#: that promises to run every job gets the time for it.
UNBOUNDED_WAIT_MS = {AT_MOST_ONCE: 30_000, AT_LEAST_ONCE: 240_000}
UNBOUNDED_FREEZE_MS = {AT_MOST_ONCE: 10_000, AT_LEAST_ONCE: 120_000}

#: At most so long is waited at the end for a queue whose bound is longer; MINUTES says otherwise.
WAIT_MAX_MS = 360_000

BOUNDS = {"seed": SEEDS, "workers": (2, 16), "rate_per_s": (1, 200), "wait_ms": (1_000, 3_600_000)}


@dataclass(frozen=True, slots=True)
class TargetSpec(SpecFile):
    """One run. `work_ms`: the shortest and the longest work of a handler; `promise`: see `promises.py`; `wait_ms`: how long
    what is left is waited for after the last heal."""

    id: str
    seed: int
    target: str
    promise: dict[str, Any]
    settings: dict[str, Any]
    packages: tuple[str, ...]
    wait_ms: int
    scenario: str = "target"
    workers: int = 4
    rate_per_s: int = 5
    work_ms: tuple[int, int] = (100, 600)
    slack_ms: int = SLACK_MS
    #: The command that runs the same plan again.
    again: str = ""
    plan: tuple[dict[str, Any], ...] = ()
    pace: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    git_commit: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    started_utc: str = ""

    def __post_init__(self) -> None:
        check_bounds(self, BOUNDS)

    @property
    def freeze_ms(self) -> int:
        """How long a frozen worker stands still: beyond the time after which others take its jobs, where there is one."""
        bound_ms = self.promise["recovery_bound_ms"]
        if bound_ms is None:
            return UNBOUNDED_FREEZE_MS[self.promise["delivery"]]
        return min(bound_ms + self.slack_ms, self.wait_ms)

    def derived(self) -> dict[str, Any]:
        return {"model": self.target}


def wait_ms(promise: Promise, minutes: int | None) -> int:
    """How long to wait at the end for what is left."""
    if minutes is not None:
        return minutes * 60_000
    bound_ms = promise.recovery_bound_ms
    return UNBOUNDED_WAIT_MS[promise.delivery] if bound_ms is None else min(bound_ms + SLACK_MS, WAIT_MAX_MS)


#: Kind of fault -> how often a plan has it.
TIMES = {"worker-kill": 5, "worker-freeze": 1, "net-down": 1, "net-request-lost": 1, "net-reply-lost": 1}

#: Those of the network hit one worker and the producer.
NETWORK = ("net-down", "net-request-lost", "net-reply-lost")

#: Instead of kinds of fault: none of them.
NONE = "none"

PACE = Pace(lead_in_ms=8_000, delay_max_ms=1_500, calm_ms=2_500, settle_ms=6_000)


def draw(seed: int, *, workers: int, kinds: Sequence[str] | None = None) -> Plan:
    """The plan of a seed; `kinds`: only these, or `none`. Raises HarnessError for a kind that does not exist."""
    wanted = tuple(TIMES) if kinds is None else () if tuple(kinds) == (NONE,) else tuple(kinds)
    for kind in wanted:
        if kind not in TIMES:
            raise HarnessError(f"fault {kind!r} does not exist; choose from {', '.join((*TIMES, NONE))}")
    randomness = random.Random(f"ironclaim targets {seed}")
    names = [name for name, times in TIMES.items() if name in wanted for _ in range(times)]
    randomness.shuffle(names)
    alive, started = list(worker_names(workers)), workers
    faults: list[PlannedFault] = []
    for number, name in enumerate(names, start=1):
        target, replacement = randomness.choice(alive), ""
        if name == "worker-kill":
            started += 1
            replacement = f"worker-{started}"
            alive[alive.index(target)] = replacement
        hit = f"{target},{PRODUCER}" if name in NETWORK else target
        faults.append(PlannedFault(f"{number}-{name}", name, hit, randomness.randint(0, PACE.delay_max_ms), replacement))
    return Plan(seed, PACE, tuple(faults))
