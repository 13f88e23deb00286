"""The plan of a run on channels: a pure function of the seed, as that of a run of jobs is.

The snapshot that is put back comes last: what it undoes must not be taken for what another fault has lost.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench.channels.workload import LOCUST_SHARE, PLAIN_SHARES
from chaos import catalogue, topologies
from chaos.plan import FAULTS_A_MINUTE, SERVERS, Pace, Plan, PlannedFault, chosen, shortened

RESTORE = "snapshot-restore"
KILL = "subscriber-kill"


def usual(topology: str) -> tuple[str, ...]:
    """The kinds of fault that a plan which is neither short nor made to order holds on a topology."""
    kinds = ((name, catalogue.KINDS[name]) for name in catalogue.fitting(topology, catalogue.CHANNELS))
    return tuple(name for name, kind in kinds if kind.usual or kind.usual_of_channels)


#: Kinds of fault that a plan of one server with a file holds once each, in the order in which the draw starts.
FAULT_NAMES = usual(topologies.AOF)

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
    """The plan of a seed, with one fault of each of the usual kinds that belong to the topology; with `minutes`, of some of all
    that do.

    A fault of the network hits one publisher and the subscribers of one process, so that the others go on and something comes
    for the former to miss; the slow network and the one that is down hit all subscribers. Raises HarnessError for a kind that
    does not exist.
    """
    wished = usual(topology) if kinds is None and minutes is None else kinds
    kinds = chosen(catalogue.fitting(topology, catalogue.CHANNELS), wished, minutes)
    randomness = random.Random(f"ironclaim channels plan {seed}")
    names = [name for name in kinds if name != RESTORE]
    randomness.shuffle(names)
    if minutes is not None:
        names = shortened(names, FAULTS_A_MINUTE * minutes)
    names += [RESTORE] if RESTORE in kinds else []
    alive = list[str](PLAIN_SHARES)
    started = len(alive)
    faults: list[PlannedFault] = []
    for number, name in enumerate(names, start=1):
        target, replacement = alive[randomness.randrange(len(alive))], ""
        publisher = publishers[randomness.randrange(len(publishers))]
        if name == KILL:
            started += 1
            replacement = f"subscriber-{started}"
            alive[alive.index(target)] = replacement
        elif catalogue.KINDS[name].hits == catalogue.SERVERS:
            target = SERVERS
        else:
            everybody = name in ("net-latency", "net-down")
            target = ",".join([*((*alive, LOCUST_SHARE) if everybody else (target,)), publisher])
        faults.append(PlannedFault(f"{number}-{name}", name, target, randomness.randint(0, pace.delay_max_ms), replacement))
    return Plan(seed, pace, tuple(faults))
