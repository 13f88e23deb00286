"""The topologies by name, and which durability each can have. Pure facts; they go into the spec before a run begins. Which faults
belong to a topology, and what may be lost by them: `chaos.catalogue`."""

from __future__ import annotations

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


def meant(topology: str, durability: str) -> str:
    """The durability of a topology; the first that it has where none is named."""
    return durability or DURABILITIES[topology][0]


def label(topology: str, durability: str) -> str:
    """What the name of a run says of its servers; empty for one server in memory, which most have. Raises as `check`."""
    check(topology, durability)
    return "" if topology == EMBEDDED else f"{topology}-{meant(topology, durability)}"


def check(topology: str, durability: str) -> None:
    """Raise HarnessError for a topology that does not exist, or a durability that it has not; empty is its first."""
    if topology not in TOPOLOGIES:
        raise HarnessError(f"topology {topology!r} does not exist; choose from {', '.join(TOPOLOGIES)}")
    if durability and durability not in DURABILITIES[topology]:
        raise HarnessError(f"durability {durability!r}: the topology {topology} has {' or '.join(DURABILITIES[topology])}")
