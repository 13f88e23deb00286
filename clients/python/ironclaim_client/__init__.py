"""Jobs and channels of Ironclaim over HTTP, for places without access to Redis: `Client`, and `AsyncClient`
for asyncio."""

from ironclaim_client.asynchronous.channel import AsyncChannel, AsyncSubscription
from ironclaim_client.asynchronous.client import AsyncClient
from ironclaim_client.asynchronous.queue import AsyncQueue
from ironclaim_client.errors import (
    ClientError,
    InvalidArgument,
    JobFailed,
    NotFound,
    NotPermitted,
    OutcomeUnknown,
    Refused,
    ServerUnavailable,
    TimedOut,
    UnexpectedReply,
)
from ironclaim_client.retrying import Retries
from ironclaim_client.synchronous.channel import Channel, Subscription
from ironclaim_client.synchronous.client import Client
from ironclaim_client.synchronous.queue import Queue
from ironclaim_client.values import Delivery, Enqueued, Message, NewJob, Result

__all__ = [
    "AsyncChannel",
    "AsyncClient",
    "AsyncQueue",
    "AsyncSubscription",
    "Channel",
    "Client",
    "ClientError",
    "Delivery",
    "Enqueued",
    "InvalidArgument",
    "JobFailed",
    "Message",
    "NewJob",
    "NotFound",
    "NotPermitted",
    "OutcomeUnknown",
    "Queue",
    "Refused",
    "Result",
    "Retries",
    "ServerUnavailable",
    "Subscription",
    "TimedOut",
    "UnexpectedReply",
]
