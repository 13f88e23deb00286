"""Mutants of what the engine does for the effects of a service, in the drill of a small one."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

from bench.models import LANES
from chaos import runs
from chaos.drill import Frame
from chaos.mutants import Mutant
from chaos.plan import Pace
from chaos.processes import ROOT
from chaos.run import Run
from chaos.scenarios.service import Service
from chaos.service.file import ServiceFile
from chaos.service.known import Known
from chaos.service.spec import SCENARIO, ServiceSpec

#: The small service, the name of its queue, and the variable that names its database. It is imported when its queue is led to
#: the server of a drill.
MODULE, QUEUE, DATABASE = "chaos.mutants.effectful", "effectful", "EFFECTFUL_DB"

RATE_PER_S = 25

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant("effect-forgotten", "effects.once does not know that a run before has taken effect", "J25")
        # The handler of the frozen worker goes on when another one has run its job.
        .on("worker-freeze")
        .by("effect-is-remembered", "return True"),
    )
}


class Effectful(Service):
    """The drill of the small service."""

    def about(self, spec: ServiceSpec) -> str:
        return f"a small service, {spec.rate_per_s} jobs/s, seed {spec.seed}"

    def drill(self, run: Run[ServiceSpec], **more: Any) -> Frame[ServiceSpec]:
        # Another drill of this process has led it to another server.
        sys.modules.pop(MODULE, None)
        return super().drill(run, **more)


def drawn(faults: tuple[str, ...], seed: int, mutant: Mutant | None, pace: Pace, **times: int) -> Effectful:
    """The drill of the small service with these kinds of fault. `times`: its lease, sweep and slack of liveness."""
    worker = (sys.executable, "-m", "engine", "worker", f"{MODULE}:queue", "--concurrency", "8")
    worker += ("--lease-ms", str(times["lease_ms"]), "--sweep-ms", str(times["sweep_ms"]))
    service = ServiceFile(
        path=ROOT / "chaos.toml",
        queue=f"{MODULE}:queue",
        load=f"{MODULE}:load",
        rate=RATE_PER_S,
        workers=(worker,) * 3,
        faults=faults,
        effects=f"{MODULE}:counted",
        once=True,
        environment={DATABASE: "{run}/effects.db"},
    )
    known = Known(service, {"name": QUEUE, "model": LANES, "durability": ""}, of_users=False)
    name = mutant.name if mutant else ""
    run = runs.run_id("mutants", seed, "-".join(filter(None, (SCENARIO, name))), time.time())
    fields: dict[str, Any] = {"id": run, "mutant": name, **times}
    spec = replace(known.spec(seed), **fields)
    return Effectful(spec=spec, plan=known.plan(spec, pace), known=known, mutant=mutant)
