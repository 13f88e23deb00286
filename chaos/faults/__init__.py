"""Faults, one file each. Every fault is inject, witness, heal, witness-healed (see `base`)."""

from __future__ import annotations

from collections.abc import Callable

from chaos.faults.base import Fault, Scene
from chaos.faults.worker_freeze import WorkerFreeze
from chaos.faults.worker_kill import WorkerKill
from chaos.plan import PlannedFault

#: Kind of fault in a plan -> how to make it.
FAULTS: dict[str, Callable[[Scene, PlannedFault], Fault]] = {"worker-kill": WorkerKill, "worker-freeze": WorkerFreeze}
