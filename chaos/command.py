"""The command `bench`: from arguments to a run folder, a drill, a verdict, and an exit code."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from bench.models import LANES, NAMES, ModelMissing, carried
from chaos import catalogue, machine, mutants, runs, topologies, topology, toxiproxy_binary
from chaos.calibration import RATES_PER_S, Calibration
from chaos.drill import Drill
from chaos.errors import HarnessError, TooSlow
from chaos.faces import DIRECT, HTTP
from chaos.frame import Frame
from chaos.http_face import HttpDrill
from chaos.interrupts import Interrupts
from chaos.judge import MISSED, OBJECTIVES, UNKNOWN, VALID, EarlyJudge, judge, validate_objectives
from chaos.mutants import Mutant
from chaos.mutants.of_jobs import MUTANTS
from chaos.plan import Pace, Plan, consumer_names, draw, worker_names
from chaos.processes import ROOT, send
from chaos.progress import Progress
from chaos.runs import RunFolder
from chaos.spec import RunSpec, SpecFile
from chaos.trial import calibrated
from engine.redis.scripts import scripts_folder

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

S = TypeVar("S", bound=SpecFile)


def bench(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Run the drill and judge it. Returns the exit code.

    Raises HarnessError and ServerMissing when it cannot begin, cannot write the spec, or is interrupted outside of the drill.
    """
    mutant = mutants.find(arguments.mutant, MUTANTS)
    if mutant and arguments.model != LANES:
        raise HarnessError(f"mutants are of the model {LANES}, not of {arguments.model}")
    face = arguments.face if mutant is None else mutant.scenario.get("face", arguments.face)
    topology = arguments.topology or (mutant.topology if mutant else topologies.EMBEDDED)
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
    return drill_and_judge(spec, Pace(), arguments, interrupts, mutant, arguments.faults, objectives=objectives)[0]


def names_connections(arguments: argparse.Namespace, topology: str) -> bool:
    """Whether the drill has all faults, of a format whose workers name their connections, on a server that they may reach without
    a proxy."""
    return arguments.model == LANES and topology in catalogue.SINGLE and arguments.faults is None and arguments.minutes is None


def drill_and_judge(
    spec: RunSpec,
    pace: Pace,
    arguments: argparse.Namespace,
    interrupts: Interrupts,
    mutant: Mutant | None = None,
    kinds: Sequence[str] | None = None,
    calibration: Calibration | None = None,
    objectives: Path | None = None,
) -> tuple[int, Path]:
    """Draw the plan of a spec, carry it out and judge it: the exit code, and the folder of the run. Raises as `bench`.

    `calibration`: one that was made before; None = make one. `objectives`: a file of service level objectives.
    """
    spec = featured(spec)
    workers, consumers = worker_names(spec.workers), consumer_names(spec.consumers)
    minutes = getattr(arguments, "minutes", None)
    shape: dict[str, Any] = {"topology": spec.topology, "minutes": minutes, "load": spec.load}
    plan = draw(spec.seed, workers=workers, consumers=consumers, pace=pace, kinds=kinds, direct=spec.direct or (), **shape)
    made = of_plan(spec, plan, interrupts, mutant)
    if objectives == DEFAULT_OBJECTIVES and may_lose(spec, plan):
        # They allow no job to be lost, whatever was declared.
        objectives = None
    return carry_out(replace(made, rated=rated, objectives=objectives), arguments, interrupts, calibration)


def may_lose(spec: RunSpec, plan: Plan) -> bool:
    """True when a fault of the plan, or a failover that nobody planned, may lose acknowledged writes."""
    lossy = {entry["fault"] for entry in catalogue.declared_loss(spec.topology, spec.durability)}
    return catalogue.UNPLANNED_FAILOVER in lossy or any(planned.name in lossy for planned in plan.faults)


def of_plan(spec: RunSpec, plan: Plan, interrupts: Interrupts, mutant: Mutant | None = None) -> Order[RunSpec]:
    """The drill of a spec and a plan, at the rate of the spec."""

    def about(spec: RunSpec) -> str:
        crew = f"{spec.workers} workers, {spec.consumers} in Locust"
        crew += ", a producer over HTTP" if spec.face == HTTP else ""
        crew += f", {spec.producers} producers under a Locust master" if spec.producers > 1 else ""
        return f"{crew}, {spec.rate_per_s} jobs/s, lease {spec.lease_ms} ms, topology {spec.topology}, seed {spec.seed}"

    def make(spec: RunSpec, folder: RunFolder, progress: Progress, toxiproxy: Path | None) -> Drill:
        kind = HttpDrill if spec.face == HTTP else Drill
        drill = kind(spec, plan, folder, progress, interrupts, toxiproxy=toxiproxy)
        if mutant:
            drill.lua = mutants.plant(mutant, scripts_folder(), folder.path / "lua")
            drill.signal = mutants.pretend if mutant.faults_do_nothing else send
            drill.pretend = mutant.faults_do_nothing
        return drill

    return Order(replace(spec, direct=connected_directly(spec, plan)), plan, make, about, at_its_rate, mutant)


def connected_directly(spec: RunSpec, plan: Plan) -> tuple[str, ...]:
    """Those of the processes of a drill that work on jobs and have no proxy."""
    if plan.needs_network() or spec.topology in topologies.SEVERAL:
        return spec.direct or ()
    return (*worker_names(spec.workers), *plan.replacements(), *consumer_names(spec.consumers))


def rated(spec: RunSpec, calibration: Calibration) -> RunSpec:
    """The spec at the rate that a calibration has picked."""
    limits = carried(spec.model).with_rates(spec.limits, calibration.rate_per_s)
    return replace(spec, rate_per_s=calibration.rate_per_s, calibration=calibration.for_spec(), limits=limits)


def at_its_rate(spec: S, calibration: Calibration) -> S:
    """The spec with what a calibration has seen, at its own rate."""
    kept: Any = spec
    return replace(kept, calibration=calibration.for_spec())


@dataclass(frozen=True, slots=True)
class Order(Generic[S]):
    """A drill to carry out: its spec without what is only known then, its plan, how to make it, and words about it. `rated`: the
    spec with the rate that a calibration has picked, None = without one. `objectives`: a file that the run's folder gets a copy
    of."""

    spec: S
    plan: Plan
    make: Callable[[S, RunFolder, Progress, Path | None], Frame[S]]
    about: Callable[[S], str]
    rated: Callable[[S, Calibration], S] | None
    mutant: Mutant | None = None
    objectives: Path | None = None


def carry_out(
    order: Order[S], arguments: argparse.Namespace, interrupts: Interrupts, calibration: Calibration | None = None
) -> tuple[int, Path]:
    """Carry out a drill and judge it: the exit code, and the folder of the run. Raises as `bench`, and TooSlow."""
    drill = prepared(order, arguments, interrupts, calibration)
    with EarlyJudge(drill.folder.path, every=getattr(arguments, "all", False)) as early:
        drill.load_ended = early.start
        perform(drill, order.mutant)
        code = conclude(drill, drill.progress, early)
    drill.folder.release()
    return code, drill.folder.path


def record(
    order: Order[S], arguments: argparse.Namespace, interrupts: Interrupts, calibration: Calibration | None = None
) -> Frame[S]:
    """Carry out a drill that is judged later, with others (see `chaos.judge.judge_all`); what it has not done is in its `errors`.
    No later run prunes its folder until that is released. Raises as `carry_out`."""
    drill = prepared(order, arguments, interrupts, calibration)
    perform(drill, order.mutant)
    return drill


def prepared(order: Order[S], arguments: argparse.Namespace, interrupts: Interrupts, calibration: Calibration | None) -> Frame[S]:
    """A drill that is ready to run, with its folder and spec.json. Raises as `carry_out`."""
    now_s = time.time()
    plan = order.plan
    server = topology.binary()
    progress = Progress(sys.stdout)
    needed = plan.needs_network() or order.spec.of_servers in topologies.SEVERAL
    toxiproxy = toxiproxy_program(progress, interrupts) if needed else None
    interrupts.check()
    spec: Any = order.spec
    if order.rated:
        spec = order.rated(spec, calibration or measure(progress, arguments, interrupts))
    folder = runs.create(arguments.runs.absolute(), spec.id)
    if order.objectives:
        keep_objectives(order.objectives, folder)
    spec = replace(
        spec,
        id=folder.path.name,
        started_utc=utc(now_s),
        plan=tuple(asdict(planned) for planned in plan.faults),
        pace=asdict(plan.pace),
        **({"planted": order.mutant.for_spec()} if order.mutant else {}),
        **machine.provenance(server, toxiproxy),
    )
    # Without `ended_utc`: a run that cannot write its end is one that did not end.
    spec.write(folder.path / "spec.json", harness_errors=[])
    announce(progress, plan, folder, order.about(spec), order.mutant)
    prune(progress, arguments, now_s)
    drill = order.make(spec, folder, progress, toxiproxy)
    interrupts.check()
    return drill


def perform(drill: Frame[Any], mutant: Mutant | None = None) -> None:
    """Run a drill, and write down how it ended. Raises HarnessError when that cannot be written."""
    drill.run()
    if mutant and mutant.histories_lost:
        mutants.lose_histories(drill.folder.history)
    drill.spec.write(drill.folder.path / "spec.json", **drill.outcome(), ended_utc=utc(time.time()))


def keep_objectives(file: Path, folder: RunFolder) -> None:
    """Copy a file of objectives into the folder of the run, by which the judge finds it, today and later. Raises HarnessError."""
    try:
        shutil.copyfile(file, folder.path / OBJECTIVES)
    except OSError as error:
        raise HarnessError(f"{file.name}: {error.strerror or error}") from error


def measure(progress: Progress, arguments: argparse.Namespace, interrupts: Interrupts) -> Calibration:
    """Find out what this machine carries, and say so. Raises TooSlow when that proves nothing, and as `bench`."""
    asked_per_s = getattr(arguments, "rate", None)
    model = getattr(arguments, "model", LANES)
    calibration = calibrated(model if model in NAMES else LANES, interrupts, asked_per_s)
    if not calibration.rate_per_s:
        raise TooSlow(calibration.words())
    progress.say(calibration.words())
    return calibration


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


def toxiproxy_program(progress: Progress, interrupts: Interrupts) -> Path:
    """The Toxiproxy server to start, built if there is none. Raises ToxiproxyMissing and Interrupted."""
    try:
        return toxiproxy_binary.find() or toxiproxy_binary.build(progress.say)
    except toxiproxy_binary.ToxiproxyMissing:
        # A Ctrl-C at the terminal ends the build too, and is the better reason.
        interrupts.check()
        raise


def announce(progress: Progress, plan: Plan, folder: RunFolder, about: str, mutant: Mutant | None) -> None:
    """Say what is about to run."""
    progress.say(f"run {folder.path.name} in {folder.path}")
    progress.say(about)
    for planned in plan.faults:
        during = f" during {planned.during}" if planned.during else ""
        progress.say(f"planned: {planned.name} of {planned.target}{during}")
    if not plan.faults:
        progress.say("planned: no fault")
    if mutant:
        progress.say(f"mutant {mutant.name}: {mutant.defect}; {mutant.check} must make the verdict {mutant.verdict}")


def prune(progress: Progress, arguments: argparse.Namespace, now_s: float) -> None:
    """Prune old runs, and say so."""
    removed = runs.prune(arguments.runs.absolute(), keep=arguments.keep, keep_days=arguments.keep_days, now_s=now_s)
    if removed:
        rule = f"older than {arguments.keep_days} days or not among the newest {arguments.keep}"
        progress.say(f"pruned {len(removed)} runs ({rule}): {', '.join(removed)}")


def conclude(drill: Frame[Any], progress: Progress, early: EarlyJudge | None = None) -> int:
    """Judge what there is, by a judge that may have been started before. Raises Interrupted.

    The judge itself calls a drill with errors unknown, or violated. One that calls it valid has not seen them, and is overruled.
    """
    for error in drill.errors:
        progress.say(f"harness: {error}")
    if not drill.loaded:
        progress.say("nothing to judge: no load was sent")
        progress.say("verdict: unknown")
        return UNKNOWN
    what = "what there is of the drill " if drill.errors else ""
    progress.say(f"judging {what}with Spark, which takes some twenty seconds; Ctrl-C ends it at once")
    code, complaint = judge(drill.folder.path, drill.interrupts, started=early.begin() if early else None)
    if code in (VALID, MISSED) and drill.errors:
        code, complaint = UNKNOWN, "the drill was not carried out to its end, so its history proves nothing"
    if complaint:
        progress.say(f"harness: {complaint}")
        progress.say("verdict: unknown")
    return code


def utc(now_s: float) -> str:
    """ISO 8601 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
