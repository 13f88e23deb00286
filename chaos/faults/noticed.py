"""Whether processes have noticed that their server went back. Lanes counts that at the server; other formats do not know it."""

from __future__ import annotations

from bench.models import LANES
from chaos import rows
from chaos.catalogue import declared_loss
from chaos.faults.base import Scene
from chaos.faults.commands import tell
from chaos.plan import PlannedFault
from engine.models.lanes import Lanes

#: By when somebody has noticed, once everybody is answered by the server.
NOTICE_TIMEOUT_S = 20.0


def counted_losses(scene: Scene, port: int) -> int:
    """How often processes have counted, at the server on this port, that it went back; 0 for what is no queue of Lanes."""
    spec = scene.crew.spec
    if spec.model != LANES:
        return 0
    return int(tell(port, "HGET", Lanes(spec.queue).keys.stats, "data_losses") or 0)


def record_noticed(scene: Scene, planned: PlannedFault, port: int, before: int) -> None:
    """Record whether a process has noticed that acknowledged writes are gone, for the judge: `before` had been counted then.
    Where the fault may lose none, as writes are acknowledged by a replica too, there is nothing to notice."""
    spec = scene.crew.spec
    if spec.model != LANES:
        return
    if planned.name not in {entry["fault"] for entry in declared_loss(spec.topology, spec.durability)}:
        return
    scene.wait(lambda: counted_losses(scene, port) > before, timeout_s=NOTICE_TIMEOUT_S, poll_s=0.1)
    count = counted_losses(scene, port) - before
    words = f"{count} times processes found that writes are gone which they were told of"
    record(scene, planned, "noticed", seen=count > 0, detail=words)


def record(scene: Scene, planned: PlannedFault, stage: str, *, seen: bool, detail: str, t_ns: int | None = None) -> None:
    """A stage of a fault beside the four that each has."""
    row = rows.fault(planned.fault, name=planned.name, stage=stage, target=planned.target, seen=seen, detail=detail)
    if scene.harness is not None:
        scene.harness.append([row], t_ns=t_ns)
