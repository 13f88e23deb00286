"""The drill of a load whose processes somebody else starts, on this host or on others.

It announces the processes of the load and the workers in the manifest, looks at the server and at the clocks, and takes the
snapshots when the load has ended: what a history needs beside the files that those processes write into the folder of the run. It
starts and stops none of them, and there are no faults. It writes nothing to the server, because the queue is not its own; the
limits that hold there are read, and stand in the spec.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from bench import models
from chaos.drill import START_TIMEOUT_S, Drill
from chaos.errors import HarnessError
from chaos.plan import PRODUCER, worker_names
from chaos.probe import Address, address_of
from engine import EngineError, Queue
from record.environment import recording

#: Others start the processes of the load, by hand or as pods, and stop them.
PATIENCE_S = 3_600.0

#: What keeps a run from its beginning is said after this, because a row may be on its way, and ends it after `START_TIMEOUT_S`.
SAID_AFTER_S = 5.0

#: How often the server is asked which workers it knows.
LOOK_S = 1.0


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
    #: What keeps the run from its beginning, since when (monotonic s), and whether that was said.
    _reason: str = ""
    _since_s: float = 0.0
    _said: bool = False
    _looked_s: float = float("-inf")
    _unrecorded_worker: str = ""

    def _start_servers(self, stack: ExitStack, topology: str, durability: str, tag: str) -> Callable[[str], str]:
        self._servers = Given(self.url)
        return lambda name: self.url

    def _settle_queue(self) -> None:
        """The queue keeps what it has."""

    def _start_workers(self) -> tuple[str, ...]:
        names = worker_names(self.spec.workers)
        for name in names:
            self._crew.announce_worker(name)
            self._watch.follow(name)
        self._phase = "waiting for workers"
        self.progress.say(f"waiting for {', '.join(names)}, whose histories belong in {self.folder.history}")
        return names

    def _start_producers(self) -> None:
        self._producers = tuple(file.stem for file in self._crew.announce_producers(PRODUCER))
        for name in self._producers:
            self._watch.follow(name)
        self._phase = "waiting for the load"
        self.progress.say(f"waiting for {', '.join(self._producers)}: start the load")

    def _carry_out(self) -> None:
        """Wait for the load, for its end, until the queue is drained, and until the workers have been stopped."""
        self._begin_load()
        self._require(lambda: self._closed(self._producers), "the load did not end")
        # As after the last fault of a drill: every worker got work in the time before the load ended.
        self._drain(time.monotonic_ns() - self.plan.pace.settle_ms * 1_000_000)
        self.progress.say("the queue is drained: stop the workers")
        self._require(lambda: self._closed(worker_names(self.spec.workers)), "the workers did not close their histories")
        if limits_of(self._queue) != self.spec.limits:
            self.errors.append("limits of the queue were changed during the run: no check knows which of them held")

    def _closed(self, names: tuple[str, ...]) -> bool:
        return all(self._watch.view(name).closed for name in names)

    def _require(self, condition: Callable[[], bool], complaint: str) -> None:
        if not self.wait(condition, timeout_s=PATIENCE_S, poll_s=0.05):
            raise HarnessError(f"{complaint} within {PATIENCE_S:.0f} s")

    def _tick(self) -> None:
        super()._tick()
        if not self.loaded:
            self._explain(time.monotonic())

    def _explain(self, now_s: float) -> None:
        """Say what keeps the run from its beginning, and end it where that lasts. Raises HarnessError."""
        reason = self._unrecorded(now_s)
        if reason != self._reason:
            self._reason, self._since_s, self._said = reason, now_s, False
        lasted_s = now_s - self._since_s
        # Also by a process that stood still for longer than both: who reads along sees what ended it coming.
        if reason and not self._said and lasted_s >= SAID_AFTER_S:
            self.progress.say(reason)
            self._said = True
        if reason and lasted_s >= START_TIMEOUT_S:
            raise HarnessError(reason)

    def _unrecorded(self, now_s: float) -> str:
        """Who works or sends without a history in the folder of the run; empty when nobody does, as far as is known."""
        for name in worker_names(self.spec.workers):
            job = next(iter(self._watch.view(name).claimed), None)
            if job and not self._watch.created():
                return (
                    f"{name} runs jobs that no history tells of, {job} first: their producers do not record, or they were in the "
                    f"queue before. Start producers with {self._told(self._producers[0] if self._producers else PRODUCER)}"
                )
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s, self._unrecorded_worker = now_s, self._stranger()
        return self._unrecorded_worker

    def _stranger(self) -> str:
        """What is wrong with a worker that the server knows and this run does not; empty when there is none."""
        names = worker_names(self.spec.workers)
        missing = [name for name in names if not self._watch.view(name).opened]
        listed = sorted({worker.name for worker in self._queue.workers.list()}) if missing else []
        for name in listed:
            if name in missing:
                return f"{name} works without a history in this run. Start it with {self._told(name)}"
            if name not in names:
                return f"a worker works as {name}, and this run waits for {', '.join(missing)}. Start it with --name {missing[0]}"
        return ""

    def _told(self, proc: str) -> str:
        """The variables by which a process records into this run."""
        told = recording(self.folder.history / f"{proc}.jsonl")
        return " ".join(f"{name}={value}" for name, value in told.items())

    def _pids(self) -> dict[str, int]:
        """The processes of this host, too. Those of others cannot be sampled."""
        here = socket.gethostname()
        names = (*worker_names(self.spec.workers), *self._producers)
        return {**super()._pids(), **{name: view.pid for name in names if (view := self._watch.view(name)).host == here}}


def limits_of(queue: Queue) -> tuple[dict[str, Any], ...]:
    """The limits that the queue has, as fields of the spec. Raises EngineError."""
    found = (limit for limit in queue.limits() if not limit.inherited)
    bounds = ("concurrency", "rate", "per_ms", "window")
    named = [
        ({"name": one.name} if one.name else {"key": one.key}) | {bound: getattr(one, bound) for bound in bounds} for one in found
    ]
    return tuple(sorted(named, key=lambda limit: (limit.get("name", ""), limit.get("key", ""))))


def own_features(url: str, name: str) -> dict[str, Any]:
    """What the queue has of its own, as fields of the spec. Raises HarnessError for one that cannot be asked, or that makes jobs
    by itself."""
    try:
        with models.queue(models.LANES, name, url=url) as queue:
            limits, schedules = limits_of(queue), queue.schedules.list()
    except EngineError as error:
        raise HarnessError(str(error)) from error
    if ticking := [schedule.name for schedule in schedules if schedule.enabled]:
        raise HarnessError(
            f"queue {name} has schedules that tick ({', '.join(ticking)}): they make jobs after the load, so the run has no end. "
            "Disable them for the run: ironclaim cron disable"
        )
    return {"limits": limits, "schedules": ()}
