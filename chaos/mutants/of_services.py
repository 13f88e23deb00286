"""Mutants of what the engine does for the effects of a service, in the drill of a small one."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from chaos import mutants, runs
from chaos.command import Order
from chaos.interrupts import Interrupts
from chaos.mutants import Mutant
from chaos.plan import Pace, draw, worker_names
from chaos.planting import Edit
from chaos.processes import ROOT
from chaos.progress import Progress
from chaos.runs import RunFolder
from chaos.service.drill import ServiceDrill
from chaos.service.file import ServiceFile
from chaos.service.spec import SCENARIO, ServiceSpec
from chaos.spec import RunSpec
from engine.redis.scripts import scripts_folder

#: The small service, the name of its queue, and the variable that names its database. It is imported when its queue is led to
#: the server of a drill.
MODULE, QUEUE, DATABASE = "chaos.mutants.effectful", "effectful", "EFFECTFUL_DB"

RATE_PER_S = 25

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            name="effect-forgotten",
            defect="effects.once does not know that a run before has taken effect",
            check="J25",
            verdict="violated",
            edits=(Edit("effect-is-remembered", "return True"),),
            # The handler of the frozen worker goes on when another one has run its job.
            provoked_by=("worker-freeze",),
        ),
    )
}


def order(
    faults: tuple[str, ...], seed: int, interrupts: Interrupts, mutant: Mutant | None, pace: Pace, **times: int
) -> Order[RunSpec]:
    """The drill of the small service with these kinds of fault. `times`: its lease, sweep and slack of liveness."""
    worker = (sys.executable, "-m", "engine", "worker", f"{MODULE}:queue", "--concurrency", "8")
    worker += ("--lease-ms", str(times["lease_ms"]), "--sweep-ms", str(times["sweep_ms"]))
    service = ServiceFile(
        path=ROOT / "chaos.toml",
        queue=f"{MODULE}:queue",
        load=f"{MODULE}:load",
        rate=RATE_PER_S,
        workers=(worker,) * 3,
        effects=f"{MODULE}:counted",
        once=True,
        environment={DATABASE: "{run}/effects.db"},
    )
    name = mutant.name if mutant else ""
    within: dict[str, Any] = dict(times)
    spec = ServiceSpec(
        id=runs.run_id("mutants", seed, "-".join(filter(None, (SCENARIO, name))), time.time()),
        seed=seed,
        mutant=name,
        scenario=SCENARIO,
        queue=QUEUE,
        workers=len(service.workers),
        consumers=0,
        rate_per_s=service.rate,
        limits=(),
        unique_keys=False,
        schedules=(),
        dependencies=False,
        routing=False,
        retries_by_policy=False,
        effects=True,
        **within,
    )
    plan = draw(seed, workers=worker_names(spec.workers), pace=pace, kinds=faults)

    def make(spec: Any, folder: RunFolder, progress: Progress, toxiproxy: Path | None) -> ServiceDrill:
        # Another drill of this process has led it to another server.
        sys.modules.pop(MODULE, None)
        drill = ServiceDrill(spec, plan, folder, progress, interrupts, toxiproxy=toxiproxy, service=service)
        if mutant:
            drill.lua = mutants.plant(mutant, scripts_folder(), folder.path / "lua")
        return drill

    return Order(spec, plan, make, lambda spec: f"a small service, {spec.rate_per_s} jobs/s, seed {spec.seed}", None, mutant)
