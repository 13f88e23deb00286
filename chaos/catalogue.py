"""The catalogue: what is declared of each kind of fault, once. Pure facts, read by plans, specs, the command line and the docs.

How a kind is injected, witnessed and healed stands in a file of its own in `chaos/faults`, or in `chaos/channels/faults`.
An acknowledged write may be lost only in the windows that a kind declares here, and the judge holds what was lost against them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from chaos.topologies import AOF, CLUSTER, DURABILITIES, EMBEDDED, FOLLOWED, REPLICA, SENTINEL, TOPOLOGIES

#: The load that a fault can meet: jobs on a queue of any model, or messages on channels.
JOBS, CHANNELS = "jobs", "channels"

#: What a fault hits: one process that works, the connections of processes, or the servers.
PROCESS, NETWORK, SERVERS = "process", "network", "servers"

#: Topologies in which each process has a proxy of its own. Where clients look for the primary themselves they share its proxies,
#: so none can be cut off alone.
PROXIED = tuple(name for name in TOPOLOGIES if name not in FOLLOWED)

#: After a decision an old primary that lives may answer for so long, until its clients have heard of the new one.
HEARD_MS = 1_000

#: Replicas are never further behind than this in a drill that does not hold them back.
BEHIND_MS = 1_000

#: What came to be answered just before an instant may be written down a little later.
SLACK_MS = 250


@dataclass(frozen=True, slots=True)
class Loss:
    """What a kind of fault may lose under some durabilities: writes acknowledged from `before_ms` before its inject until
    `after_ms` after the stage `until`, which is its inject or its witness."""

    durabilities: tuple[str, ...]
    before_ms: int
    until: str
    after_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault. `attacks`: the guarantee of the engine that it attacks. `seconds`: from its inject until it is seen to
    have healed, about. `usual`: a plan that is neither short nor made to order holds it."""

    name: str
    hits: str
    attacks: str
    seconds: int
    topologies: tuple[str, ...] = TOPOLOGIES
    loads: tuple[str, ...] = (JOBS, CHANNELS)
    loss: Loss | None = None
    usual: bool = True
    #: It acts inside of processes, which are started with the library of `chaos.preload`.
    preload: bool = False


#: Topologies with one server.
SINGLE = (EMBEDDED, AOF)


KINDS: dict[str, FaultKind] = {
    kind.name: kind
    for kind in (
        FaultKind("worker-kill", PROCESS, "a job outlives the process that runs it", 12, loads=(JOBS,)),
        FaultKind("worker-freeze", PROCESS, "a lease that was lost ends nothing any more", 12, loads=(JOBS,)),
        FaultKind("net-latency", NETWORK, "leases are renewed in time", 5, PROXIED),
        FaultKind("net-request-lost", NETWORK, "what was not answered is sent again", 5, PROXIED),
        FaultKind("net-reply-lost", NETWORK, "a call that is sent again takes effect once", 8, PROXIED),
        FaultKind("net-down", NETWORK, "everybody connects again", 5, PROXIED),
        FaultKind("subscriber-kill", PROCESS, "a message stays until it is acknowledged", 4, loads=(CHANNELS,)),
        FaultKind(
            "server-kill",
            SERVERS,
            "what was acknowledged is on the disk",
            4,
            (AOF,),
            (JOBS,),
            loss=Loss(
                ("everysec",), 1_000, "inject", SLACK_MS, "what the server had not brought to the disk: at most the last second"
            ),
        ),
        FaultKind("replica-lag", SERVERS, "the primary goes on without its replicas", 8, (REPLICA, *FOLLOWED)),
        FaultKind(
            "primary-kill",
            SERVERS,
            "clients follow to the new primary",
            15,
            FOLLOWED,
            loss=Loss(("server",), BEHIND_MS, "inject", SLACK_MS, "what the promoted replica had not got from the primary yet"),
        ),
        FaultKind("failover-clean", SERVERS, "a failover in order loses nothing", 10, FOLLOWED),
        FaultKind(
            "failover-lossy",
            SERVERS,
            "a server that went back is noticed",
            15,
            FOLLOWED,
            loss=Loss(
                ("server",),
                SLACK_MS,
                "witness",
                HEARD_MS,
                "what the primary answered while nothing reached its replicas, and until its clients heard of the new one",
            ),
        ),
        # A write that a replica has confirmed outlives every failover but this one: a primary that is only cut off from its
        # sentinels may still reach the replica that was not promoted, and gets its confirmation.
        FaultKind(
            "primary-cut",
            SERVERS,
            "nobody writes to a primary that was replaced",
            15,
            (SENTINEL,),
            loss=Loss(
                ("server", "replica"),
                BEHIND_MS,
                "witness",
                HEARD_MS,
                "what the old primary answered until its clients heard of the new one",
            ),
        ),
        FaultKind("slot-move", SERVERS, "calls follow a slot while it moves", 6, (CLUSTER,)),
        FaultKind(
            "server-clock-jump",
            SERVERS,
            "leases outlive a step of the server's clock",
            12,
            SINGLE,
            (JOBS,),
            usual=False,
            preload=True,
        ),
        FaultKind(
            "worker-clock-jump", PROCESS, "no decision is made by a worker's clock", 5, loads=(JOBS,), usual=False, preload=True
        ),
        FaultKind(
            "clock-wrap", SERVERS, "numbers that come to their end are in order, or refused", 20, SINGLE, (JOBS,), usual=False
        ),
        FaultKind("disk-slow", SERVERS, "a server that waits for its disk is only slow", 8, (AOF,), usual=False, preload=True),
        FaultKind(
            "dns-change", NETWORK, "a client resolves its server's name again", 6, PROXIED, (JOBS,), usual=False, preload=True
        ),
        FaultKind("lease-expired", PROCESS, "a worker that lost its lease too early ends nothing", 6, loads=(JOBS,), usual=False),
        FaultKind("worker-oom", PROCESS, "a job outlives the process that it makes too big", 14, loads=(JOBS,), usual=False),
        FaultKind("server-restart", SERVERS, "clients come back to a server that was away", 4, (AOF,), (CHANNELS,)),
        FaultKind("snapshot-restore", SERVERS, "a clock that went back is noticed", 15, (AOF,), (CHANNELS,)),
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


def declared_loss(topology: str, durability: str) -> tuple[dict[str, Any], ...]:
    """What may be lost, by kind of fault, as columns of the spec. An empty durability is the first that the topology has."""
    meant = durability or DURABILITIES[topology][0]
    kinds = [kind for kind in KINDS.values() if topology in kind.topologies]
    losses = {kind.name: kind.loss for kind in kinds if kind.loss and meant in kind.loss.durabilities}
    if topology in FOLLOWED:
        losses[UNPLANNED_FAILOVER] = UNPLANNED_LOSS
    return tuple(
        {"fault": fault, "before_ms": one.before_ms, "until": one.until, "after_ms": one.after_ms, "text": one.text}
        for fault, one in losses.items()
    )
