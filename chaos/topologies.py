"""The topologies by name: which durability each can have, which faults of servers belong to it, and which acknowledged writes it
may lose. Pure facts; they go into the spec before a run begins.

An acknowledged write may be lost only in the windows that are declared here, and the judge holds what was lost against them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chaos.errors import HarnessError

EMBEDDED, AOF, REPLICA, SENTINEL, CLUSTER = "embedded", "aof", "replica", "sentinel", "cluster"
TOPOLOGIES = (EMBEDDED, AOF, REPLICA, SENTINEL, CLUSTER)

#: Those in which a primary can be replaced: clients find it by asking, so no process has a proxy of its own.
FOLLOWED = (SENTINEL, CLUSTER)

#: Those with several servers, each behind a proxy of its own.
SEVERAL = (REPLICA, *FOLLOWED)

#: What an answer means. Of one server with a file: on the disk when it comes, or within a second. Of several: the primary has it,
#: or a replica too.
DURABILITIES: dict[str, tuple[str, ...]] = {
    EMBEDDED: ("server",),
    AOF: ("always", "everysec"),
    REPLICA: ("server", "replica"),
    SENTINEL: ("server", "replica"),
    CLUSTER: ("server", "replica"),
}

#: Fault of servers -> the topologies that it belongs to.
FAULTS: dict[str, tuple[str, ...]] = {
    "server-kill": (AOF,),
    "replica-lag": (REPLICA, SENTINEL, CLUSTER),
    "primary-kill": FOLLOWED,
    "failover-clean": FOLLOWED,
    "failover-lossy": FOLLOWED,
    "primary-cut": (SENTINEL,),
    "slot-move": (CLUSTER,),
}

#: After a decision an old primary that lives may answer for so long, until its clients have heard of the new one.
HEARD_MS = 1_000

#: Replicas are never further behind than this in a drill that does not hold them back.
BEHIND_MS = 1_000

#: What came to be answered just before an instant may be written down a little later.
SLACK_MS = 250


@dataclass(frozen=True, slots=True)
class Loss:
    """What a kind of fault may lose: writes acknowledged from `before_ms` before its inject until `after_ms` after the stage
    `until`, which is its inject or its witness."""

    fault: str
    before_ms: int
    until: str
    after_ms: int
    text: str


EVERYSEC = Loss("server-kill", 1_000, "inject", SLACK_MS, "what the server had not brought to the disk: at most the last second")
KILLED = Loss("primary-kill", BEHIND_MS, "inject", SLACK_MS, "what the promoted replica had not got from the primary yet")
LOSSY = Loss(
    "failover-lossy",
    SLACK_MS,
    "witness",
    HEARD_MS,
    "what the primary answered while nothing reached its replicas, and until its clients heard of the new one",
)
CUT = Loss("primary-cut", BEHIND_MS, "witness", HEARD_MS, "what the old primary answered until its clients heard of the new one")

UNPLANNED = Loss(
    "unplanned-failover", 10_000, "witness", HEARD_MS, "what a primary answered that was replaced without a fault that says so"
)


def check(topology: str, durability: str) -> None:
    """Raise HarnessError for a topology that does not exist, or a durability that it has not; empty is its first."""
    if topology not in TOPOLOGIES:
        raise HarnessError(f"topology {topology!r} does not exist; choose from {', '.join(TOPOLOGIES)}")
    if durability and durability not in DURABILITIES[topology]:
        raise HarnessError(f"durability {durability!r}: the topology {topology} has {' or '.join(DURABILITIES[topology])}")


def fitting(topology: str) -> tuple[str, ...]:
    """The faults of servers that belong to a topology."""
    return tuple(name for name, places in FAULTS.items() if topology in places)


def losses(topology: str, durability: str) -> tuple[Loss, ...]:
    """What may be lost, by kind of fault. A write that a replica has confirmed outlives every failover but one: a primary that is
    only cut off from its sentinels may still reach the replica that was not promoted, and gets its confirmation."""
    if topology == AOF:
        return (EVERYSEC,) if durability == "everysec" else ()
    if topology not in FOLLOWED:
        return ()
    found = (CUT,) if durability == "replica" else (KILLED, LOSSY, CUT)
    # One that nobody planned makes a run unknown, and nothing that it lost says anything about the engine.
    return (*(loss for loss in found if topology in FAULTS[loss.fault]), UNPLANNED)


def declared_loss(topology: str, durability: str) -> tuple[dict[str, Any], ...]:
    """The same as columns of the spec."""
    return tuple(
        {"fault": one.fault, "before_ms": one.before_ms, "until": one.until, "after_ms": one.after_ms, "text": one.text}
        for one in losses(topology, durability)
    )
