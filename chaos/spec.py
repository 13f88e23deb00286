"""What a run is: one frozen value, checked once, written to `spec.json` before anything starts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bench.models import LANES, NAMES
from bench.workload import LIMITS, SCHEDULES
from chaos import catalogue, topologies
from chaos.catalogue import APPS, DIRECT, FACES, HTTP
from chaos.errors import HarnessError
from record.options import SEEDS, bounds, declared

SPEC_SCHEMA = 1

#: A killed worker's jobs must run elsewhere within the lease and this much (rule 37).
RECOVERY_SLACK_MS = 2_000


class SpecFile:
    """What is written to `spec.json`: a frozen dataclass, and columns that follow from it."""

    __slots__ = ()

    @property
    def of_servers(self) -> str:
        """Name of the topology."""
        return getattr(self, "topology", topologies.EMBEDDED)

    def derived(self) -> dict[str, Any]:
        """Columns that follow from the fields."""
        return {}

    def write(self, path: Path, **more: Any) -> None:
        """Write the spec as JSON, in one step, so that no reader sees half of it. `more` are further columns."""
        fields: Any = self
        content = {"schema": SPEC_SCHEMA, **dataclasses.asdict(fields), **self.derived(), **more}
        fresh = path.with_suffix(".tmp")
        try:
            fresh.write_text(json.dumps(content, indent=2) + "\n")
            fresh.replace(path)
        except OSError as error:
            raise HarnessError(f"{path.name} cannot be written: {error.strerror or error}") from error


def check_bounds(spec: SpecFile, bounds: Mapping[str, tuple[int, int]]) -> None:
    """Raise HarnessError for a field that is not a whole number within its bounds."""
    for name, (low, high) in bounds.items():
        value = getattr(spec, name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise HarnessError(f"{name} is {value!r}: it must be a whole number from {low} to {high}")


@dataclass(frozen=True, slots=True)
class RunSpec(SpecFile):
    """One run. Times end in their unit; `mutant` is empty for the clean engine."""

    id: str
    seed: int = declared("draws load and faults", *SEEDS, default=1)
    mutant: str = declared("plant this defect, to see the checks catch it", default="", metavar="NAME")
    #: What the mutant does, and the verdict that one check must make of it; empty for the clean engine.
    planted: dict[str, str] = field(default_factory=dict)
    scenario: str = "bench"
    topology: str = declared("servers to run against", default=topologies.EMBEDDED, choices=topologies.TOPOLOGIES)
    #: See chaos/topologies.py.
    durability: str = declared(
        "what an answer means: of aof always or everysec, of several servers server or replica",
        default="",
        words="default the first that the topology has",
        metavar="NAME",
    )
    queue: str = "bench"
    model: str = declared("whose wire format the keys have", default=LANES, choices=NAMES)
    #: How the producer sends (see chaos/catalogue.py).
    face: str = DIRECT
    lease_ms: int = declared("lease of a claimed job in ms", 1_000, 60_000, default=9_000)
    sweep_ms: int = declared(low=50, high=10_000, default=1_000)
    workers: int = declared("workers, called worker-1, worker-2 and so on", 1, 32, default=3)
    concurrency: int = declared(low=1, high=256, default=8)
    #: Workers that run inside Locust, beside those with a process of their own.
    consumers: int = declared(low=0, high=8, default=1)
    #: Processes that are connected to the server directly, and not through a proxy of their own; None = nobody has looked.
    direct: tuple[str, ...] | None = None
    #: Processes that share the schedule of the load: with several, workers of a Locust master.
    producers: int = declared("processes that share the load, with several led by a Locust master", 1, 8, default=1)
    rate_per_s: int = declared("jobs per second of the load", 1, 5_000, default=120, name="rate", dest="rate")
    #: After the last heal, lease and this much is the time by which nothing may be stuck (rule 37).
    liveness_slack_ms: int = declared(low=2_000, high=60_000, default=6_000)
    #: Limits that are set before the load begins, as arguments of `Queue.set_limit`, and whether the load uses unique keys.
    limits: tuple[dict[str, Any], ...] = LIMITS
    unique_keys: bool = True
    #: Locust stops by itself after this, should nobody tell it to: far longer than the run.
    load_bound_s: int = declared(low=60, high=100_000, default=900)
    #: How long finished and dead jobs, results and errors are kept; 0 = as the engine has it.
    retention_ms: int = declared(low=0, high=86_400_000, default=0)
    #: Schedules that tick from before the load until it ends, as arguments of `queue.schedules.put`; whether jobs need others.
    schedules: tuple[dict[str, Any], ...] = SCHEDULES
    dependencies: bool = True
    #: Some jobs want a capability that the workers inside Locust have not.
    routing: bool = True
    #: Handlers leave the wait after a failed run to the back-off of their jobs, so the judge may hold them to it.
    retries_by_policy: bool = True
    #: Handlers return results, of which the harness reads some when the queue is drained.
    results: bool = False
    #: Outside of faults no job waits so long for its first claim while a worker is idle; 0 = the judge does not look.
    pickup_bound_ms: int = declared(low=0, high=600_000, default=0)
    #: What the wire format of the model cannot protect: each with `name`, `checks` and `text` (see reports/findings.py).
    findings: tuple[dict[str, Any], ...] = ()
    #: What was seen of the machine before the load (see chaos/calibration.py); empty = nothing.
    calibration: dict[str, Any] = field(default_factory=dict)
    plan: tuple[dict[str, Any], ...] = ()
    #: How long the parts of the plan last that no condition ends (see chaos/plan.py).
    pace: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    git_commit: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    started_utc: str = ""

    def __post_init__(self) -> None:
        if self.model not in NAMES:
            raise HarnessError(f"model {self.model!r} does not exist; choose from {', '.join(NAMES)}")
        topologies.check(self.topology, self.durability)
        if self.face not in FACES:
            raise HarnessError(f"face {self.face!r} does not exist; choose from {', '.join(FACES)}")
        for name, only in (("model", LANES), ("topology", topologies.EMBEDDED)):
            if self.face == HTTP and getattr(self, name) != only:
                raise HarnessError(f"{name} is {getattr(self, name)!r}: with the face {HTTP} it must be {only}")
        check_bounds(self, BOUNDS)

    @classmethod
    def bare(cls, **fields: Any) -> Self:
        """A run of plain jobs: no limits, unique keys, schedules, parents, or capabilities."""
        without = {"limits": (), "unique_keys": False, "schedules": (), "dependencies": False, "routing": False}
        return cls(**{**without, **fields})

    @property
    def load(self) -> str:
        """The load, as the catalogue of faults has it."""
        return catalogue.load_of(self.face)

    @property
    def recovery_bound_ms(self) -> int:
        return self.lease_ms + RECOVERY_SLACK_MS

    @property
    def liveness_ms(self) -> int:
        return self.lease_ms + self.liveness_slack_ms

    def derived(self) -> dict[str, Any]:
        bounds = {"recovery_bound_ms": self.recovery_bound_ms, "liveness_ms": self.liveness_ms}
        apps = {"apps": APPS if self.face == HTTP else ()}
        loss = catalogue.declared_loss(self.topology, self.durability)
        return {**bounds, **apps, "durability": topologies.meant(self.topology, self.durability), "loss": loss}


#: field -> (lowest, highest) value.
BOUNDS = bounds(RunSpec)
