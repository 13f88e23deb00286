"""The two faces of a queue: a Queue and an AsyncQueue with the same settings, handlers and hooks.

A task is enqueued by functions and by coroutines, and a worker calls the server in threads whatever kind of queue it works for;
so a queue of either kind is asked here for itself or for its other face. The two connect apart, and neither imports the other.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

from engine.queue.settings import QueueSettings

#: Two threads that ask at once get the same face.
_making = threading.Lock()


def synchronous(queue: QueueSettings) -> Any:
    """The Queue of these settings. Raises Malformed where a client of redis-py cannot be made anew for it."""
    return _other(queue, "engine.queue.synchronous.queue", "Queue") if queue.endpoint.asynchronous else queue


def asynchronous(queue: QueueSettings) -> Any:
    """The AsyncQueue of these settings. Raises as `synchronous` does."""
    return queue if queue.endpoint.asynchronous else _other(queue, "engine.queue.asynchronous.queue", "AsyncQueue")


def _other(queue: QueueSettings, module: str, name: str) -> Any:
    with _making:
        if queue.other_face is None:
            queue.other_face = getattr(import_module(module), name).like(queue)
            queue.other_face.other_face = queue
        return queue.other_face
