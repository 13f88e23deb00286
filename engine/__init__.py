"""Ironclaim: a compact Redis job engine. Handlers run at least once, fenced; a job is finished exactly once.

Public names load on first use, so that `import engine.sizing` needs the standard library alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from engine.version import __version__ as __version__

#: Each public name stands here alone. `make generate` writes `__init__.pyi` from it, which type checkers and
#: editors read.
_HOMES = {
    "engine.channel.asynchronous.channel": ("AsyncChannel",),
    "engine.channel.contents": ("RawJson",),
    "engine.channel.memory": ("MemoryStorage",),
    "engine.models.dsps": ("ChannelRule",),
    "engine.channel.settings": ("RedisStorage",),
    "engine.channel.synchronous.channel": ("Channel",),
    "engine.ops.channels": ("Acknowledged", "Fetched", "Message", "Published", "Subscribed"),
    "engine.errors": (
        "AuthenticationFailed",
        "BatchFailed",
        "ChannelNotFound",
        "EngineError",
        "JobFailed",
        "LeaseLost",
        "Malformed",
        "NoResult",
        "OutcomeUnknown",
        "PartlyEnqueued",
        "PartlyPublished",
        "ScriptFault",
        "ServerUnavailable",
        "SubscriptionNotFound",
        "TimedOut",
        "UnknownJob",
        "UnknownParent",
        "UnsafeServer",
        "UnsupportedFeature",
        "WrongKeyType",
    ),
    "engine.handlers": ("Handlers",),
    "engine.job": ("Job",),
    "engine.ops.admin": ("Altered", "HistoryRule"),
    "engine.ops.jobs": ("Enqueued",),
    "engine.ops.looks": ("Counts", "Event", "LimitInfo", "NameCounts", "PauseInfo", "Snapshot"),
    "engine.ops.workers": ("Durations", "HandlerTimes", "WorkerInfo"),
    "engine.options": ("JobOptions",),
    "engine.outcomes": ("Bury", "Discard", "RetryLater", "SoftTimeout"),
    "engine.queue.admin": ("Lock", "QueueInfo"),
    "engine.queue.asynchronous.parts": ("AsyncResults",),
    "engine.queue.asynchronous.queue": ("AsyncQueue", "async_queues"),
    "engine.queue.era": ("DataLoss",),
    "engine.queue.history": ("HistoryOptions", "PastJob"),
    "engine.queue.looks": ("JobError", "JobInfo", "JobPage", "ListOptions"),
    "engine.queue.metrics": ("Scaling", "join_metrics"),
    "engine.queue.producing": ("NewJob", "TaskJob"),
    "engine.queue.results": ("Progress", "Result"),
    "engine.queue.scheduling": ("Schedule",),
    "engine.queue.synchronous": ("Queue", "Results", "queues"),
    "engine.queue.why": ("LaneInfo", "Obstacles", "Why"),
    "engine.redis.endpoint": ("ConnectOptions",),
    "engine.routing": ("Target",),
    "engine.serializers": ("Serializer", "UnreadablePayload"),
    "engine.tasks": ("Task", "TaskFunction"),
    "engine.worker.group": ("PriorityQueue", "WorkerGroup"),
    "engine.worker.machine.settings": ("GroupSettings", "WorkerSettings"),
    "engine.worker.worker": ("Scheduler", "Worker"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

_PARTS = ("effects", "models", "outbox")

__all__ = sorted([*_HOME_OF, *_PARTS])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"engine.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module engine has no attribute {name}")
    value = getattr(import_module(_HOME_OF[name]), name)
    # Asked for once: `engine.NewJob` in a loop would take longer to find than to make.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names too, before their first use: for help and completion."""
    return sorted({*globals(), *__all__})
