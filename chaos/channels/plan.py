"""The plan of a run on channels: a pure function of the seed, as that of a run of jobs is.

The snapshot that is put back comes last: what it undoes must not be taken for what another fault has lost.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench.channels.workload import LOCUST_SHARE, PLAIN_SHARES
from chaos import catalogue, topologies
from chaos.plan import SERVERS, Pace, Plan, PlannedFault, leaves_one_out, sequence

RESTORE = "snapshot-restore"
KILL = "subscriber-kill"


#: Kinds of fault that a plan of one server with a file holds once each, in the order in which the draw starts.
FAULT_NAMES = catalogue.usual(topologies.AOF, catalogue.CHANNELS)

PACE = Pace(lead_in_ms=8_000, delay_max_ms=1_000, calm_ms=3_000, settle_ms=6_000)


def publisher_names(publishers: int) -> tuple[str, ...]:
    """The processes that publish: publisher-1 and so on."""
    return tuple(f"publisher-{number}" for number in range(1, publishers + 1))


def draw(
    seed: int,
    *,
    publishers: Sequence[str],
    pace: Pace = PACE,
    kinds: Sequence[str] | None = None,
    topology: str = topologies.AOF,
    minutes: int | None = None,
) -> Plan:
    """The plan of a seed, with one fault of each of the usual kinds that belong to the topology; with `minutes`, see
    `chaos.plan.sequence`.

    A fault of the network hits one publisher and the subscribers of one process, so that the others go on and something comes
    for the former to miss; the slow network and the one that is down hit all subscribers. Raises HarnessError for a kind that
    does not exist.
    """
    randomness = random.Random(f"ironclaim channels plan {seed}")
    names, around = sequence(topology, catalogue.CHANNELS, kinds, minutes, randomness, last=(RESTORE,))
    alive = list[str](PLAIN_SHARES)
    started = len(alive)
    faults: list[PlannedFault] = []
    hit: list[str] = []
    for at, name in enumerate(names):
        free = [one for one in alive if not around[at] or one not in hit]
        target, replacement = free[randomness.randrange(len(free))], ""
        publisher = publishers[randomness.randrange(len(publishers))]
        hit = [target]
        if name == KILL:
            started += 1
            replacement = f"subscriber-{started}"
            alive[alive.index(target)] = replacement
        elif catalogue.KINDS[name].hits == catalogue.SERVERS:
            hit = [SERVERS]
        else:
            if name in ("net-latency", "net-down"):
                # A process that is to be hit meanwhile is left out.
                spared = target if leaves_one_out(names, around, at) else ""
                hit = [*(one for one in alive if one != spared), LOCUST_SHARE]
            hit = [*hit, publisher]
        delay_ms = randomness.randint(0, pace.delay_max_ms)
        during = faults[-1].fault if around[at] else ""
        faults.append(PlannedFault(f"{at + 1}-{name}", name, ",".join(hit), delay_ms, replacement, during))
    return Plan(seed, pace, tuple(faults))
