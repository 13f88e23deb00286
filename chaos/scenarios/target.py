"""`run target` and `campaign targets`: another job queue, judged by its own promise."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.peers.environments import NotAvailable, command_of
from bench.peers.libraries import LIBRARIES, Library
from chaos import campaign, runs
from chaos.drill import Frame
from chaos.errors import HarnessError
from chaos.installed import of_checkout
from chaos.interrupts import Interrupts
from chaos.run import Run, Scenario, carry_out
from chaos.targets.drill import TargetDrill
from chaos.targets.promises import find
from chaos.targets.spec import TargetSpec, draw, wait_ms


@dataclass(frozen=True, kw_only=True)
class Target(Scenario[TargetSpec]):
    """A run of another job queue. `command`: what runs its adapter."""

    library: Library
    command: list[str]

    DRILL = TargetDrill
    CALIBRATED = False

    def about(self, spec: TargetSpec) -> str:
        bound_ms = spec.promise["recovery_bound_ms"]
        bound = "none" if bound_ms is None else f"{bound_ms / 1_000:.0f} s"
        return f"{spec.target} promises to run a job {spec.promise['delivery']}, recovery bound {bound}; seed {spec.seed}"

    def drill(self, run: Run[TargetSpec], **more: Any) -> Frame[TargetSpec]:
        return super().drill(run, command=self.command, runtime=self.library.runtime, **more)


def target(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Drill a target. Returns the exit code. Raises HarnessError and ServerMissing when the drill cannot begin."""
    of_checkout("run target")
    try:
        return carry_out(of_name(arguments.target, arguments), arguments, interrupts)[0]
    except NotAvailable as error:
        raise HarnessError(f"target {arguments.target}: {error}") from error


def targets(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Drill one after the other all that this machine can run. Returns the worst exit code. Raises as `target`."""
    of_checkout("campaign targets")
    return campaign.worst_of(available(arguments), arguments, interrupts)


def available(arguments: argparse.Namespace) -> Iterator[Target]:
    """All that this machine can run; of the others it is said why it cannot."""
    for library in LIBRARIES:
        try:
            yield of_name(library.name, arguments)
        except NotAvailable as error:
            print(f"chaos: {library.name}: {error}", flush=True)


def of_name(name: str, arguments: argparse.Namespace) -> Target:
    """The drill of a target. Raises HarnessError, and NotAvailable."""
    library, promise = find(name)
    packages = library.packages if library.runtime in ("python", "node") else ()
    spec = TargetSpec(
        id=runs.run_id("target", arguments.seed, name, time.time()),
        seed=arguments.seed,
        target=name,
        promise=promise.for_spec(),
        settings=dict(library.default),
        packages=tuple(package for package in packages if "/" not in package.split("[")[0]),
        wait_ms=wait_ms(promise, arguments.minutes),
        again=again(name, arguments),
    )
    plan = draw(arguments.seed, workers=spec.workers, kinds=arguments.faults)
    return Target(spec=spec, plan=plan, library=library, command=command_of(library))


def again(name: str, arguments: argparse.Namespace) -> str:
    """The command that draws the same plan and runs it."""
    words = [f"python -m chaos run target {name} --seed {arguments.seed}"]
    words += [f"--minutes {arguments.minutes}"] if arguments.minutes is not None else []
    words += [f"--fault {','.join(arguments.faults)}"] if arguments.faults else []
    return " ".join(words)
