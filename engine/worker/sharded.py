"""A worker of a queue with shards: one for each shard, and what they share (docs/guides/shards.md).

They share the places of the handlers, one block on the wake lists of all shards, one control connection and
one driver. An idle shard costs little: its leader sweeps every quarter of a lease, and its other workers beat
rarely. So somebody has to notice when that leader dies with jobs in hand. That is the process that leads
shard 0, which is looked after as any queue is: it also looks after the leaders of all other shards.

The record of the shards is read every few seconds; when the queue is resharded, workers of new shards begin,
and those of former ones stop once these are empty.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from engine.errors import EngineError, logger
from engine.handlers import Handlers
from engine.logs import Source, about
from engine.queue.synchronous import Queue
from engine.worker.control import stop_signals
from engine.worker.loop import Ends, SharedThreads
from engine.worker.machine.concurrency import Places, Quota
from engine.worker.machine.events import PauseAsked, Settings, StopAsked, StopReason
from engine.worker.shared import SharedConnections

log = logger("ironclaim.worker")

#: Between two looks at the record.
LOOK_S = 5.0
#: A worker beats in an idle shard so many times more rarely, unless it watches.
IDLE_BEATS = 16


class OfShard(Protocol):
    """What a Worker can be asked as that of one shard."""

    def ask(self, event: StopAsked | PauseAsked) -> None:
        """What it is asked like all others: to stop, or to pause."""
        ...

    def watch(self, on: bool) -> None:
        """Whether it looks after the leader of its shard."""
        ...

    def beats_rarely(self, times: int) -> None:
        """Beat so many times more rarely."""
        ...

    def on_lead(self, told: Callable[[bool], None]) -> None:
        """Whom to tell that it leads."""
        ...

    def take_part(self, share: Quota, connections: SharedConnections, threads: SharedThreads) -> None:
        """What it shares with the others."""
        ...

    def begin(
        self, ended: Callable[[StopReason | BaseException], None], *, burst: bool, delayed: bool
    ) -> None:
        """Begin to work."""
        ...


class ShardWorkers:
    """The workers of all shards of a queue, which have these settings; `make` makes that of one shard, which
    sweeps so often, in ms. `max_jobs` counts the jobs of each shard."""

    def __init__(
        self, whole: Queue, handlers: Handlers, settings: Settings, make: Callable[[Queue, int], OfShard]
    ) -> None:
        self._whole = whole
        self._handlers = handlers
        self._settings = settings
        self._make = make
        self._of_each: dict[str, OfShard] = {}
        self._quotas: dict[str, Quota] = {}
        self._ended = threading.Condition()
        self._ends = Ends()
        self._asked: list[StopAsked | PauseAsked] = []
        self._watches = self._stopping = self._begun = False

    def ask(self, event: StopAsked | PauseAsked) -> None:
        """Ask the workers of all shards, also those that begin later."""
        with self._ended:
            if isinstance(event, PauseAsked):
                # Of several the last one holds.
                self._asked = [asked for asked in self._asked if not isinstance(asked, PauseAsked)]
            self._asked.append(event)
            self._stopping = self._stopping or isinstance(event, StopAsked)
            for worker in self._of_each.values():
                worker.ask(event)
            self._ended.notify_all()

    def run(self, burst: bool, delayed: bool) -> StopReason:
        """As Worker.run."""
        whole, settings = self._whole, self._settings
        self._places = Places(settings.concurrency or settings.places)
        self._connections = SharedConnections(whole.endpoint, whole.model.keys.prefix)
        self._threads = threads = SharedThreads.of(settings.concurrency)
        self._ends, self._begun = Ends(), False
        try:
            with (
                threads.lifetime(self._handlers),
                stop_signals(lambda reason: self.ask(StopAsked(reason))),
            ):
                self._serve(burst, delayed)
        finally:
            threads.close()
            with self._ended:
                # What was asked before a run that could not begin is for the next one.
                if self._begun:
                    self._asked, self._stopping = [], False
        return self._ends.outcome()

    def _serve(self, burst: bool, delayed: bool) -> None:
        """Have a worker for each shard in use, until all have ended."""
        while True:
            try:
                names = self._whole.look_up().names(self._whole.name)
            except EngineError:
                if not self._of_each:
                    raise
                # The server is away: the workers of the shards say so.
                names = tuple(self._of_each)
            with self._ended:
                for name in names:
                    if name not in self._of_each and not self._stopping and not self._ends.failures:
                        self._begin(name, burst, delayed)
                for name, worker in self._of_each.items():
                    if name not in names:
                        worker.ask(StopAsked())
                self._ended.wait_for(self._over, LOOK_S)
                if self._over():
                    return

    def _over(self) -> bool:
        """Whether all have ended."""
        return not self._of_each

    def _begin(self, name: str, burst: bool, delayed: bool) -> None:
        """Start the worker of one shard."""
        settings, first = self._settings, name == self._whole.name
        sweep_ms = settings.sweep_ms if first or burst else max(settings.sweep_ms, settings.lease_ms // 4)
        worker = self._make(self._whole.shard(name), sweep_ms)
        if not first:
            worker.beats_rarely(IDLE_BEATS)
            worker.watch(self._watches)
        else:
            worker.on_lead(self._lead)
        # First of all: a signal may come between any two lines, and tells those that are here.
        self._of_each[name] = worker
        self._begun = True
        for asked in self._asked:
            worker.ask(asked)
        quota = self._quotas[name] = self._places.join()
        worker.take_part(quota, self._connections, self._threads)
        worker.begin(partial(self._shard_ended, name), burst=burst, delayed=delayed)

    def _shard_ended(self, name: str, why: StopReason | BaseException) -> None:
        """The worker of one shard has ended."""
        with self._ended:
            self._of_each.pop(name, None)
            self._quotas.pop(name).leave()
            self._ends.note(why)
            others = list(self._of_each.values())
            left = why == "stopped" and not self._stopping and not self._ends.failures
            self._ended.notify_all()
        if why != "empty" and not left:
            for other in others:
                other.ask(StopAsked())

    def _lead(self, leads: bool) -> None:
        """This process leads shard 0, and looks after the leaders of the others; or it does so no more."""
        self._watches = leads
        with suppress(RuntimeError):
            for name, worker in list(self._of_each.items()):
                if name != self._whole.name:
                    worker.watch(leads)
        source = Source(self._settings.name, self._whole.name)
        log.debug("looks after the leaders of all shards: %s", leads, extra=about(None, source))
