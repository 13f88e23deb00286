"""`run upgrade`: the engine of another commit and that of HEAD share a queue, as while a service is upgraded.

Both are wheels, built from their commits, of which the processes get the package `engine`; the harness's own modules are those of
this checkout for all. Processes with odd numbers have the other engine, and those with even ones that of HEAD.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.commits import NoCommit, short_hash, unpacked
from chaos import rows, runs
from chaos.drill import Drill, Frame
from chaos.errors import HarnessError
from chaos.installed import of_checkout
from chaos.interrupts import Interrupts
from chaos.plan import Pace, Plan, PlannedFault
from chaos.processes import ROOT, Child, Crew, producer_command
from chaos.run import Run, carry_out
from chaos.scenarios.bench import Jobs
from chaos.spec import RunSpec
from record.environment import FILE

NEW = "HEAD"
#: Folders of a run that hold the package `engine` of either commit.
OLD_ENGINE, NEW_ENGINE = "engine-old", "engine-new"
SECOND_PRODUCER = "producer-2"
LEASE_MS, SWEEP_MS = 5_000, 500
PACE = Pace(lead_in_ms=6_000)
BUILD_TIMEOUT_S = 120
#: One worker of either engine is killed, and one of the other takes its place: an upgrade, and one that is taken back. Another
#: one of either is frozen for longer than its leases last, and its late ends are refused.
FAULTS = (
    ("worker-kill", "worker-1", "worker-6"),
    ("worker-kill", "worker-2", "worker-5"),
    ("worker-freeze", "worker-3", ""),
    ("worker-freeze", "worker-4", ""),
)


def upgrade(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Carry out the drill of both engines, and judge it. Returns the exit code. Raises as `chaos.scenarios.bench.bench`."""
    of_checkout("run upgrade")
    try:
        old, new = short_hash(arguments.rev), short_hash(NEW)
    except NoCommit as error:
        raise HarnessError(str(error)) from error
    spec = RunSpec(
        id=runs.run_id("upgrade", arguments.seed, old, time.time()),
        seed=arguments.seed,
        scenario=f"upgrade {old} {new}",
        lease_ms=LEASE_MS,
        sweep_ms=SWEEP_MS,
        workers=4,
        consumers=2,
    )
    return carry_out(Upgrade(spec=spec, plan=draw(arguments.seed), old=old, new=new), arguments, interrupts)[0]


def draw(seed: int) -> Plan:
    """The plan of a seed: the same faults in another order, after other delays."""
    randomness = random.Random(f"upgrade {seed}")
    drawn = randomness.sample(FAULTS, len(FAULTS))
    faults = [
        PlannedFault(f"{number}-{name}", name, target, randomness.randint(0, PACE.delay_max_ms), replacement)
        for number, (name, target, replacement) in enumerate(drawn, start=1)
    ]
    return Plan(seed, PACE, tuple(faults))


def unpack_engine(commit: str, place: Path) -> None:
    """Build the wheel of a commit, and put its package `engine` into a folder. Raises HarnessError."""
    with TemporaryDirectory(prefix="ironclaim-upgrade-") as scratch:
        try:
            tree = unpacked(commit, Path(scratch))
        except NoCommit as error:
            raise HarnessError(str(error)) from error
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", scratch, str(tree)]
        built = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
        if built.returncode != 0:
            raise HarnessError(f"the wheel of {commit} was not built: {(built.stdout + built.stderr).strip().splitlines()[-1]}")
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place, [name for name in archive.namelist() if name.startswith("engine/")])


@dataclass
class UpgradeCrew(Crew):
    """A crew of which each process gets one of the two engines, by its number."""

    def start_producer(self, name: str) -> Child:
        """Announce a producer, then start it. Both share the rate, and the ids of each begin with a seed of its own."""
        self.manifest.append([rows.process("producer", name, f"{name}.jsonl")])
        share = replace(self.spec, seed=self.spec.seed + number_of(name), rate_per_s=max(1, self.spec.rate_per_s // 2))
        command = producer_command(share, self.connect(name), self.history / f"{name}.jsonl", self.lua)
        return self._start(name, "producer", command, {})

    def _start(self, name: str, role: str, command: list[str], environment: Mapping[str, str]) -> Child:
        # Without the safe path the folder that a process starts in comes first, and with it the engine of this checkout.
        engine = self.history.parent / (OLD_ENGINE if number_of(name) % 2 else NEW_ENGINE)
        path = os.pathsep.join((str(engine), str(ROOT)))
        if FILE in environment and (engine / "engine" / "recorder.py").exists():
            # An engine whose environment names no observers records by itself.
            command = [*command, "--history", environment[FILE]]
        return super()._start(name, role, command, {**environment, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"})


def number_of(name: str) -> int:
    """The number of a process: 2 for worker-2."""
    return int(name.rpartition("-")[2])


@dataclass
class UpgradeDrill(Drill):
    """A drill whose processes have one of two engines."""

    crew_of = UpgradeCrew

    def _begin_load(self) -> None:
        super()._begin_load()
        self._crew.start_producer(SECOND_PRODUCER)

    def _end_load(self) -> None:
        self.errors += self._crew.stop([SECOND_PRODUCER])
        super()._end_load()


@dataclass(frozen=True, kw_only=True)
class Upgrade(Jobs):
    """The engines of two commits on one queue."""

    old: str
    new: str

    DRILL = UpgradeDrill
    RATED = False

    def about(self, spec: RunSpec) -> str:
        return f"workers and producers of {self.old} and {self.new}, {spec.rate_per_s} jobs/s, seed {spec.seed}"

    def drill(self, run: Run[RunSpec], **more: Any) -> Frame[RunSpec]:
        run.progress.say("building the wheels of both commits")
        for commit, name in ((self.old, OLD_ENGINE), (self.new, NEW_ENGINE)):
            unpack_engine(commit, run.folder.path / name)
        return super().drill(run, **more)
