"""The fault plan: a pure function of the seed. Kinds, order, victims, delays and overlaps are drawn; everything else is fixed.

A plan that is to last some minutes holds no fault at all in one of four draws (a control), else faults of some of the kinds that
fit, and a fault may come while another one is in force. Each other plan holds one fault of each usual kind, one after the other.

A plan starts with a quiet lead-in and ends healed and settled. A seed replays the plan, not the schedule of the kernel: the
instants inside a plan follow from conditions that the drill waits for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, repeat

from chaos import catalogue, topologies
from chaos.catalogue import APPS
from chaos.errors import HarnessError

#: Faults of the network: each hits the producers, and one worker or all of them, at once.
NETWORK_FAULT_NAMES = catalogue.fitting(topologies.EMBEDDED, hits=(catalogue.NETWORK,))

#: Other faults that cut processes off for a while.
CUTTING = ("snapshot-restore",)

#: Those that hit every worker and consumer. One slow worker among quick ones gets no work, so it would have no lease to renew;
#: and replies to claims are worth losing only while there is work to claim, which the others would have done by then.
FLEET_FAULT_NAMES = ("net-latency", "net-reply-lost")

#: Kinds of fault that a plan of one server in memory holds once each, in the order in which the draw starts.
FAULT_NAMES = catalogue.usual(topologies.EMBEDDED)

#: Faults of a minute of a plan that is to last so many; those of servers come first.
FAULTS_A_MINUTE = 3

#: One of so many plans that are to last some minutes has no fault: it shows what the load and the judge make of none.
CONTROL_EVERY = 4

#: In one of so many of the others faults come while another one is in force, as often as they may.
CROWDED_EVERY = 2

#: Faults that a worker does not survive: another one takes its place.
KILL = "worker-kill"
KILLING = (KILL, "worker-oom")

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
    worker that takes a dead one's place ("" = nobody); `during`: the id of the fault that is in force when it comes, and stays
    until this one has healed ("" = none). `number`: which of the kills it is that a plan of each usual kind once has more than
    one of."""

    fault: str
    name: str
    target: str
    delay_ms: int
    replacement: str = ""
    during: str = ""
    number: int = 1

    @property
    def targets(self) -> tuple[str, ...]:
        """The processes that it hits, the worker first."""
        return tuple(self.target.split(","))

    @property
    def phase(self) -> str:
        """`kill`, `kill-2`, `net-down`, `kill-in-freeze` and so on: the name of the phase in which the fault is in force."""
        around = self.during.partition("-")[2].removeprefix("worker-")
        name = self.name.removeprefix("worker-") + (f"-{self.number}" if self.number > 1 else "")
        return name + (f"-in-{around}" if around else "")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does, in order: lead-in, each fault with its recovery, settle, drain."""

    seed: int
    pace: Pace
    faults: tuple[PlannedFault, ...]

    def needs_network(self) -> bool:
        """True when a fault of the network is planned: then every process has a proxy of its own."""
        return any(planned.name in (*NETWORK_FAULT_NAMES, *CUTTING) for planned in self.faults)

    def replacements(self) -> tuple[str, ...]:
        """The workers that take the place of those that do not survive."""
        return tuple(planned.replacement for planned in self.faults if planned.replacement)

    def inside(self, fault: str) -> tuple[PlannedFault, ...]:
        """The faults that come while the one of this id is in force; of "", those that come by themselves."""
        return tuple(planned for planned in self.faults if planned.during == fault)

    def phases(self) -> tuple[str, ...]:
        """Names of the phases, in order; `end` marks the end of the last."""
        return ("lead-in", *self._phases_inside(""), "settle", "drain", "end")

    def _phases_inside(self, fault: str) -> list[str]:
        return [
            name
            for planned in self.inside(fault)
            for name in (planned.phase, *self._phases_inside(planned.fault), f"recover-{planned.phase}")
        ]


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
    load: str = catalogue.JOBS,
    direct: Sequence[str] = (),
) -> Plan:
    """The plan of a seed, with one fault of each of the usual kinds that belong to the topology; with `minutes`, see `sequence`.

    A victim is drawn from the workers that are alive when its turn comes, replacements included, and that no fault has hit which
    is in force. `consumers` share only the faults that hit everybody. `load`: jobs, sent directly or over HTTP. `direct`: workers
    that no fault of the network can reach. Each is killed, before all other faults, which then hit everybody. Raises HarnessError
    for a kind that does not exist.
    """
    pace = pace or Pace()
    randomness = random.Random(f"ironclaim plan {seed}")
    names, around = sequence(topology, load, kinds, minutes, randomness)
    names, around = [*(KILL for _ in direct), *names], [*(False for _ in direct), *around]
    legs = producers_legs(load, randomness)
    alive = list(workers)
    started = len(alive)
    faults: list[PlannedFault] = []
    hit: list[str] = []
    for at, name in enumerate(names):
        free = [worker for worker in alive if not around[at] or worker not in hit]
        target = direct[at] if at < len(direct) else free[randomness.randrange(len(free))]
        hit, replacement = [target], ""
        if name in KILLING:
            started += 1
            replacement = f"worker-{started}"
            alive[alive.index(target)] = replacement
        if name in FLEET_FAULT_NAMES:
            # A process that is to be hit meanwhile is left out.
            spared = target if leaves_one_out(names, around, at) else ""
            hit = [*(worker for worker in free if worker != spared), *consumers]
        if name in NETWORK_FAULT_NAMES:
            # What the engine of an app sends again the producer does not see, and it is to see a reply lost.
            hit = [*hit, *((PRODUCER,) if name == "net-reply-lost" else next(legs))]
        if name == "app-kill":
            hit = [APPS[randomness.randrange(len(APPS))]]
        if catalogue.KINDS[name].hits == catalogue.SERVERS:
            hit = [SERVERS]
        delay_ms = randomness.randint(0, pace.delay_max_ms)
        during = faults[-1].fault if around[at] else ""
        number = names[: at + 1].count(KILL) if direct and name == KILL else 1
        faults.append(PlannedFault(f"{at + 1}-{name}", name, ",".join(hit), delay_ms, replacement, during, number))
        # What takes the place of a dead worker starts when the fault heals.
        hit = [*hit, replacement]
    return Plan(seed, pace, tuple(faults))


def producers_legs(load: str, randomness: random.Random) -> Iterator[tuple[str, ...]]:
    """Whose connections faults of the network hit on the producer's way to the server, one after the other. Over HTTP the way has
    two legs, from the producer to the apps and from the apps to the server, and they take turns; which one begins is drawn."""
    if load != catalogue.HTTP:
        return repeat((PRODUCER,))
    legs = [(PRODUCER,), APPS]
    randomness.shuffle(legs)
    return cycle(legs)


def sequence(
    topology: str,
    load: str,
    kinds: Sequence[str] | None,
    minutes: int | None,
    randomness: random.Random,
    last: Sequence[str] = (),
) -> tuple[list[str], list[bool]]:
    """The kinds of a plan's faults, in their order, and for each whether it comes while the one before is in force; those of
    `last` come at the end.

    Without `minutes` one fault of each kind that is wished for, or else of each usual one, one after the other. With `minutes`
    each kind that is wished for; or else, in one of `CONTROL_EVERY` draws, none, and in the others some of those that fit. Then
    faults of processes and of the network come again until there are so many a minute.
    """
    names = chosen(topology, load, kinds, minutes)
    ending = [name for name in names if name in last]
    names = [name for name in names if name not in last]
    randomness.shuffle(names)
    if minutes is None:
        return names + ending, [False] * len(names + ending)
    crowds = not randomness.randrange(CROWDED_EVERY)
    if kinds is None:
        if not randomness.randrange(CONTROL_EVERY):
            return [], []
        ending = [name for name in ending if randomness.randrange(2)]
        most = min(FAULTS_A_MINUTE * minutes - len(ending), len(names))
        pairs = [(outer, name) for name in names for outer in catalogue.KINDS[name].during if outer in names]
        names = shortened(names, randomness.randint(-(-most // 2), most))
        if crowds and pairs:
            # So few of many kinds would hardly ever be two that may share their time.
            pair = randomness.choice(pairs)
            rest = sorted(
                (name for name in names if name not in pair), key=lambda name: catalogue.KINDS[name].hits != catalogue.SERVERS
            )
            names = [*pair, *rest][:most]
    again = [name for name in names if catalogue.KINDS[name].hits != catalogue.SERVERS]
    while again and (left := FAULTS_A_MINUTE * minutes - len(names) - len(ending)) > 0:
        names += randomness.sample(again, min(left, len(again)))
    if not crowds:
        return names + ending, [False] * len(names + ending)
    names, around = crowded(names)
    return names + ending, around + [False] * len(ending)


def crowded(names: Sequence[str]) -> tuple[list[str], list[bool]]:
    """The names in another order, and for each whether it comes while the one before is in force: behind each comes the next of
    those that may, and the others keep their turn."""
    left, ordered, around = list(names), list[str](), list[bool]()
    while left:
        ordered.append(left.pop(0))
        around.append(False)
        if inner := next((name for name in left if ordered[-1] in catalogue.KINDS[name].during), None):
            left.remove(inner)
            ordered.append(inner)
            around.append(True)
    return ordered, around


def leaves_one_out(names: Sequence[str], around: Sequence[bool], at: int) -> bool:
    """True for a fault in whose force another one comes that hits a process."""
    return at + 1 < len(names) and around[at + 1] and catalogue.KINDS[names[at + 1]].hits == catalogue.PROCESS


def chosen(topology: str, load: str, kinds: Sequence[str] | None, minutes: int | None) -> list[str]:
    """The kinds of fault that a plan is drawn from: those that are wished for, all in a plan of so many minutes, else the usual
    ones. In one order, so that the plan of a seed does not depend on the order of the wishes. Raises HarnessError for a kind that
    does not fit."""
    fitting = catalogue.fitting(topology, load)
    for kind in kinds or ():
        if kind not in fitting:
            raise HarnessError(f"fault {kind!r} does not exist; choose from {', '.join(fitting)}")
    if kinds is not None:
        return [name for name in fitting if name in kinds]
    return list(catalogue.usual(topology, load) if minutes is None else fitting)


def shortened(names: Sequence[str], most: int) -> list[str]:
    """At most so many of the names, in their order: two thirds of them faults of servers, where there are so many."""
    of_servers = [name for name in names if catalogue.KINDS[name].hits == catalogue.SERVERS]
    servers = of_servers[: most - most // 3]
    others = [name for name in names if name not in of_servers][: most - len(servers)]
    return [name for name in names if name in servers or name in others]
