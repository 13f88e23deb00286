"""The command `attend`: the harness of a load whose processes somebody else starts, on this host or on others.

It announces the processes of the load and the workers in the manifest, looks at the server and at the clocks, and takes the
snapshots when the load has ended: what a history needs beside the files that those processes write into the folder of the run. It
starts and stops none of them, and there are no faults.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType

from chaos import machine, runs
from chaos.command import featured, perform, prune, utc
from chaos.drill import Drill
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.judge import UNKNOWN, VALID
from chaos.plan import PRODUCER, Pace, Plan, worker_names
from chaos.probe import Address, address_of
from chaos.progress import Progress
from chaos.spec import RunSpec
from engine import validate

#: Others start the processes of the load, by hand or as pods, and stop them.
PATIENCE_S = 3_600.0

SCENARIO = "attended"


class Given:
    """A server that is there already, and is none of ours."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __enter__(self) -> Given:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def address(self) -> Address:
        return address_of(self.url)

    def server_pids(self) -> dict[str, int]:
        return {}

    def complaint(self) -> str:
        return ""

    def unplanned_failover(self) -> str:
        return ""


@dataclass
class Attendance(Drill):
    """A run whose processes are announced and followed, and started by others."""

    url: str = field(default="", repr=False)
    _producers: tuple[str, ...] = ()

    def _start_servers(self, stack: ExitStack, topology: str, durability: str, tag: str) -> Callable[[str], str]:
        self._servers = Given(self.url)
        return lambda name: self.url

    def _start_workers(self) -> tuple[str, ...]:
        names = worker_names(self.spec.workers)
        for name in names:
            self._crew.announce_worker(name)
            self._watch.follow(name)
        self.progress.say(f"waiting for {', '.join(names)}, whose histories belong in {self.folder.history}")
        return names

    def _start_producers(self) -> None:
        self._producers = tuple(file.stem for file in self._crew.announce_producers(PRODUCER))
        for name in self._producers:
            self._watch.follow(name)
        self.progress.say(f"waiting for {', '.join(self._producers)}: start the load")

    def _carry_out(self) -> None:
        """Wait for the load, for its end, until the queue is drained, and until the workers have been stopped."""
        self._begin_load()
        self._require(lambda: self._closed(self._producers), "the load did not end")
        # As after the last fault of a drill: every worker got work in the time before the load ended.
        self._drain(time.monotonic_ns() - self.plan.pace.settle_ms * 1_000_000)
        self.progress.say("the queue is drained: stop the workers")
        self._require(lambda: self._closed(worker_names(self.spec.workers)), "the workers did not close their histories")

    def _closed(self, names: tuple[str, ...]) -> bool:
        return all(self._watch.view(name).closed for name in names)

    def _require(self, condition: Callable[[], bool], complaint: str) -> None:
        if not self.wait(condition, timeout_s=PATIENCE_S, poll_s=0.05):
            raise HarnessError(f"{complaint} within {PATIENCE_S:.0f} s")

    def _pids(self) -> dict[str, int]:
        """The processes of this host, too. Those of others cannot be sampled."""
        here = socket.gethostname()
        names = (*worker_names(self.spec.workers), *self._producers)
        return {**super()._pids(), **{name: view.pid for name in names if (view := self._watch.view(name)).host == here}}


def attend(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Record a run whose processes others start; 0 when all of it is there, for `python -m reports judge` to judge. Raises
    HarnessError when it cannot begin."""
    now_s = time.time()
    spec = featured(
        RunSpec(
            id=runs.run_id(SCENARIO, arguments.seed, "", now_s),
            scenario=SCENARIO,
            seed=arguments.seed,
            queue=validate.queue_name(arguments.queue),
            workers=arguments.workers,
            consumers=0,
            producers=arguments.producers,
            rate_per_s=arguments.rate,
            lease_ms=arguments.lease_ms,
        )
    )
    folder = runs.create(arguments.runs.absolute(), spec.id)
    spec = replace(
        spec,
        id=folder.path.name,
        started_utc=utc(now_s),
        **machine.provenance(),
    )
    spec.write(folder.path / "spec.json", harness_errors=[])
    progress = Progress(sys.stdout)
    progress.say(f"run {folder.path.name} in {folder.path}")
    prune(progress, arguments, now_s)
    drill = Attendance(spec, Plan(spec.seed, Pace(), ()), folder, progress, interrupts, url=arguments.url)
    perform(drill)
    for error in drill.errors:
        progress.say(f"harness: {error}")
    progress.say(f"judge it: python -m reports judge {folder.path}")
    folder.release()
    return UNKNOWN if drill.errors else VALID
