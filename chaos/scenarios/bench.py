"""`run bench` and `run http`: steady load on one queue, with faults of workers, of the network and of servers."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from bench.models import LANES, ModelMissing, carried
from chaos import asked, catalogue, installed, runs, topologies
from chaos.calibration import RATES_PER_S, Calibration
from chaos.catalogue import DIRECT, HTTP
from chaos.errors import HarnessError
from chaos.http_drill import HttpDrill
from chaos.interrupts import Interrupts
from chaos.judge import validate_objectives
from chaos.plan import Pace, Plan, consumer_names, draw, worker_names
from chaos.processes import ROOT
from chaos.run import Scenario, carry_out
from chaos.spec import RunSpec

LEASE_MS = 9_000

#: The objectives of a drill for which the user names none: of the engine's own format at the default lease.
DEFAULT_OBJECTIVES = ROOT / "bench" / "slo.toml"
#: `pickup_bound_ms` of a drill: two sweeps, and two seconds at least. A worker that misses a wake-up asks for work one sweep
#: later (rule 22), the foreign formats read their list of waiting jobs from its beginning once a second, and the delayed jobs of
#: Bananas wait for a sweep: so this is twice what an engine may take. On a busy machine with two cores, outside of faults, jobs
#: without limits waited at most 24 ms for their first claim, and delayed ones 43 ms after they were due, those of Bananas 960.
PICKUP_BOUND_MS = 2_000
PICKUP_SWEEPS = 2

#: Of the workers of a drill with all faults these have no proxy, so that others see at once that they were killed (rule 39).
DIRECTLY = worker_names(1)


@dataclass(frozen=True, kw_only=True)
class Jobs(Scenario[RunSpec]):
    """A run of jobs: workers, a worker inside Locust, and producers that send directly or over HTTP."""

    #: Limits of the load get a rate that its own rate reaches.
    RATED: ClassVar[bool] = True

    def about(self, spec: RunSpec) -> str:
        crew = f"{spec.workers} workers, {spec.consumers} in Locust"
        crew += ", a producer over HTTP" if spec.face == HTTP else ""
        crew += f", {spec.producers} producers under a Locust master" if spec.producers > 1 else ""
        return f"{crew}, {spec.rate_per_s} jobs/s, lease {spec.lease_ms} ms, topology {spec.topology}, seed {spec.seed}"

    def at_rate(self, calibration: Calibration) -> RunSpec:
        spec, rate = super().at_rate(calibration), calibration.rate_per_s
        if self.own_rate:
            return spec
        limits = carried(spec.model).with_rates(spec.limits, rate) if self.RATED else spec.limits
        return replace(spec, rate_per_s=rate, limits=limits)


class OverHttp(Jobs):
    """The same with a producer that reaches no server, but two apps."""

    DRILL = HttpDrill

    def lacking(self) -> Iterator[str]:
        return installed.lacking("a producer over HTTP", installed.OVER_HTTP, "http")


def bench(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Run the drill and judge it. Returns the exit code.

    Raises HarnessError and ServerMissing when it cannot begin, cannot write the spec, or is interrupted outside of the drill.
    """
    mutant, face, topology = asked.of_jobs(arguments)
    servers = topologies.label(topology, arguments.durability or "")
    model = arguments.model if arguments.model != LANES else ""
    label = "-".join(filter(None, [model, face if face != DIRECT else "", arguments.mutant, servers]))
    spec = RunSpec(
        id=runs.run_id("bench", arguments.seed, label, time.time()),
        seed=arguments.seed,
        model=arguments.model,
        face=face,
        mutant=arguments.mutant,
        producers=arguments.producers,
        rate_per_s=RATES_PER_S[0] if arguments.rate is None else arguments.rate,
        lease_ms=LEASE_MS if arguments.lease_ms is None else arguments.lease_ms,
        topology=topology,
        durability=arguments.durability or "",
        direct=DIRECTLY if names_connections(arguments, topology) else None,
    )
    if arguments.slo:
        validate_objectives(arguments.slo, channels=False)
    usual = spec.model == LANES and spec.lease_ms == LEASE_MS
    objectives = arguments.slo or (DEFAULT_OBJECTIVES if usual else None)
    shape: dict[str, Any] = {"kinds": arguments.faults, "minutes": arguments.minutes}
    return carry_out(drawn(spec, mutant=mutant, objectives=objectives, **shape), arguments, interrupts)[0]


def names_connections(arguments: argparse.Namespace, topology: str) -> bool:
    """Whether the drill has all faults, of a format whose workers name their connections, on a server that they may reach without
    a proxy."""
    return arguments.model == LANES and topology in catalogue.SINGLE and arguments.faults is None and arguments.minutes is None


def drawn(
    spec: RunSpec,
    *,
    pace: Pace | None = None,
    kinds: Sequence[str] | None = None,
    minutes: int | None = None,
    objectives: Path | None = None,
    whole_load: bool = True,
    **more: Any,
) -> Jobs:
    """The drill of a spec with the faults of its seed, and with all that the load has on its model unless it has not the whole
    load. Raises HarnessError."""
    spec = featured(spec) if whole_load else spec
    names: dict[str, Any] = {"workers": worker_names(spec.workers), "consumers": consumer_names(spec.consumers)}
    shape: dict[str, Any] = {"topology": spec.topology, "load": spec.load, "direct": spec.direct or ()}
    plan = draw(spec.seed, pace=pace, kinds=kinds, minutes=minutes, **names, **shape)
    if objectives == DEFAULT_OBJECTIVES and may_lose(spec, plan):
        # They allow no job to be lost, whatever was declared.
        objectives = None
    return of_plan(spec, plan, objectives=objectives, **more)


def of_plan(spec: RunSpec, plan: Plan, **more: Any) -> Jobs:
    """The drill of a spec and a plan."""
    kind = OverHttp if spec.face == HTTP else Jobs
    return kind(spec=replace(spec, direct=connected_directly(spec, plan)), plan=plan, **more)


def may_lose(spec: RunSpec, plan: Plan) -> bool:
    """True when a fault of the plan, or a failover that nobody planned, may lose acknowledged writes."""
    lossy = {entry["fault"] for entry in catalogue.declared_loss(spec.topology, spec.durability)}
    return catalogue.UNPLANNED_FAILOVER in lossy or any(planned.name in lossy for planned in plan.faults)


def connected_directly(spec: RunSpec, plan: Plan) -> tuple[str, ...]:
    """Those of the processes of a drill that work on jobs and have no proxy."""
    if plan.needs_network() or spec.topology in topologies.SEVERAL:
        return spec.direct or ()
    return (*worker_names(spec.workers), *plan.replacements(), *consumer_names(spec.consumers))


def featured(spec: RunSpec) -> RunSpec:
    """The spec with all that the load has on its model, and how long a job may wait while a worker is idle. Raises as
    `features`."""
    return replace(spec, **features(spec.model), pickup_bound_ms=max(PICKUP_BOUND_MS, PICKUP_SWEEPS * spec.sweep_ms))


def features(model: str) -> dict[str, Any]:
    """What the load on a model uses, as fields of the spec. Raises HarnessError for a model that this engine has not."""
    try:
        return carried(model).features()
    except ModelMissing as error:
        raise HarnessError(str(error)) from error
