# Generated from engine/__init__.py by "make generate"; do not edit.

from engine import effects, models, outbox
from engine.channel.asynchronous.channel import AsyncChannel
from engine.channel.contents import RawJson
from engine.channel.memory import MemoryStorage
from engine.channel.settings import RedisStorage
from engine.channel.synchronous.channel import Channel
from engine.errors import (
    AuthenticationFailed,
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
from engine.models.dsps import ChannelRule
from engine.ops.admin import Altered, HistoryRule
from engine.ops.channels import Acknowledged, Fetched, Message, Published, Subscribed
from engine.ops.jobs import Enqueued
from engine.ops.looks import Counts, Event, LimitInfo, NameCounts, PauseInfo, Snapshot
from engine.ops.workers import Durations, HandlerTimes, WorkerInfo
from engine.options import JobOptions
from engine.outcomes import Bury, Discard, RetryLater, SoftTimeout
from engine.queue.admin import Lock, QueueInfo
from engine.queue.asynchronous.parts import AsyncResults
from engine.queue.asynchronous.queue import AsyncQueue, async_queues
from engine.queue.era import DataLoss
from engine.queue.history import HistoryOptions, PastJob
from engine.queue.looks import JobError, JobInfo, JobPage, ListOptions
from engine.queue.metrics import Scaling, join_metrics
from engine.queue.producing import NewJob, TaskJob
from engine.queue.results import Progress, Result
from engine.queue.scheduling import Schedule
from engine.queue.synchronous import Queue, Results, queues
from engine.queue.why import LaneInfo, Obstacles, Why
from engine.redis.endpoint import ConnectOptions
from engine.routing import Target
from engine.serializers import Serializer, UnreadablePayload
from engine.tasks import Task, TaskFunction
from engine.version import __version__ as __version__
from engine.worker.group import PriorityQueue, WorkerGroup
from engine.worker.machine.settings import GroupSettings, WorkerSettings
from engine.worker.worker import Scheduler, Worker

__all__ = [
    "Acknowledged",
    "Altered",
    "AsyncChannel",
    "AsyncQueue",
    "AsyncResults",
    "AuthenticationFailed",
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
    "GroupSettings",
    "HandlerTimes",
    "Handlers",
    "HistoryOptions",
    "HistoryRule",
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
    "PastJob",
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
    "SoftTimeout",
    "Subscribed",
    "SubscriptionNotFound",
    "Target",
    "Task",
    "TaskFunction",
    "TaskJob",
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
    "WorkerSettings",
    "WrongKeyType",
    "async_queues",
    "effects",
    "join_metrics",
    "models",
    "outbox",
    "queues",
]
