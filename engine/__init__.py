"""Ironclaim: a compact Redis job engine. Handlers run at least once, fenced; a job is finished exactly once.

Public names load on first use, so that `import engine.history` needs the standard library alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.version import __version__ as __version__

if TYPE_CHECKING:
    from engine import effects, models, outbox
    from engine.channel.asynchronous.channel import AsyncChannel
    from engine.channel.contents import RawJson
    from engine.channel.memory import MemoryStorage
    from engine.channel.rules import ChannelRule
    from engine.channel.storage import RedisStorage
    from engine.channel.synchronous.channel import Channel
    from engine.channel.values import Acknowledged, Fetched, Message, Published, Subscribed
    from engine.errors import (
        BatchFailed,
        ChannelNotFound,
        EngineError,
        JobFailed,
        LeaseLost,
        Malformed,
        NoResult,
        OutcomeUnknown,
        PartlyEnqueued,
        PartlyPublished,
        ScriptFault,
        ServerUnavailable,
        SubscriptionNotFound,
        TimedOut,
        UnknownJob,
        UnknownParent,
        UnsafeServer,
        UnsupportedFeature,
        WrongKeyType,
    )
    from engine.handlers import Handlers
    from engine.job import Job
    from engine.ops.admin import Altered
    from engine.ops.jobs import Enqueued
    from engine.ops.looks import Counts, Event, LimitInfo, NameCounts, PauseInfo, Snapshot
    from engine.ops.workers import Durations, HandlerTimes, WorkerInfo
    from engine.options import JobOptions
    from engine.outcomes import Bury, Discard, RetryLater
    from engine.priority_queue import PriorityQueue
    from engine.queue.admin import Lock, QueueInfo
    from engine.queue.asynchronous.parts import AsyncResults
    from engine.queue.asynchronous.queue import AsyncQueue, async_queues
    from engine.queue.era import DataLoss
    from engine.queue.looks import JobError, JobInfo, JobPage, ListOptions, Progress, Result
    from engine.queue.metrics import Scaling, join_metrics
    from engine.queue.producing import NewJob
    from engine.queue.scheduling import Schedule
    from engine.queue.synchronous.parts import Results
    from engine.queue.synchronous.queue import Queue, queues
    from engine.queue.why import LaneInfo, Obstacles, Why
    from engine.redis.endpoint import ConnectOptions
    from engine.routing import Target
    from engine.serializers import Serializer, UnreadablePayload
    from engine.tasks import Task, TaskFunction
    from engine.worker.group import WorkerGroup
    from engine.worker.worker import Scheduler, Worker


_HOMES = {
    "engine.channel.asynchronous.channel": ("AsyncChannel",),
    "engine.channel.contents": ("RawJson",),
    "engine.channel.memory": ("MemoryStorage",),
    "engine.channel.rules": ("ChannelRule",),
    "engine.channel.storage": ("RedisStorage",),
    "engine.channel.synchronous.channel": ("Channel",),
    "engine.channel.values": (
        "Acknowledged",
        "Fetched",
        "Message",
        "Published",
        "Subscribed",
    ),
    "engine.errors": (
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
    "engine.ops.admin": ("Altered",),
    "engine.ops.jobs": ("Enqueued",),
    "engine.ops.looks": (
        "Counts",
        "Event",
        "LimitInfo",
        "NameCounts",
        "PauseInfo",
        "Snapshot",
    ),
    "engine.ops.workers": (
        "Durations",
        "HandlerTimes",
        "WorkerInfo",
    ),
    "engine.options": ("JobOptions",),
    "engine.outcomes": (
        "Bury",
        "Discard",
        "RetryLater",
    ),
    "engine.priority_queue": ("PriorityQueue",),
    "engine.queue.admin": (
        "Lock",
        "QueueInfo",
    ),
    "engine.queue.asynchronous.parts": ("AsyncResults",),
    "engine.queue.asynchronous.queue": (
        "AsyncQueue",
        "async_queues",
    ),
    "engine.queue.era": ("DataLoss",),
    "engine.queue.looks": (
        "JobError",
        "JobInfo",
        "JobPage",
        "ListOptions",
        "Progress",
        "Result",
    ),
    "engine.queue.metrics": (
        "Scaling",
        "join_metrics",
    ),
    "engine.queue.producing": ("NewJob",),
    "engine.queue.scheduling": ("Schedule",),
    "engine.queue.synchronous.parts": ("Results",),
    "engine.queue.synchronous.queue": (
        "Queue",
        "queues",
    ),
    "engine.queue.why": (
        "LaneInfo",
        "Obstacles",
        "Why",
    ),
    "engine.redis.endpoint": ("ConnectOptions",),
    "engine.routing": ("Target",),
    "engine.serializers": (
        "Serializer",
        "UnreadablePayload",
    ),
    "engine.tasks": (
        "Task",
        "TaskFunction",
    ),
    "engine.worker.group": ("WorkerGroup",),
    "engine.worker.worker": (
        "Scheduler",
        "Worker",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Acknowledged",
    "Altered",
    "AsyncChannel",
    "AsyncQueue",
    "AsyncResults",
    "BatchFailed",
    "Bury",
    "Channel",
    "ChannelNotFound",
    "ChannelRule",
    "ConnectOptions",
    "Counts",
    "DataLoss",
    "Discard",
    "Durations",
    "EngineError",
    "Enqueued",
    "Event",
    "Fetched",
    "HandlerTimes",
    "Handlers",
    "Job",
    "JobError",
    "JobFailed",
    "JobInfo",
    "JobOptions",
    "JobPage",
    "LaneInfo",
    "LeaseLost",
    "LimitInfo",
    "ListOptions",
    "Lock",
    "Malformed",
    "MemoryStorage",
    "Message",
    "NameCounts",
    "NewJob",
    "NoResult",
    "Obstacles",
    "OutcomeUnknown",
    "PartlyEnqueued",
    "PartlyPublished",
    "PauseInfo",
    "PriorityQueue",
    "Progress",
    "Published",
    "Queue",
    "QueueInfo",
    "RawJson",
    "RedisStorage",
    "Result",
    "Results",
    "RetryLater",
    "Scaling",
    "Schedule",
    "Scheduler",
    "ScriptFault",
    "Serializer",
    "ServerUnavailable",
    "Snapshot",
    "Subscribed",
    "SubscriptionNotFound",
    "Target",
    "Task",
    "TaskFunction",
    "TimedOut",
    "UnknownJob",
    "UnknownParent",
    "UnreadablePayload",
    "UnsafeServer",
    "UnsupportedFeature",
    "Why",
    "Worker",
    "WorkerGroup",
    "WorkerInfo",
    "WrongKeyType",
    "async_queues",
    "effects",
    "join_metrics",
    "models",
    "outbox",
    "queues",
]


def __getattr__(name: str) -> Any:
    if name in ("effects", "models", "outbox"):
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
