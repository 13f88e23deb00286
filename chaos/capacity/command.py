"""The command `capacity`: find the rate that meets a target, predict it from half of the steps, verify that, and report."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bench.arrivals import RATE_MAX_PER_S, Arrivals
from bench.micro.runner import cpu_model
from chaos import machine, runs, topology
from chaos.capacity import prediction
from chaos.capacity.prediction import ABOVE, BELOW, Prediction, Verdict, predicted, verdict
from chaos.capacity.request import Request
from chaos.capacity.search import VOID, VOIDS_MAX, Found, Limits, Tried, decide
from chaos.capacity.stage import OwnWork, Stage, Work, stage
from chaos.capacity.steps import Step
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.judge import show, shown
from chaos.progress import Progress
from chaos.run import prune
from chaos.service.capacity import service_work

SCHEMA = 2
FILE = "measurement.json"

VERIFIED, NOT_VERIFIED, UNKNOWN = 0, 1, 2

#: The law of scalability needs the limits of four numbers of workers. Theirs are searched from a guess, with wider steps.
WORKER_COUNTS = 4
GUESS_SHARE = 0.85
GUESS_GROWTH = 1.3
GUESS_RESOLUTION = 1.15
GUESS_STEPS_MAX = 10

#: The simulator is compared at these multiples of what the handlers can do; from the first it learns what passes beside them.
VALIDATE_SHARES = (0.1, 0.3, 0.7, 1.3)

#: A run of the verification lasts so many steps.
VERIFY_STEPS = 2

#: What a step takes beside its own time: Locust begins, the last jobs end, and what is left is taken away.
BESIDE_STEP_S = 6.0

#: And in the end the plan and the page.
END_S = 30.0


def named(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of a request that were named."""
    return {one.name: getattr(arguments, one.name) for one in fields(Request) if hasattr(arguments, one.name)}


def request_of(arguments: argparse.Namespace) -> Request:
    """What is asked for. Raises HarnessError."""
    return Request(**named(arguments))


def work_of(arguments: argparse.Namespace) -> Work:
    """What is measured: the harness's own jobs, or a service. Raises HarnessError."""
    if arguments.file is None:
        return OwnWork(request_of(arguments), arguments.web_port)
    asked = named(arguments)
    options = [*asked, *(name for name in ("validate", "web_port") if getattr(arguments, name))]
    return service_work(arguments.file, asked, options)


def capacity(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Measure, predict, verify, report. Returns 0 when the prediction holds, 1 when it does not, 2 when there is none; with
    --validate the same of the simulator.

    Raises HarnessError, in one line and before anything starts, for what cannot be; and ServerMissing.
    """
    work, now_s, progress = work_of(arguments), time.time(), Progress(sys.stdout)
    request, server = work.request, machine.server_version(topology.binary())
    folder = runs.create(arguments.runs.absolute(), runs.run_id("capacity", request.seed, work.label, now_s))
    prune(progress, arguments, now_s)
    progress.say(f"capacity {folder.path.name} in {folder.path}")
    run = Measuring(request, progress, folder.path / FILE, header(request, server, now_s), arguments.runs)
    try:
        with stage(work, folder, interrupts) as parts:
            run.points(parts) if arguments.validate else run.measure(parts, scaling=not arguments.no_scaling)
    finally:
        run.write()
    if arguments.validate:
        return compared(folder, interrupts)
    report(run.request, folder.path, progress, interrupts)
    folder.release()
    progress.say(run.conclusion())
    progress.say(prediction.last_line(run.found.rate_per_s, run.predicted, run.verdict))
    return run.exit_code()


@dataclass
class Measuring:
    """A measurement as it grows; it is written after each part, so that an interrupt leaves what there is."""

    request: Request
    progress: Progress
    file: Path
    columns: dict[str, Any]
    #: The folder of all runs.
    runs: Path
    found: Found = field(default_factory=lambda: Found(None))
    predicted: Prediction | None = None
    outcomes: list[tuple[float, str]] = field(default_factory=list)
    #: Bytes that the server reads and writes for a job, in the last step that met.
    net_bytes_per_job: float = 1.0
    begun_s: float = field(default_factory=time.monotonic)

    @property
    def verdict(self) -> Verdict:
        """Of the verification so far."""
        return verdict(self.outcomes, self.request.verify_times)

    def begin(self, parts: Stage) -> Request:
        """Start the workers of a stage that has none, and take over what is only known then."""
        self.columns["memory"] = parts.memory()
        self.request = parts.request = parts.work.learned(parts)
        self.columns["target"] = target(self.request)
        self.columns["recovery"] = parts.work.recovery(self.runs, parts)
        self.write()
        return self.request

    def measure(self, parts: Stage, *, scaling: bool) -> None:
        """All of it, on a stage without workers."""
        request = self.begin(parts)
        limits = Limits(request.first_per_s, request.least_per_s, RATE_MAX_PER_S, request.step_s, request.last_step_s)
        self.found = self.search(parts, limits)
        round_trip_ms = parts.round_trip_ms()
        self.columns["network"] = {"bytes_per_job": self.net_bytes_per_job, "round_trip_ms": round_trip_ms}
        self.write()
        self.predicted = predicted(self.file.parent, parts.interrupts) if self.found.rate_per_s else None
        if self.found.rate_per_s is None or self.predicted is None:
            return
        self.progress.say(self.predicted.words())
        for _ in range(request.verify_times):
            for multiple in (BELOW, ABOVE):
                self.verify(parts, self.predicted.rate_per_s, multiple)
        if scaling and parts.work.several_kinds:
            self.progress.say("the limits of other numbers of workers are not searched, because they are of several kinds")
        elif scaling:
            self.scale(parts, self.found.rate_per_s)

    def points(self, parts: Stage) -> None:
        """Long steps at rates from low to beyond what the handlers can do, with when each job was due."""
        request = self.begin(parts)
        for share in VALIDATE_SHARES:
            rate_per_s = round(max(request.least_per_s, share * request.ceiling_per_s), 1)
            for _ in range(VOIDS_MAX):
                # What is left of an overload is worked off, for its latency counts.
                step = parts.take(rate_per_s, request.last_step_s, settle_s=request.last_step_s)
                if step.tried.outcome != VOID:
                    break
            arrivals = Arrivals(request.seed, parts.steps, rate_per_s, request.last_step_s)
            step.columns["arrivals_ms"] = [round(arrival.offset_ms, 3) for arrival in arrivals]
            self.keep(step)
        round_trip_ms = parts.round_trip_ms()
        self.columns["network"] = {"bytes_per_job": self.net_bytes_per_job, "round_trip_ms": round_trip_ms}

    def search(self, parts: Stage, limits: Limits) -> Found:
        """Steps until the search ends."""
        tried: list[Tried] = []
        while not isinstance(decided := decide(tried, limits), Found):
            step = parts.take(decided.rate_per_s, decided.seconds)
            tried.append(step.tried)
            self.keep(step)
        return decided

    def verify(self, parts: Stage, rate_per_s: float, multiple: float) -> None:
        """One run beside the prediction; a void one is repeated."""
        for _ in range(VOIDS_MAX):
            step = parts.take(round(multiple * rate_per_s, 1), VERIFY_STEPS * self.request.step_s)
            self.progress.say(f"verify at {multiple:g}: {step.words()}")
            if step.tried.outcome != VOID:
                break
        self.outcomes.append((multiple, step.tried.outcome))
        if step.tried.outcome != VOID:
            found = {"rate": step.tried.rate_per_s, "times": multiple, "meets": step.columns["meets"]}
            self.columns["verify"].append({**found, "p99_ms": step.columns["latency_ms"]["p99"]})
        self.write()

    def scale(self, parts: Stage, found_per_s: float) -> None:
        """The limits of other numbers of workers, searched around what the found rate lets expect."""
        request = self.request
        for workers in range(1, WORKER_COUNTS + 1):
            if workers == request.workers_measured:
                continue
            left_s = request.within_s - (time.monotonic() - self.begun_s)
            if left_s < guess_s(request):
                self.progress.say(f"the limit of {workers} workers is not searched: {left_s:.0f} s are left, which is too little")
                return
            self.progress.say(f"the limit of {workers} workers")
            parts.start_workers(workers)
            first = round(max(request.least_per_s, GUESS_SHARE * found_per_s * workers / request.workers_measured), 1)
            step_s, least = request.step_s, request.least_per_s
            guess = Limits(first, least, RATE_MAX_PER_S, step_s, step_s, GUESS_GROWTH, GUESS_RESOLUTION, GUESS_STEPS_MAX)
            self.search(parts, guess)

    def keep(self, step: Step) -> None:
        """Add a step of a search."""
        self.progress.say(step.words())
        self.columns["steps"].append(step.columns)
        if step.columns["meets"]:
            self.net_bytes_per_job = step.net_bytes_per_job
        self.write()

    def write(self) -> None:
        """Write the file in one step."""
        fresh = self.file.with_suffix(".tmp")
        fresh.write_text(json.dumps(self.columns, indent=1) + "\n")
        fresh.replace(self.file)

    def conclusion(self) -> str:
        """What came of it, in one sentence."""
        found, wanted = self.found, f"a p99 of {self.request.p99_target_ms:g} ms"
        if found.rate_per_s is None:
            reason = f"steps were void: {self.void}" if found.wall else "the lowest rate that can be measured misses"
            return f"no rate was found that meets {wanted}: {reason}"
        line = f"{found.rate_per_s:g} jobs/s met {wanted} in the long step"
        if found.wall:
            return f"{line}; {found.high_per_s:g} could not be measured here, because its steps were void: {self.void}"
        if self.predicted is None:
            return f"{line}; half of the steps predict nothing, so there is no prediction to use"
        return line + ("; the prediction holds" if self.verdict.holds else "; the prediction is not to be used")

    @property
    def void(self) -> str:
        """Why the newest step that proves nothing does not; empty where each of them proves something."""
        return next((step["void"] for step in reversed(self.columns["steps"]) if step["void"]), "")

    def exit_code(self) -> int:
        """See `capacity`."""
        if self.found.rate_per_s is None or self.predicted is None or any(outcome == VOID for _, outcome in self.outcomes):
            return UNKNOWN
        return VERIFIED if self.verdict.holds else NOT_VERIFIED


def compared(folder: runs.RunFolder, interrupts: Interrupts) -> int:
    """How near the simulator comes, as `reports` prints it: 0 near, 1 not, 2 unknown."""
    code = shown(["simulation", str(folder.path)], interrupts)
    folder.release()
    return code if code in (VERIFIED, NOT_VERIFIED) else UNKNOWN


def guess_s(request: Request) -> float:
    """The most that the search for the limit of another number of workers takes, and what comes after it."""
    return GUESS_STEPS_MAX * (request.step_s + BESIDE_STEP_S) + END_S


def target(request: Request) -> dict[str, Any]:
    """What must be met, and with which jobs."""
    return {
        "p99_ms": request.p99_target_ms,
        "payload_bytes": request.payload_bytes,
        "handler_ms": request.handler_ms,
        "model": request.model,
        "topology": request.topology,
    }


def header(request: Request, server: str, now_s: float) -> dict[str, Any]:
    """What is known before anything is measured."""
    return {
        "schema": SCHEMA,
        "made": runs.utc(now_s),
        "machine": {"cores": os.cpu_count(), "cpu": cpu_model(), "server": server},
        "target": target(request),
        "steps": [],
        "recovery": {},
        "verify": [],
    }


def report(request: Request, run: Path, progress: Progress, interrupts: Interrupts) -> None:
    """Have `reports` fit and plan. One that refuses leaves the measurement as it is."""
    words = ["--backlog-s", f"{request.backlog_s:g}"]
    words += ["--rate", f"{request.rate_per_s:g}"] if request.rate_per_s else []
    try:
        show(["capacity", str(run), *words], interrupts)
    except HarnessError as error:
        interrupts.check()
        progress.say(f"no plan: {error}")
