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
from typing import Any, Unpack, cast

from engine.errors import EngineError, Malformed, logger
from engine.handlers import Handlers
from engine.logs import Source, about
from engine.options import read_often, shows
from engine.queue.settings import QueueSettings, synchronous
from engine.queue.synchronous.queue import Queue
from engine.worker.control import stop_signals
from engine.worker.loop import Ends, SharedThreads
from engine.worker.machine.concurrency import Places, Quota
from engine.worker.machine.events import StopReason
from engine.worker.settings import WorkerSettings
from engine.worker.shared import SharedConnections
from engine.worker.worker import Worker

log = logger("ironclaim.worker")

#: Between two looks at the record.
LOOK_S = 5.0
#: A worker beats in an idle shard so many times more rarely, unless it watches.
IDLE_BEATS = 16


#: Of these the last one holds.
_PAUSES = (Worker.pause, Worker.resume)


class ShardedWorker(Worker):
    """A worker of all shards of a queue. It has no child processes, and `max_jobs` counts the jobs of each
    shard."""

    @shows(WorkerSettings)
    def __init__(
        self, queue: QueueSettings, handlers: Handlers | None = None, **settings: Unpack[WorkerSettings]
    ) -> None:
        self._whole: Queue = synchronous(queue)
        self._given = settings = cast("WorkerSettings", read_often(settings))
        # Its settings are checked now, and it is never run.
        first = self._whole.shard(self._whole.name)
        super().__init__(first, handlers, **settings)
        if processes := self._settings.processes:
            raise Malformed(
                "processes", processes, "0 for a queue with shards: start several workers instead"
            )
        self._given["name"] = self._settings.name
        self._of_each: dict[str, Worker] = {}
        self._quotas: dict[str, Quota] = {}
        self._ended = threading.Condition()
        self._ends = Ends()
        self._asked: list[Callable[[Worker], None]] = []
        self._watches = False

    @property
    def queue(self) -> Any:
        """The queue that it works for."""
        return self._whole

    def stop(self, *, at_once: bool = False) -> None:
        """Ask the workers of all shards to stop, as Worker.stop does."""
        self._tell(lambda worker: worker.stop(at_once=at_once), stops=True)

    def pause(self) -> None:
        """Claim and start nothing more until `resume`."""
        self._tell(Worker.pause)

    def resume(self) -> None:
        """End the pause."""
        self._tell(Worker.resume)

    def take_part(self, share: Any, connections: SharedConnections, threads: SharedThreads) -> None:
        """Not in a group: Malformed."""
        raise Malformed(
            "queues", self._whole.name, "queues without shards: a queue with shards has a Worker of its own"
        )

    def _tell(self, what: Callable[[Worker], None], *, stops: bool = False) -> None:
        """Tell the workers of all shards, also those that begin later."""
        with self._ended:
            if what in _PAUSES:
                self._asked = [asked for asked in self._asked if asked not in _PAUSES]
            self._asked.append(what)
            self._stopping = self._stopping or stops
            for worker in self._of_each.values():
                what(worker)
            self._ended.notify_all()

    _stopping = _begun = False

    def _run(self, burst: bool, delayed: bool) -> StopReason:
        whole, settings = self._whole, self._settings
        self._places = Places(settings.concurrency or settings.places)
        self._connections = SharedConnections(whole.endpoint, whole.model.keys.prefix)
        self._pools = threads = SharedThreads.of(settings.concurrency)
        self._ends, self._begun = Ends(), False
        try:
            with (
                threads.lifetime(self._handlers),
                stop_signals(lambda reason: self.stop(at_once=reason == "at once")),
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
                        worker.stop()
                self._ended.wait_for(self._over, LOOK_S)
                if self._over():
                    return

    def _over(self) -> bool:
        """Whether all have ended."""
        return not self._of_each

    def _begin(self, name: str, burst: bool, delayed: bool) -> None:
        """Start the worker of one shard."""
        connections, threads = self._connections, self._pools
        assert connections is not None and threads is not None
        shard, given = self._whole.shard(name), self._given.copy()
        first = name == self._whole.name
        if not (first or burst):
            given["sweep_ms"] = max(self._settings.sweep_ms, self._settings.lease_ms // 4)
        worker = Worker(shard, self._handlers, **given)
        if not first:
            worker.beats_rarely(IDLE_BEATS)
            worker.watch(self._watches)
        else:
            worker.on_lead(self._lead)
        # First of all: a signal may come between any two lines, and tells those that are here.
        self._of_each[name] = worker
        self._begun = True
        for asked in self._asked:
            asked(worker)
        quota = self._quotas[name] = self._places.join()
        worker.take_part(quota, connections, threads)
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
                other.stop()

    def _lead(self, leads: bool) -> None:
        """This process leads shard 0, and looks after the leaders of the others; or it does so no more."""
        self._watches = leads
        with suppress(RuntimeError):
            for name, worker in list(self._of_each.items()):
                if name != self._whole.name:
                    worker.watch(leads)
        source = Source(self._settings.name, self._whole.name)
        log.debug("looks after the leaders of all shards: %s", leads, extra=about(None, source))
