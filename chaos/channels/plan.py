"""The plan of a run on channels: a pure function of the seed, as that of a run of jobs is.

The snapshot that is put back comes last: what it undoes must not be taken for what another fault has lost.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench.channels.workload import LOCUST_SHARE, PLAIN_SHARES
from chaos import topologies
from chaos.errors import HarnessError
from chaos.plan import FAULTS_A_MINUTE, NETWORK_FAULT_NAMES, OF_SERVERS, SERVERS, Pace, Plan, PlannedFault, shortened

RESTORE = "snapshot-restore"
RESTART = "server-restart"
KILL = "subscriber-kill"

#: Kinds of fault that a plan holds once each, in the order in which the draw starts.
FAULT_NAMES = (*NETWORK_FAULT_NAMES, KILL, RESTART, RESTORE)

#: What faults of the server are said to hit.
SERVER = "server"

PACE = Pace(lead_in_ms=8_000, delay_max_ms=1_000, calm_ms=3_000, settle_ms=6_000)


def publisher_names(publishers: int) -> tuple[str, ...]:
    """The processes that publish: publisher-1 and so on."""
    return tuple(f"publisher-{number}" for number in range(1, publishers + 1))


def fault_names(topology: str) -> tuple[str, ...]:
    """The kinds of fault that belong to a topology."""
    if topology == topologies.AOF:
        return FAULT_NAMES
    network = () if topology in topologies.FOLLOWED else NETWORK_FAULT_NAMES
    return (*network, KILL, *topologies.fitting(topology))


def draw(
    seed: int,
    *,
    publishers: Sequence[str],
    pace: Pace = PACE,
    kinds: Sequence[str] | None = None,
    topology: str = topologies.AOF,
    minutes: int | None = None,
) -> Plan:
    """The plan of a seed, with one fault of each of the kinds that belong to the topology; with `minutes`, of some of them.

    A fault of the network hits one publisher and the subscribers of one process, so that the others go on and something comes
    for the former to miss; the slow network and the one that is down hit all subscribers. Raises HarnessError for a kind that
    does not exist.
    """
    fitting = fault_names(topology)
    for kind in kinds or ():
        if kind not in fitting:
            raise HarnessError(f"fault {kind!r} does not exist; choose from {', '.join(fitting)}")
    kinds = fitting if kinds is None else kinds
    randomness = random.Random(f"ironclaim channels plan {seed}")
    names = [name for name in fitting if name in kinds and name != RESTORE]
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
        elif name in OF_SERVERS:
            target = SERVERS
        elif name in (RESTART, RESTORE):
            target = SERVER
        else:
            everybody = name in ("net-latency", "net-down")
            target = ",".join([*((*alive, LOCUST_SHARE) if everybody else (target,)), publisher])
        faults.append(PlannedFault(f"{number}-{name}", name, target, randomness.randint(0, pace.delay_max_ms), replacement))
    return Plan(seed, pace, tuple(faults))
