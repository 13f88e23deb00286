"""Faults, one file each. Every fault is inject, witness, heal, witness-healed (see `base`)."""

from __future__ import annotations

from collections.abc import Callable

from chaos.faults.base import Fault, Scene
from chaos.faults.clocks import ClockWrap, ServerClockJump, WorkerClockJump
from chaos.faults.commands import ClientsKilled, MemoryFull, ScriptBusy, ScriptsFlushed
from chaos.faults.disks import DiskSlow
from chaos.faults.dns_change import DnsChange
from chaos.faults.failover import FailoverClean, FailoverLossy, PrimaryCut, PrimaryKill
from chaos.faults.kills import AppKill, WorkerKill, WorkerOom
from chaos.faults.leases import LeaseExpired, WorkerCut, WorkerFreeze
from chaos.faults.network import NetDown, NetLatency, NetReplyLost, NetRequestLost
from chaos.faults.replica_lag import ReplicaLag
from chaos.faults.server import ServerKill, ServerPause, ServerRestart
from chaos.faults.slot_move import SlotMoving
from chaos.faults.snapshot_restore import SnapshotRestore
from chaos.plan import PlannedFault

#: Kind of fault in a plan -> how to make it.
FAULTS: dict[str, Callable[[Scene, PlannedFault], Fault]] = {
    "worker-kill": WorkerKill,
    "worker-freeze": WorkerFreeze,
    # The same of an original client: its late ends may be taken, so the judge does not ask for a refusal (H2).
    "foreign-freeze": WorkerFreeze,
    "app-kill": AppKill,
    "net-latency": NetLatency,
    "net-request-lost": NetRequestLost,
    "net-reply-lost": NetReplyLost,
    "net-down": NetDown,
    "server-kill": ServerKill,
    "replica-lag": ReplicaLag,
    "primary-kill": PrimaryKill,
    "failover-clean": FailoverClean,
    "failover-lossy": FailoverLossy,
    "primary-cut": PrimaryCut,
    "slot-move": SlotMoving,
    "server-restart": ServerRestart,
    "snapshot-restore": SnapshotRestore,
    "server-pause": ServerPause,
    "memory-full": MemoryFull,
    "script-busy": ScriptBusy,
    "scripts-flushed": ScriptsFlushed,
    "clients-killed": ClientsKilled,
    "worker-cut": WorkerCut,
    "server-clock-jump": ServerClockJump,
    "worker-clock-jump": WorkerClockJump,
    "clock-wrap": ClockWrap,
    "disk-slow": DiskSlow,
    "dns-change": DnsChange,
    "lease-expired": LeaseExpired,
    "worker-oom": WorkerOom,
}
