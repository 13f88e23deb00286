"""The fault plan: a pure function of the seed. Order, victims and delays are drawn; everything else is fixed.

A plan starts with a quiet lead-in and ends healed and settled. A seed replays the plan, not the schedule of the kernel: the
instants inside a plan follow from conditions that the drill waits for.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from chaos import catalogue, topologies
from chaos.errors import HarnessError

#: Faults of the network: each hits the producers, and one worker or all of them, at once.
NETWORK_FAULT_NAMES = catalogue.fitting(topologies.EMBEDDED, hits=(catalogue.NETWORK,))

#: Other faults that cut processes off for a while.
CUTTING = ("snapshot-restore",)

#: Those that hit every worker and consumer. One slow worker among quick ones gets no work, so it would have no lease to renew;
#: and replies to claims are worth losing only while there is work to claim, which the others would have done by then.
FLEET_FAULT_NAMES = ("net-latency", "net-reply-lost")

#: Kinds of fault that a plan of one server in memory holds once each, in the order in which the draw starts.
FAULT_NAMES = tuple(name for name in catalogue.fitting(topologies.EMBEDDED) if catalogue.KINDS[name].usual)

#: Faults of a minute of a plan that is to last so many; those of servers come first.
FAULTS_A_MINUTE = 3

#: What faults of servers are said to hit.
SERVERS = "servers"

PRODUCER = "producer-1"


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the parts of a run last that no condition ends."""

    #: Load without a fault at the start, and the least of it.
    lead_in_ms: int = 12_000
    #: Each fault comes a drawn time of at most this after the phase before it.
    delay_max_ms: int = 2_000
    #: Load after a fault has healed, before the next one is due.
    calm_ms: int = 3_000
    #: Load after the last heal: every live worker gets work in it.
    settle_ms: int = 8_000


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault: `fault` is its id in the history, `target` the processes that it hits, joined by commas; `replacement` the
    worker that takes a dead one's place ("" = nobody)."""

    fault: str
    name: str
    target: str
    delay_ms: int
    replacement: str = ""

    @property
    def targets(self) -> tuple[str, ...]:
        """The processes that it hits, the worker first."""
        return tuple(self.target.split(","))

    @property
    def short_name(self) -> str:
        """`kill`, `net-down` and so on: the name of the phase in which the fault is in force."""
        return self.name.removeprefix("worker-")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does, in order: lead-in, each fault with its recovery, settle, drain."""

    seed: int
    pace: Pace
    faults: tuple[PlannedFault, ...]

    def needs_network(self) -> bool:
        """True when a fault of the network is planned: then every process has a proxy of its own."""
        return any(planned.name in (*NETWORK_FAULT_NAMES, *CUTTING) for planned in self.faults)

    def phases(self) -> tuple[str, ...]:
        """Names of the phases, in order; `end` marks the end of the last."""
        faults = [name for planned in self.faults for name in (planned.short_name, f"recover-{planned.short_name}")]
        return ("lead-in", *faults, "settle", "drain", "end")


def consumer_names(consumers: int) -> tuple[str, ...]:
    """The consumers that run inside Locust: consumer-1 and so on."""
    return tuple(f"consumer-{number}" for number in range(1, consumers + 1))


def worker_names(workers: int) -> tuple[str, ...]:
    """The workers that a run starts with: worker-1 and so on."""
    return tuple(f"worker-{number}" for number in range(1, workers + 1))


def draw(
    seed: int,
    *,
    workers: Sequence[str],
    consumers: Sequence[str] = (),
    pace: Pace | None = None,
    kinds: Sequence[str] | None = None,
    topology: str = "embedded",
    minutes: int | None = None,
) -> Plan:
    """The plan of a seed, with one fault of each of the usual kinds that belong to the topology; with `minutes`, of some of all
    that do.

    A victim is drawn from the workers that are alive when its turn comes, replacements included. `consumers` share only the
    faults that hit everybody. Raises HarnessError for a kind that does not exist.
    """
    pace = pace or Pace()
    randomness = random.Random(f"ironclaim plan {seed}")
    names = chosen(catalogue.fitting(topology), kinds, minutes)
    randomness.shuffle(names)
    if minutes is not None:
        names = shortened(names, FAULTS_A_MINUTE * minutes)
    alive = list(workers)
    started = len(alive)
    faults: list[PlannedFault] = []
    for number, name in enumerate(names, start=1):
        target = alive[randomness.randrange(len(alive))]
        replacement = ""
        if name == "worker-kill":
            started += 1
            replacement = f"worker-{started}"
            alive[alive.index(target)] = replacement
        if name in NETWORK_FAULT_NAMES:
            hit = [*alive, *consumers] if name in FLEET_FAULT_NAMES else [target]
            target = ",".join([*hit, PRODUCER])
        if catalogue.KINDS[name].hits == catalogue.SERVERS:
            target = SERVERS
        delay_ms = randomness.randint(0, pace.delay_max_ms)
        faults.append(PlannedFault(f"{number}-{name}", name, target, delay_ms, replacement))
    return Plan(seed, pace, tuple(faults))


def chosen(fitting: Sequence[str], kinds: Sequence[str] | None, minutes: int | None) -> list[str]:
    """The kinds of fault that a plan is drawn from: those that are wished for, all in a plan of so many minutes, else the usual
    ones. In one order, so that the plan of a seed does not depend on the order of the wishes. Raises HarnessError for a kind that
    does not fit."""
    for kind in kinds or ():
        if kind not in fitting:
            raise HarnessError(f"fault {kind!r} does not exist; choose from {', '.join(fitting)}")
    if kinds is not None:
        return [name for name in fitting if name in kinds]
    return [name for name in fitting if minutes is not None or catalogue.KINDS[name].usual]


def shortened(names: Sequence[str], most: int) -> list[str]:
    """At most so many of the names, in their order: two thirds of them faults of servers, where there are so many."""
    of_servers = [name for name in names if catalogue.KINDS[name].hits == catalogue.SERVERS]
    servers = of_servers[: most - most // 3]
    others = [name for name in names if name not in of_servers][: most - len(servers)]
    return [name for name in names if name in servers or name in others]
