"""Faults of a run on channels: those of the network as in any run, with other proof that they bit, and those of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.catalogue import KINDS, SERVERS
from chaos.channels.faults.network import ChannelLatency, ChannelReplyLost
from chaos.channels.faults.snapshot_restore import ClocksRestore
from chaos.channels.faults.subscriber_kill import SubscriberKill
from chaos.faults import FAULTS as OF_JOBS
from chaos.faults.base import Fault
from chaos.faults.network import NetDown, NetRequestLost
from chaos.plan import PlannedFault

#: Kind of fault in a plan -> how to make it.
FAULTS: dict[str, Callable[[Any, PlannedFault], Fault]] = {
    "net-latency": ChannelLatency,
    "net-request-lost": NetRequestLost,
    "net-reply-lost": ChannelReplyLost,
    "net-down": NetDown,
    "subscriber-kill": SubscriberKill,
    **{kind.name: OF_JOBS[kind.name] for kind in KINDS.values() if kind.hits == SERVERS and kind.name in OF_JOBS},
    "snapshot-restore": ClocksRestore,
}
