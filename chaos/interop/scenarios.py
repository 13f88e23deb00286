"""The runs with the original Bull: who sends, who works, who is killed, and what Bull is known not to protect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chaos.errors import HarnessError
from chaos.interop.load import Mix
from chaos.plan import Pace, Plan, PlannedFault

#: How the names of processes begin that run the original client.
NODE = "node-"

#: For how long Bull locks a job; leases of the engine are as long in these runs, so that one bound holds for both.
LEASE_MS = 5_000

#: How often the engine's workers look for leases that have run out. Two looks, a second apart, precede the return of a job that
#: a Node worker has left behind.
SWEEP_MS = 200

#: By when a delayed job has started, in 99 of 100 cases, where workers are idle.
DELAYED_P99_MS = 100


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run. Names of producers and workers that begin with `node-` run the original client, the others the engine."""

    name: str
    about: str
    producers: tuple[str, ...]
    workers: tuple[str, ...]
    concurrency: dict[str, int]
    mix: Mix
    pace: Pace
    faults: tuple[PlannedFault, ...] = ()
    findings: tuple[dict[str, Any], ...] = ()
    #: Bound of the lateness of delayed jobs at p99; 0 = none is demanded.
    delayed_p99_ms: int = 0

    def plan(self, seed: int) -> Plan:
        return Plan(seed, self.pace, self.faults)


ONE_WAY = Mix(rate_per_s=60)
CALM = Pace(lead_in_ms=0, delay_max_ms=0, calm_ms=0, settle_ms=6_000)

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "node-to-node",
        "Bull sends, Bull works: what the adapter and the judge make of it",
        producers=("node-producer-1",),
        workers=("node-worker-1", "node-worker-2"),
        concurrency={NODE: 4},
        mix=ONE_WAY,
        pace=CALM,
        delayed_p99_ms=DELAYED_P99_MS,
    ),
)


def find(name: str) -> Scenario:
    """The scenario of that name. Raises HarnessError naming those that exist."""
    for scenario in SCENARIOS:
        if scenario.name == name:
            return scenario
    raise HarnessError(f"scenario {name!r} does not exist; choose from {', '.join(one.name for one in SCENARIOS)}")
