"""Several queues worked off by one process: a worker for each, and places that they share (MQ33, BL34).

Each worker has connections and threads of its own, so a queue whose server is gone holds up nobody for long.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast, get_args

from engine import validate
from engine.errors import Malformed
from engine.handlers import Handlers
from engine.queue.synchronous.queue import Queue
from engine.worker.machine.concurrency import QUEUES_MAX, WEIGHT_MAX, Sharing, Strategy
from engine.worker.machine.events import StopReason
from engine.worker.signals import stop_signals
from engine.worker.worker import Worker


class WorkerGroup:
    """Runs the handlers of the jobs of 1 to 16 queues, `concurrency` at once over all of them.

    `strategy`: `strict` claims of a queue only while those before it in the list have nothing to claim; `weighted` shares in
    proportion to `weights` (1 to 1,000 each) while several have work; `shuffle` lets chance decide each time. What runs is never
    interrupted. `settings` are those of Worker; `prefetch` is 0 unless given: what is taken ahead of its turn breaks the order.

    Raises Malformed for settings out of bounds.
    """

    def __init__(
        self,
        queues: Sequence[Queue],
        handlers: Handlers,
        *,
        strategy: Strategy = "strict",
        weights: Sequence[int] | None = None,
        concurrency: int = 8,
        **settings: Any,
    ) -> None:
        listed: list[Any] = list(cast("Any", queues)) if isinstance(queues, list | tuple) else []
        names = {(queue.url, queue.name) for queue in listed if isinstance(queue, Queue)}
        if not 1 <= len(listed) <= QUEUES_MAX or len(names) != len(listed):
            raise Malformed("queues", queues, f"a list of 1 to {QUEUES_MAX} different Queues")
        if strategy not in get_args(Strategy):
            raise Malformed("strategy", strategy, "strict, weighted or shuffle")
        if (weights is not None) != (strategy == "weighted"):
            raise Malformed("weights", weights, "one for each queue with the strategy weighted, and none without")
        given: list[Any] = [1] * len(listed) if weights is None else list(weights)
        if len(given) != len(listed):
            raise Malformed("weights", weights, f"one for each of the {len(listed)} queues")
        checked = [validate.integer("weights", weight, 1, WEIGHT_MAX) for weight in given]
        places = validate.integer("concurrency", concurrency, 1, validate.CONCURRENCY_MAX)
        sharing = Sharing(places, checked, strategy)
        of_each: dict[str, Any] = {"prefetch": 0, **settings, "concurrency": places}
        self.workers = tuple(Worker(queue, handlers, **of_each) for queue in listed)
        for worker, share in zip(self.workers, sharing.shares, strict=True):
            worker.take_part(share)

    def stop(self, *, at_once: bool = False) -> None:
        """Ask all workers to stop, as Worker.stop does."""
        for worker in self.workers:
            worker.stop(at_once=at_once)

    def run(self, *, burst: bool = False) -> StopReason:
        """Work until stopped, as Worker.run does; with `burst`, until all queues are empty. When one worker ends, by an error or
        because it is to be recycled, the others stop as well.

        Returns why it ended. Raises what the first worker raised that failed.
        """
        failures: list[BaseException] = []
        reasons: list[StopReason] = []

        def work(worker: Worker) -> None:
            try:
                reasons.append(worker.run(burst=burst))
            except BaseException as failure:
                failures.append(failure)
            if failures or reasons[-1] != "empty":
                self.stop()

        threads = [
            threading.Thread(target=work, args=(worker,), name=f"worker-{number}", daemon=True)
            for number, worker in enumerate(self.workers)
        ]
        with stop_signals(lambda reason: self.stop(at_once=reason == "at once")):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]
        return max(reasons, key=lambda reason: reason != "empty")
