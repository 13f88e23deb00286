"""The verbs `run target` and `campaign targets`: a drill of another job queue, judged by its own promise."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace

from bench.peers.environments import NotAvailable, command_of
from bench.peers.libraries import LIBRARIES
from chaos import machine, runs, topology
from chaos.command import announce, conclude, prune, toxiproxy_program, utc
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.judge import EarlyJudge
from chaos.progress import Progress
from chaos.targets.drill import TargetDrill
from chaos.targets.plan import draw
from chaos.targets.promises import find
from chaos.targets.spec import TargetSpec, wait_ms

ALL = "all"


def bench_targets(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Drill the target, or one after the other all that this machine can run. Returns the worst exit code.

    Raises HarnessError and ServerMissing when a drill cannot begin.
    """
    if arguments.target != ALL:
        return one(arguments.target, arguments, interrupts)
    codes: list[int] = []
    for library in LIBRARIES:
        try:
            codes.append(one(library.name, arguments, interrupts))
        except NotAvailable as error:
            print(f"chaos: {library.name}: {error}", flush=True)
    # Violated beats unknown beats valid.
    return next(code for code in (1, 2, 0) if code in codes)


def one(name: str, arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """The drill of one target; its exit code. Raises as `bench_targets`, and NotAvailable."""
    library, promise = find(name)
    now_s = time.time()
    kinds: Sequence[str] | None = arguments.faults
    spec = TargetSpec(
        id=runs.run_id("target", arguments.seed, name, now_s),
        seed=arguments.seed,
        target=name,
        promise=promise.for_spec(),
        settings=dict(library.default),
        packages=library.packages if library.runtime in ("python", "node") else (),
        wait_ms=wait_ms(promise, arguments.minutes),
        again=again(name, arguments),
        started_utc=utc(now_s),
    )
    plan = draw(arguments.seed, workers=spec.workers, kinds=kinds)
    try:
        command = command_of(library)
    except NotAvailable as error:
        if arguments.target == ALL:
            raise
        raise HarnessError(f"target {name}: {error}") from error
    progress = Progress(sys.stdout)
    toxiproxy = toxiproxy_program(progress, interrupts) if plan.needs_network() else None
    folder = runs.create(arguments.runs.absolute(), spec.id)
    spec = replace(
        spec,
        id=folder.path.name,
        packages=tuple(package for package in spec.packages if "/" not in package.split("[")[0]),
        plan=tuple(asdict(planned) for planned in plan.faults),
        **machine.provenance(topology.binary(), toxiproxy),
    )
    spec.write(folder.path / "spec.json", harness_errors=[])
    bound = "none" if promise.recovery_bound_ms is None else f"{promise.recovery_bound_ms / 1_000:.0f} s"
    about = f"{name} promises to run a job {promise.delivery}, recovery bound {bound}; seed {spec.seed}"
    announce(progress, plan, folder, about, None)
    prune(progress, arguments, now_s)
    drill = TargetDrill(
        *(spec, plan, folder, progress, interrupts), toxiproxy=toxiproxy, command=command, runtime=library.runtime
    )
    interrupts.check()
    with EarlyJudge(folder.path, every=getattr(arguments, "all", False)) as early:
        drill.run()
        spec.write(folder.path / "spec.json", harness_errors=drill.errors, ended_utc=utc(time.time()))
        code = conclude(drill, progress, early)
    folder.release()
    return code


def again(name: str, arguments: argparse.Namespace) -> str:
    """The command that draws the same plan and runs it."""
    words = [f"python -m chaos run target {name} --seed {arguments.seed}"]
    words += [f"--minutes {arguments.minutes}"] if arguments.minutes is not None else []
    words += [f"--fault {','.join(arguments.faults)}"] if arguments.faults else []
    return " ".join(words)
