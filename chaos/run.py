"""One run: a scenario says what it is, and `Run` carries it out, in three steps: prepare, perform, conclude.

The service, the load and the servers stand in the spec, the faults in the plan. A scenario adds the drill that carries both out,
the objectives, and who judges what is left. All scenarios are in `chaos/scenarios`; `chaos/campaign.py` runs many.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from bench.models import LANES, NAMES
from chaos import machine, mutants, runs, topologies, topology, toxiproxy_binary
from chaos.calibration import Calibration, calibrated
from chaos.drill import Drill, Frame
from chaos.errors import HarnessError, TooSlow
from chaos.interrupts import Interrupts
from chaos.judge import MISSED, OBJECTIVES, UNKNOWN, VALID, EarlyJudge, judge
from chaos.mutants import Mutant
from chaos.plan import Plan
from chaos.processes import send
from chaos.progress import Progress
from chaos.runs import RunFolder, utc
from chaos.spec import SpecFile
from engine.redis.scripts import scripts_folder

S = TypeVar("S", bound=SpecFile)


@dataclass(frozen=True, kw_only=True)
class Scenario(Generic[S]):
    """What a run is. `spec`: without what is only known when it runs; `mutant`: a planted defect; `objectives`: a file that the
    folder of the run gets a copy of; `own_rate`: the load keeps its rate, whatever this machine carries."""

    spec: S
    plan: Plan
    mutant: Mutant | None = None
    objectives: Path | None = None
    own_rate: bool = False

    #: What carries it out.
    DRILL: ClassVar[type[Frame[Any]]] = Drill
    #: A calibration looks at this machine first.
    CALIBRATED: ClassVar[bool] = True
    #: Its servers are started here.
    OWN_SERVERS: ClassVar[bool] = True
    #: The judge is one of its own, and starts while the load ends.
    EARLY: ClassVar[bool] = True

    def about(self, spec: S) -> str:
        """What is about to run, in one line."""
        raise NotImplementedError

    def lacking(self) -> Iterator[str]:
        """What it would miss here, each with what installs it. Asked before anything starts."""
        return iter(())

    def announced(self, run: Run[S]) -> Iterator[str]:
        """The lines that are said before anything starts."""
        yield f"run {run.folder.path.name} in {run.folder.path}"
        yield self.about(run.spec)
        for planned in self.plan.faults:
            during = f" during {planned.during}" if planned.during else ""
            yield f"planned: {planned.name} of {planned.target}{during}"
        if not self.plan.faults:
            yield "planned: no fault"
        if mutant := self.mutant:
            yield f"mutant {mutant.name}: {mutant.defect}; {mutant.check} must make the verdict {mutant.verdict}"

    def at_rate(self, calibration: Calibration) -> S:
        """The spec with what a calibration has seen, at the rate that it has picked unless it keeps its own."""
        spec: Any = self.spec
        return replace(spec, calibration=calibration.for_spec())

    def drill(self, run: Run[S], **more: Any) -> Frame[S]:
        """What carries the plan out, with the defect planted. `more`: what its drill has beside others."""
        drill = self.DRILL(run.spec, self.plan, run.folder, run.progress, run.interrupts, toxiproxy=run.toxiproxy, **more)
        if self.mutant:
            drill.lua = mutants.plant(self.mutant, scripts_folder(), run.folder.path / "lua")
            drill.signal = mutants.pretend if self.mutant.faults_do_nothing else send
            drill.pretend = self.mutant.faults_do_nothing
        return drill

    def judged_by(self, drill: Frame[S], early: EarlyJudge | None = None) -> int:
        """The exit code of what was carried out: here that of the judge with Spark, which may have been started before."""
        return judged(drill, early)


class Run(Generic[S]):
    """A scenario that is carried out. `calibration`: one that was made before; None = make one."""

    folder: RunFolder
    drill: Frame[S]

    def __init__(
        self, scenario: Scenario[S], arguments: argparse.Namespace, interrupts: Interrupts, calibration: Calibration | None = None
    ) -> None:
        self.scenario, self.arguments, self.interrupts = scenario, arguments, interrupts
        self.spec, self.calibration = scenario.spec, calibration
        self.progress = Progress(sys.stdout)
        self.toxiproxy: Path | None = None

    def prepare(self) -> Frame[S]:
        """Look for the programs, pick the rate, make the folder with spec.json, and make the drill. Raises HarnessError,
        ServerMissing and TooSlow."""
        now_s, scenario, plan = time.time(), self.scenario, self.scenario.plan
        for missing in scenario.lacking():
            raise HarnessError(missing)
        server = topology.binary() if scenario.OWN_SERVERS else None
        if plan.needs_network() or scenario.spec.of_servers in topologies.SEVERAL:
            self.toxiproxy = toxiproxy_program(self.progress, self.interrupts)
        self.interrupts.check()
        spec: Any = scenario.spec
        if scenario.CALIBRATED:
            spec = scenario.at_rate(self.calibration or measure(self.progress, self.arguments, self.interrupts))
        self.folder = runs.create(self.arguments.runs.absolute(), spec.id)
        if scenario.objectives:
            keep_objectives(scenario.objectives, self.folder)
        provenance = machine.provenance(server, self.toxiproxy)
        self.spec = replace(
            spec,
            id=self.folder.path.name,
            started_utc=utc(now_s),
            plan=tuple(asdict(planned) for planned in plan.faults),
            pace=asdict(plan.pace),
            **({"planted": scenario.mutant.for_spec()} if scenario.mutant else {}),
            **{**provenance, "versions": {**provenance["versions"], **spec.versions}},
        )
        # Without `ended_utc`: a run that cannot write its end is one that did not end.
        self.spec.write(self.folder.path / "spec.json", harness_errors=[])
        for line in scenario.announced(self):
            self.progress.say(line)
        prune(self.progress, self.arguments, now_s)
        self.drill = scenario.drill(self)
        self.interrupts.check()
        return self.drill

    def perform(self) -> None:
        """Run the drill, and write down how it ended. Raises HarnessError when that cannot be written."""
        drill, mutant = self.drill, self.scenario.mutant
        drill.run()
        if mutant and mutant.histories_lost:
            mutants.lose_histories(drill.folder.history)
        drill.spec.write(drill.folder.path / "spec.json", **drill.outcome(), ended_utc=utc(time.time()))

    def conclude(self, early: EarlyJudge | None = None) -> int:
        """Judge what there is, and let later runs prune it: the exit code. Raises Interrupted."""
        code = self.scenario.judged_by(self.drill, early)
        self.folder.release()
        return code

    def record(self) -> Frame[S]:
        """Carry it out, to be judged later, with others (see `chaos/campaign.py`); what it has not done is in its `errors`. No
        later run prunes its folder until that is released. Raises as `prepare`."""
        self.prepare()
        self.perform()
        return self.drill

    def whole(self) -> tuple[int, Path]:
        """Carry it out and judge it: the exit code, and the folder of the run. Raises as `prepare`, and Interrupted."""
        self.prepare()
        with EarlyJudge(self.folder.path, every=getattr(self.arguments, "all", False)) as early:
            if self.scenario.EARLY:
                self.drill.load_ended = early.start
            self.perform()
            return self.conclude(early), self.folder.path


def carry_out(
    scenario: Scenario[Any], arguments: argparse.Namespace, interrupts: Interrupts, calibration: Calibration | None = None
) -> tuple[int, Path]:
    """Carry out a scenario and judge it: the exit code, and the folder of the run. Raises as `Run.whole`."""
    return Run(scenario, arguments, interrupts, calibration).whole()


def judged(drill: Frame[Any], early: EarlyJudge | None = None) -> int:
    """Judge what there is of a drill with Spark: the exit code. Raises Interrupted.

    The judge itself calls a drill with errors unknown, or violated. One that calls it valid has not seen them, and is overruled.
    """
    say = drill.progress.say
    for error in drill.errors:
        say(f"harness: {error}")
    if not drill.loaded:
        say("nothing to judge: no load was sent")
        say("verdict: unknown")
        return UNKNOWN
    what = "what there is of the drill " if drill.errors else ""
    say(f"judging {what}with Spark, which takes some twenty seconds; Ctrl-C ends it at once")
    code, complaint = judge(drill.folder.path, drill.interrupts, started=early.begin() if early else None)
    if code in (VALID, MISSED) and drill.errors:
        code, complaint = UNKNOWN, "the drill was not carried out to its end, so its history proves nothing"
    if complaint:
        say(f"harness: {complaint}")
        say("verdict: unknown")
    return code


def measure(progress: Progress, arguments: argparse.Namespace, interrupts: Interrupts) -> Calibration:
    """Find out what this machine carries, and say so. Raises TooSlow when that proves nothing, HarnessError and ServerMissing."""
    asked_per_s = getattr(arguments, "rate", None)
    model = getattr(arguments, "model", LANES)
    calibration = calibrated(model if model in NAMES else LANES, interrupts, asked_per_s)
    if not calibration.rate_per_s:
        raise TooSlow(calibration.words())
    progress.say(calibration.words())
    return calibration


def toxiproxy_program(progress: Progress, interrupts: Interrupts) -> Path:
    """The Toxiproxy server to start, built if there is none. Raises ToxiproxyMissing and Interrupted."""
    try:
        return toxiproxy_binary.find() or toxiproxy_binary.build(progress.say)
    except toxiproxy_binary.ToxiproxyMissing:
        # A Ctrl-C at the terminal ends the build too, and is the better reason.
        interrupts.check()
        raise


def keep_objectives(file: Path, folder: RunFolder) -> None:
    """Copy a file of objectives into the folder of the run, by which the judge finds it, today and later. Raises HarnessError."""
    try:
        shutil.copyfile(file, folder.path / OBJECTIVES)
    except OSError as error:
        raise HarnessError(f"{file.name}: {error.strerror or error}") from error


def prune(progress: Progress, arguments: argparse.Namespace, now_s: float) -> None:
    """Prune old runs, and say so."""
    removed = runs.prune(arguments.runs.absolute(), keep=arguments.keep, keep_days=arguments.keep_days, now_s=now_s)
    if removed:
        rule = f"older than {arguments.keep_days} days or not among the newest {arguments.keep}"
        progress.say(f"pruned {len(removed)} runs ({rule}): {', '.join(removed)}")
