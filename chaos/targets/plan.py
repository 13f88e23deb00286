"""The faults of a drill of a job queue, drawn from the seed: kills enough for numbers, and one of each other kind."""

from __future__ import annotations

import random
from collections.abc import Sequence

from chaos.errors import HarnessError
from chaos.plan import PRODUCER, Pace, Plan, PlannedFault, worker_names

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
