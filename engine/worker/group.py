"""Several queues worked off by one process: a worker for each, and places that they share (MQ33, BL34).

Calls that wait for a server which is gone get more threads, and workers of different servers have connections
of their own. So such a queue holds up nobody for long. Those of one server wait together
(`engine.worker.connections`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Unpack, cast, get_args

from engine import validate
from engine.errors import Malformed
from engine.handlers import Handlers
from engine.models import Bull
from engine.ops.jobs import Enqueued
from engine.ops.looks import Counts
from engine.options import checked_settings, read_often, shows
from engine.parameters import JobName
from engine.queue.settings import QueueSettings
from engine.queue.synchronous import Queue
from engine.worker.connections import SharedConnections
from engine.worker.machine.concurrency import QUEUES_MAX, Sharing
from engine.worker.machine.events import StopReason
from engine.worker.machine.settings import GroupSettings
from engine.worker.process import SIGNAL_LOOK_S, stop_signals
from engine.worker.several import Ends, SharedThreads
from engine.worker.worker import Worker


class WorkerGroup:
    """Runs the handlers of the jobs of 1 to 16 queues, `concurrency` at once over all of them. Without
    `handlers` each queue has its own, the functions that its `job` has registered; else all of them have
    these. A queue is a Queue or an AsyncQueue.

    `settings`: see GroupSettings. What runs is never interrupted. `prefetch` is 0 unless given: what is taken
    ahead of its time breaks the order. `names` leaves a queue those of its handlers that are among them.

    Raises Malformed for settings out of bounds.
    """

    @shows(GroupSettings)
    def __init__(
        self,
        queues: Sequence[QueueSettings],
        handlers: Handlers | None = None,
        **settings: Unpack[GroupSettings],
    ) -> None:
        bound = f"a list of 1 to {QUEUES_MAX} different Queues"
        listed = validate.items("queues", queues, bound) if issubclass(type(queues), list | tuple) else []
        for queue in listed:
            if not validate.asked("queues", queue, bound, isinstance, queue, QueueSettings):
                raise Malformed("queues", queue, bound, private=True)
        different: dict[object, QueueSettings] = {}
        for queue in listed:
            if different.setdefault((queue.url, queue.prefix, queue.name), queue) is not queue:
                bound = f"{bound}: two are the queue {queue.name}; let one module import that of the other"
                raise Malformed("queues", queues, bound)
        if not 1 <= len(different) <= QUEUES_MAX or len(different) != len(listed):
            raise Malformed("queues", queues, bound)
        settings = cast("GroupSettings", read_often(settings))
        own = checked_settings(GroupSettings, settings)
        weights, strategy, places = own["weights"], own["strategy"], own["concurrency"]
        if (weights is not None) != (strategy == "weighted"):
            raise Malformed(
                "weights", weights, "one for each queue with the strategy weighted, and none without"
            )
        if weights is not None and len(weights) != len(listed):
            raise Malformed("weights", settings.get("weights"), f"one for each of the {len(listed)} queues")
        self._places = places
        self._at_work = threading.Lock()
        sharing = Sharing(places, weights or [1] * len(listed), strategy)
        of_each: dict[str, Any] = {"prefetch": 0, **settings}
        for of_group in ("strategy", "weights"):
            of_each.pop(of_group, None)
        names: Any = settings.get("names")
        divided: list[Any] = (
            [names] * len(listed) if names is None or handlers is not None else _divided(listed, names)
        )
        self.workers = tuple(
            Worker(queue, handlers, **{**of_each, "names": some})
            for queue, some in zip(listed, divided, strict=True)
        )
        self._shares = sharing.shares
        self._take_part()

    def _take_part(self) -> None:
        """Give each worker its share of the places, all of them their threads, and those of one server the
        connections on which they wait."""
        self._pools = SharedThreads.of(self._places)
        by_server: dict[object, SharedConnections] = {}
        for worker, share in zip(self.workers, self._shares, strict=True):
            queue = worker.queue
            server = (queue.endpoint.sharing_key, queue.endpoint.route)
            if server not in by_server:
                by_server[server] = SharedConnections(queue.endpoint, queue.model.keys.prefix)
            worker.take_part(share, by_server[server], self._pools)

    def stop(self, *, at_once: bool = False) -> None:
        """Ask all workers to stop, as Worker.stop does."""
        for worker in self.workers:
            worker.stop(at_once=at_once)

    def run(self, *, burst: bool = False) -> StopReason:
        """Work until stopped, as Worker.run does; with `burst`, until all queues are empty. When one worker
        ends, by an error or because it is to be recycled, the others stop as well.

        Returns why it ended. Raises what the first worker raised that failed, and Malformed while another
        thread is in it, whose run goes on.
        """
        burst = validate.truth("burst", burst)
        if not self._at_work.acquire(blocking=False):
            raise Malformed("run", "a group", "one that does not run already; make another WorkerGroup")
        try:
            return self._run(burst)
        finally:
            self._at_work.release()

    def _run(self, burst: bool) -> StopReason:
        # Anew for each run: those of the one before are closed.
        self._take_part()
        ends, left = Ends(), len(self.workers)
        changed = threading.Condition()

        def ended(why: StopReason | BaseException) -> None:
            nonlocal left
            with changed:
                ends.note(why)
                stops = bool(ends.failures) or why != "empty"
            if stops:
                self.stop()
            with changed:
                left -= 1
                changed.notify()

        try:
            with (
                self._pools.lifetime(*(worker.handlers for worker in self.workers)),
                stop_signals(lambda reason: self.stop(at_once=reason == "at once")),
            ):
                for worker in self.workers:
                    worker.begin(ended, burst=burst)
                with changed:
                    while not changed.wait_for(lambda: not left, SIGNAL_LOOK_S):
                        pass
        finally:
            self._pools.close()
        for worker in self.workers:
            worker.forget_events()
        return ends.outcome()


def _divided(queues: Sequence[QueueSettings], names: Any) -> list[list[str]]:
    """For each queue those of the names that it has handlers of its own for. Raises Malformed."""
    shown = cast("object", names)
    wanted: list[Any] = (
        [] if isinstance(names, str) or not isinstance(names, Iterable) else [*cast("Iterable[Any]", names)]
    )
    known = {name for queue in queues for name in queue.handlers.by_name}
    if not wanted or not known.issuperset(wanted):
        raise Malformed("names", shown, f"some of the names with handlers: {', '.join(sorted(known))}")
    divided = [[name for name in queue.handlers.by_name if name in wanted] for queue in queues]
    for queue, some in zip(queues, divided, strict=True):
        if not some:
            has = ", ".join(queue.handlers.by_name) or "none"
            raise Malformed("names", shown, f"names that leave each queue a handler: {queue.name} has {has}")
    return divided


# -- Bull's priority queue: five queues of Bull's, from `low` to `critical`, and workers that take more from
# the higher ones.

#: From the last to the first.
JobPriority = Literal["low", "normal", "medium", "high", "critical"]
#: Half of how many jobs of each, the first to the last, Bull takes in a round of its polling. Here they share
#: the work in this proportion while all of them have some.
_WEIGHTS = (256, 27, 4, 1, 1)


class PriorityQueue:
    """A priority queue of Bull's. Its jobs lie in the five queues `<name>:prio:low`, `normal`, `medium`,
    `high` and `critical`, as those of Bull's own priority queues do. `queues` has them, for all that is done
    with one queue alone; `settings` are those of Queue. Raises Malformed as Queue does.
    """

    def __init__(self, name: str, *, prefix: str = "bull", **settings: Any) -> None:
        name = validate.any_text("queue", name)
        words: tuple[JobPriority, ...] = get_args(JobPriority)
        self.queues: dict[JobPriority, Queue] = {
            # A job without a priority is `normal`, and its options do not mention it.
            word: Queue(f"{name}:prio:{word}", Bull(prefix, "" if word == "normal" else word), **settings)
            for word in reversed(words)
        }

    def enqueue(
        self,
        name: JobName,
        payload: object,
        *,
        priority: JobPriority = "normal",
        id: str | None = None,
        **options: Any,
    ) -> Enqueued:
        """Put one job into the queue of its priority, as Queue.enqueue does with these options."""
        return self._queue(priority).enqueue(name, payload, id=id, **options)

    def pause(self) -> None:
        """Pause all five, for all workers of both sides."""
        for queue in self.queues.values():
            queue.pause()

    def resume(self) -> None:
        """Resume all five."""
        for queue in self.queues.values():
            queue.resume()

    def counts(self) -> dict[JobPriority, Counts]:
        """Jobs of each priority in each state."""
        return {word: queue.counts() for word, queue in self.queues.items()}

    def workers(self, handlers: Handlers, **settings: Any) -> WorkerGroup:
        """Workers for all five, to be run. `settings` are those of WorkerGroup; the strategy is `weighted`,
        as Bull's rounds have it, unless told otherwise."""
        if "strategy" not in settings:
            settings = {"strategy": "weighted", "weights": _WEIGHTS, **settings}
        return WorkerGroup([*self.queues.values()], handlers, **settings)

    def close(self) -> None:
        """Close the idle connections."""
        for queue in self.queues.values():
            queue.close()

    def __enter__(self) -> PriorityQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _queue(self, priority: object) -> Queue:
        for word, queue in self.queues.items():
            if word == priority:
                return queue
        raise Malformed("priority", priority, " or ".join(self.queues))
