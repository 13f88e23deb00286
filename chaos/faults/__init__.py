"""Faults, one file each. Every fault is inject, witness, heal, witness-healed (see `base`)."""

from __future__ import annotations

from collections.abc import Callable

from chaos.faults.app_kill import AppKill
from chaos.faults.base import Fault, Scene
from chaos.faults.clients_killed import ClientsKilled
from chaos.faults.clock_wrap import ClockWrap
from chaos.faults.disk_slow import DiskSlow
from chaos.faults.dns_change import DnsChange
from chaos.faults.failover_clean import FailoverClean
from chaos.faults.failover_lossy import FailoverLossy
from chaos.faults.lease_expired import LeaseExpired
from chaos.faults.memory_full import MemoryFull
from chaos.faults.net_down import NetDown
from chaos.faults.net_latency import NetLatency
from chaos.faults.net_reply_lost import NetReplyLost
from chaos.faults.net_request_lost import NetRequestLost
from chaos.faults.primary_cut import PrimaryCut
from chaos.faults.primary_kill import PrimaryKill
from chaos.faults.replica_lag import ReplicaLag
from chaos.faults.script_busy import ScriptBusy
from chaos.faults.scripts_flushed import ScriptsFlushed
from chaos.faults.server_clock_jump import ServerClockJump
from chaos.faults.server_kill import ServerKill
from chaos.faults.server_pause import ServerPause
from chaos.faults.server_restart import ServerRestart
from chaos.faults.slot_move import SlotMoving
from chaos.faults.snapshot_restore import SnapshotRestore
from chaos.faults.worker_clock_jump import WorkerClockJump
from chaos.faults.worker_cut import WorkerCut
from chaos.faults.worker_freeze import WorkerFreeze
from chaos.faults.worker_kill import WorkerKill
from chaos.faults.worker_oom import WorkerOom
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
