"""The catalogue: what is declared of each kind of fault, once. Pure facts, read by plans, specs, the command line and the docs.

How a kind is injected, witnessed and healed stands in a file of its own in `chaos/faults`, or in `chaos/channels/faults`.
An acknowledged write may be lost only in the windows that a kind declares here, and the judge holds what was lost against them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from chaos.topologies import AOF, CLUSTER, DURABILITIES, EMBEDDED, FOLLOWED, REPLICA, SENTINEL, TOPOLOGIES, meant

#: The load that a fault can meet: jobs on a queue of any model, jobs that producers send to apps over HTTP, or messages on
#: channels.
JOBS, HTTP, CHANNELS = "jobs", "http", "channels"

ALL = (JOBS, HTTP, CHANNELS)

#: What a fault hits: one process that works, the connections of processes, or the servers.
PROCESS, NETWORK, SERVERS = "process", "network", "servers"

#: Topologies in which each process has a proxy of its own. Where clients look for the primary themselves they share its proxies,
#: so none can be cut off alone.
PROXIED = tuple(name for name in TOPOLOGIES if name not in FOLLOWED)

#: Topologies with one server.
SINGLE = (EMBEDDED, AOF)

#: Topologies in which nobody takes a server for dead that does not answer for some seconds.
UNWATCHED = PROXIED

#: After a decision an old primary that lives may answer for so long, until its clients have heard of the new one.
HEARD_MS = 1_000

#: Replicas are never further behind than this in a drill that does not hold them back.
BEHIND_MS = 1_000

#: What came to be answered just before an instant may be written down a little later.
SLACK_MS = 250


@dataclass(frozen=True, slots=True)
class Loss:
    """What a kind of fault may lose under some durabilities: writes acknowledged from `before_ms` before its stage `since`, which
    is its inject or its snapshot, until `after_ms` after the stage `until`, which is its inject, its witness or its heal."""

    durabilities: tuple[str, ...]
    before_ms: int
    until: str
    after_ms: int
    text: str
    since: str = "inject"


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault. `attacks`: the guarantee of the engine that it attacks. `seconds`: from its inject until it is seen to
    have healed, about. `usual`: the loads whose plans hold it when they are neither short nor made to order.

    `during`: kinds that may be in force when this one comes. Neither of the two may hide what the other's witness looks at, or
    cause what the judge would blame the other for, as long as they hit different processes.
    """

    name: str
    hits: str
    attacks: str
    seconds: int
    topologies: tuple[str, ...] = TOPOLOGIES
    loads: tuple[str, ...] = (JOBS, CHANNELS)
    loss: Loss | None = None
    usual: tuple[str, ...] = ALL
    during: tuple[str, ...] = ()
    #: It acts inside of processes, which are started with the library of `chaos.preload`.
    preload: bool = False

    def losing(self, *loss: Any, since: str = "inject") -> FaultKind:
        """The same with what it may lose, as fields of `Loss`."""
        return replace(self, loss=Loss(*loss, since=since))


KINDS: dict[str, FaultKind] = {
    kind.name: kind
    for kind in (
        # While jobs of a killed worker wait for another one, which must take them in time, nothing else is in force that keeps
        # others from their work: limits whose places the dead worker holds would hold them up, too. Nor is anybody killed or
        # frozen while the producer is cut off, for a worker without jobs has nothing in hand.
        FaultKind(
            "worker-kill", PROCESS, "a job outlives the process that runs it", 12, loads=(JOBS, HTTP), during=("worker-freeze",)
        ),
        FaultKind(
            "worker-freeze",
            PROCESS,
            "a lease that was lost ends nothing any more",
            12,
            loads=(JOBS, HTTP),
            during=("net-latency",),
        ),
        FaultKind("net-latency", NETWORK, "leases are renewed in time", 5, PROXIED, ALL, during=("worker-freeze",)),
        FaultKind("net-request-lost", NETWORK, "what was not answered is sent again", 5, PROXIED, ALL, during=("worker-freeze",)),
        FaultKind(
            "net-reply-lost", NETWORK, "a call that is sent again takes effect once", 8, PROXIED, ALL, during=("worker-freeze",)
        ),
        FaultKind("net-down", NETWORK, "everybody connects again", 5, PROXIED, ALL, during=("worker-freeze",)),
        FaultKind("app-kill", PROCESS, "a request outlives the app that has it in hand", 5, (EMBEDDED,), (HTTP,)),
        FaultKind(
            "subscriber-kill", PROCESS, "a message stays until it is acknowledged", 4, loads=(CHANNELS,), during=("net-latency",)
        ),
        FaultKind("server-kill", SERVERS, "what was acknowledged is on the disk", 4, (AOF,), (JOBS,)).losing(
            ("everysec",),
            0,
            "witness",
            0,
            "what the server had not brought to the disk: about the last second, since its file was noted",
            since="snapshot",
        ),
        FaultKind("replica-lag", SERVERS, "the primary goes on without its replicas", 8, (REPLICA, *FOLLOWED)),
        FaultKind("primary-kill", SERVERS, "clients follow to the new primary", 15, FOLLOWED).losing(
            ("server",), BEHIND_MS, "inject", SLACK_MS, "what the promoted replica had not got from the primary yet"
        ),
        FaultKind("failover-clean", SERVERS, "a failover in order loses nothing", 10, FOLLOWED),
        FaultKind("failover-lossy", SERVERS, "a server that went back is noticed", 15, FOLLOWED).losing(
            ("server",),
            SLACK_MS,
            "witness",
            HEARD_MS,
            "what the primary answered while nothing reached its replicas, and until its clients were told of the new one",
        ),
        # A write that a replica has confirmed outlives every failover but this one: a primary that is only cut off from its
        # sentinels may still reach the replica that was not promoted, and gets its confirmation.
        FaultKind("primary-cut", SERVERS, "nobody writes to a primary that was replaced", 15, (SENTINEL,)).losing(
            ("server", "replica"),
            BEHIND_MS,
            "witness",
            HEARD_MS,
            "what the old primary answered until its clients were told of the new one",
        ),
        FaultKind("slot-move", SERVERS, "calls follow a slot while it moves", 6, (CLUSTER,)),
        FaultKind("server-restart", SERVERS, "a server that was away is found again", 4, (AOF,), usual=(CHANNELS,)),
        FaultKind(
            "snapshot-restore", SERVERS, "a server that went back is noticed, as is a clock", 15, (AOF,), usual=(CHANNELS,)
        ).losing(
            DURABILITIES[AOF], 0, "heal", 0, "what the server answered after the snapshot that was put back", since="snapshot"
        ),
        FaultKind("server-pause", SERVERS, "a stall is no end of leases", 6, UNWATCHED, usual=()),
        FaultKind("memory-full", SERVERS, "work ends where none can begin", 6, usual=()),
        FaultKind("script-busy", SERVERS, "what a busy server refused is sent again", 5, UNWATCHED, usual=()),
        FaultKind("scripts-flushed", SERVERS, "a script that the server forgot is sent again", 4, usual=()),
        FaultKind("clients-killed", SERVERS, "whoever was thrown out comes back", 5, usual=()),
        FaultKind("worker-cut", PROCESS, "a worker that connects again is not taken for lost", 7, loads=(JOBS,), usual=()),
        FaultKind(
            "server-clock-jump",
            SERVERS,
            "leases outlive a step of the server's clock",
            12,
            SINGLE,
            (JOBS,),
            usual=(),
            preload=True,
        ),
        FaultKind(
            "worker-clock-jump", PROCESS, "no decision is made by a worker's clock", 5, loads=(JOBS,), usual=(), preload=True
        ),
        FaultKind(
            "clock-wrap", SERVERS, "numbers that come to their end are in order, or refused", 20, SINGLE, (JOBS,), usual=()
        ),
        FaultKind("disk-slow", SERVERS, "a server that waits for its disk is only slow", 8, (AOF,), usual=(), preload=True),
        FaultKind(
            "dns-change", NETWORK, "a client resolves its server's name again", 6, PROXIED, (JOBS,), usual=(), preload=True
        ),
        FaultKind("lease-expired", PROCESS, "a worker that lost its lease too early ends nothing", 6, loads=(JOBS,), usual=()),
        FaultKind("worker-oom", PROCESS, "a job outlives the process that it makes too big", 14, loads=(JOBS,), usual=()),
    )
}

#: A failover without a fault that says so. It makes a run unknown, and nothing that it lost says anything about the engine.
UNPLANNED_FAILOVER = "unplanned-failover"
UNPLANNED_LOSS = Loss(
    ("server", "replica"), 10_000, "witness", HEARD_MS, "what a primary answered that was replaced without a fault that says so"
)


def fitting(topology: str, load: str = JOBS, *, hits: Iterable[str] = (PROCESS, NETWORK, SERVERS)) -> tuple[str, ...]:
    """The kinds of fault that belong to a topology and a load, in the order of the catalogue."""
    return tuple(kind.name for kind in KINDS.values() if topology in kind.topologies and load in kind.loads and kind.hits in hits)


def usual(topology: str, load: str = JOBS) -> tuple[str, ...]:
    """Those of them that a plan holds which is neither short nor made to order."""
    return tuple(name for name in fitting(topology, load) if load in KINDS[name].usual)


def declared_loss(topology: str, durability: str) -> tuple[dict[str, Any], ...]:
    """What may be lost, by kind of fault, as columns of the spec; `avoided_by`: the durability that loses nothing by it, if any.
    An empty durability is the first that the topology has."""
    named = meant(topology, durability)
    kinds = [kind for kind in KINDS.values() if topology in kind.topologies]
    losses = {kind.name: kind.loss for kind in kinds if kind.loss and named in kind.loss.durabilities}
    if topology in FOLLOWED:
        losses[UNPLANNED_FAILOVER] = UNPLANNED_LOSS
    return tuple(
        {
            "fault": fault,
            "since": one.since,
            "before_ms": one.before_ms,
            "until": one.until,
            "after_ms": one.after_ms,
            "text": one.text,
            "avoided_by": next((other for other in DURABILITIES[topology] if other not in one.durabilities), ""),
        }
        for fault, one in losses.items()
    )


#: How the producer of a drill of jobs sends: to the server itself, or over HTTP to apps that lead to it.
DIRECT = "direct"
FACES = (DIRECT, HTTP)


def load_of(face: str) -> str:
    """The load of a drill of jobs whose producer sends so."""
    return HTTP if face == HTTP else JOBS


#: The processes of `ironclaim serve` that are called over HTTP.
APPS = ("app-1", "app-2")
