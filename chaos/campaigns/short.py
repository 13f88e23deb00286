"""The short drills in which mutants are caught, and those of the clean engine in the same shapes.

A drill has only the faults that give its mutant something to do wrong, a lead-in of a second or two, and short leases.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench.models import DSPS
from chaos import catalogue, runs, topologies
from chaos.calibration import Calibration
from chaos.channels.mutants import MUTANTS as OF_CHANNELS
from chaos.channels.spec import ChannelSpec, Crossings
from chaos.mutants import Mutant, of_services
from chaos.mutants.of_jobs import MUTANTS as OF_JOBS
from chaos.plan import Pace
from chaos.run import Scenario
from chaos.scenarios import bench, channels, mischief
from chaos.spec import RunSpec

#: Beside the loads of the catalogue: a queue of an old format in which a foreign client meddles, and a service of its own.
MISCHIEF = "mischief"
SERVICE = "service"

PACE = Pace(lead_in_ms=1_500, delay_max_ms=200, calm_ms=300, settle_ms=1_500)
LEASE_MS = 1_500
SWEEP_MS = 200
LIVENESS_SLACK_MS = 5_000
#: What a drill of jobs offers: its limits are made for it.
RATE_PER_S = 80

#: In a drill of channels every clock wraps while the load lasts: within so long after its first.
FIRST_WRAP_MS = 500
WRAPPED_MS = 8_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What a short drill consists of. `model`: of a drill with a foreign client; `scenario`: fields of the spec of a run of jobs;
    `wrapped_ms`: when the last clock of a run of channels wraps."""

    load: str
    topology: str = topologies.EMBEDDED
    faults: tuple[str, ...] = ()
    scenario: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    wrapped_ms: int = WRAPPED_MS

    @property
    def words(self) -> str:
        """The shape in a few words."""
        faults = ", ".join(self.faults) or "no fault"
        more = ", ".join(f"{name} {json.dumps(value)}" for name, value in self.scenario.items())
        return " ".join(filter(None, [self.model or self.load, f"on {self.topology}:", faults, f"with {more}" if more else ""]))


@dataclass(frozen=True, slots=True)
class Planted:
    """A mutant and the drill that must catch it. `name`: unique among all loads."""

    name: str
    mutant: Mutant
    shape: Shape


#: The clean drill of channels: its faults meet wraps, for which it needs more time than those of single mutants.
CLEAN_CHANNELS = Shape(
    catalogue.CHANNELS, topologies.AOF, ("net-reply-lost", "subscriber-kill", "snapshot-restore"), wrapped_ms=24_000
)


def every() -> dict[str, Planted]:
    """Every mutant by its name; those of other formats have the format in front of it."""
    found = [
        Planted(mutant.name, mutant, Shape(catalogue.JOBS, mutant.topology, mutant.provoked_by, mutant.scenario))
        for mutant in OF_JOBS.values()
    ]
    found += [
        Planted(f"{DSPS}-{mutant.name}", mutant, Shape(catalogue.CHANNELS, topologies.AOF, mutant.provoked_by))
        for mutant in OF_CHANNELS.values()
    ]
    found += [
        Planted(f"{model}-{mutant.name}", mutant, Shape(MISCHIEF, model=model)) for model, mutant in mischief.MUTANTS.items()
    ]
    found += [
        Planted(f"{SERVICE}-{mutant.name}", mutant, Shape(SERVICE, mutant.topology, mutant.provoked_by))
        for mutant in of_services.MUTANTS.values()
    ]
    return {planted.name: planted for planted in found}


def clean_shapes(planted: Iterable[Planted]) -> list[Shape]:
    """The shapes in which the clean engine is drilled: those of the mutants, each once."""
    found: list[Shape] = []
    for one in planted:
        shape = CLEAN_CHANNELS if one.shape.load == catalogue.CHANNELS else one.shape
        found += [shape] if shape not in found else []
    return found


def drawn(shape: Shape, seed: int, mutant: Mutant | None = None) -> Scenario[Any]:
    """The drill of a shape, with a planted defect or without. Raises HarnessError."""
    name = mutant.name if mutant else ""
    times = {"lease_ms": LEASE_MS, "sweep_ms": SWEEP_MS, "liveness_slack_ms": LIVENESS_SLACK_MS}
    if shape.load == MISCHIEF:
        return mischief.of_model(shape.model, seed, mutant)
    if shape.load == SERVICE:
        return of_services.drawn(shape.faults, seed, mutant, PACE, **times)
    of_channels = shape.load == catalogue.CHANNELS
    label = "-".join(filter(None, (DSPS if of_channels else "", name)))
    same: dict[str, Any] = {"id": runs.run_id("mutants", seed, label, time.time()), "seed": seed, "mutant": name}
    same |= {"scenario": "mutants", "topology": shape.topology}
    plan: dict[str, Any] = {"pace": PACE, "kinds": shape.faults}
    if of_channels:
        wrapped = Crossings(FIRST_WRAP_MS, shape.wrapped_ms)
        return channels.drawn(ChannelSpec(**same), crossings=wrapped, mutant=mutant, **plan)
    spec = RunSpec.bare(**{**same, **times, **shape.scenario})
    return bench.drawn(spec, whole_load=False, mutant=mutant, **plan)


def calibration_of(shape: Shape, measured: Calibration) -> Calibration:
    """The calibration for a drill of this shape: runs of jobs offer what their limits are made for."""
    return measured if shape.load != catalogue.JOBS else replace(measured, rate_per_s=RATE_PER_S)
