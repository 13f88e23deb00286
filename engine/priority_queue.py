"""Bull's priority queue: five queues of Bull's, from `low` to `critical`, and workers that take more from the
higher ones."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal, get_args

from engine import validate
from engine.errors import Malformed
from engine.handlers import Handlers
from engine.models import Bull
from engine.ops.jobs import Enqueued
from engine.ops.looks import Counts
from engine.parameters import JobName
from engine.queue.synchronous import Queue
from engine.worker.group import WorkerGroup

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
