"""What faults tell servers and ask them, and what they note of it in the history."""

from __future__ import annotations

from typing import Any

import redis

from bench.models import LANES
from chaos import rows
from chaos.catalogue import declared_loss
from chaos.errors import HarnessError
from chaos.faults.base import Scene
from chaos.plan import PlannedFault
from engine.models.lanes import Lanes
from engine.testing.server import NoAnswer, ask_server

#: A server that does not answer its operator for so long is broken.
PATIENCE_S = 5.0


def tell(port: int, *words: Any) -> Any:
    """One command to the server on this port. Raises HarnessError."""
    try:
        with redis.Redis(port=port, socket_timeout=PATIENCE_S, protocol=2) as client:
            return client.execute_command(*words)
    except redis.RedisError as error:
        raise HarnessError(f"server on port {port}: {words[0]}: {error}") from error


def refusals(port: int, code: str) -> int:
    """How often a server has answered with an error of this code, such as OOM, since it started. Raises HarnessError."""
    return int(tell(port, "INFO", "errorstats").get(f"errorstat_{code}", {}).get("count", 0))


def setting(port: int, name: str) -> str:
    """A setting of a server, as CONFIG GET says it. Raises HarnessError."""
    found = tell(port, "CONFIG", "GET", name)
    value = found[name.encode()] if isinstance(found, dict) else found[1]
    return value.decode()


def number_of(port: int, section: str, name: str) -> int:
    """A number of INFO. Raises OSError."""
    for line in ask_server(port, f"INFO {section}").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.partition(":")[2])
    raise NoAnswer(f"INFO {section}: no {name}")


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
