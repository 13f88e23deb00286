"""Which queues a server holds (MQ22): each is listed when something is first put into it, and again with its workers' beats.

The list has a key, and so a slot, of its own; no script touches it together with a queue's keys (rule 27). It only informs: a
queue works whether it is listed or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine import validate
from engine.call import Call
from engine.drivers.async_driver import AsyncDriver
from engine.drivers.driver import SyncDriver
from engine.drivers.endpoint import DEFAULT_URL, Endpoint
from engine.models.binding import bind
from engine.models.model import Spec
from engine.operations import ListQueues

#: Queues of one answer.
LIMIT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue and the server's time (ms) at which it was last noted as used."""

    name: str
    used_ms: int


def queues(
    url: str = DEFAULT_URL,
    *,
    client: Any = None,
    model: Spec | None = None,
    prefix: str | None = None,
    limit: int = LIMIT_MAX,
) -> list[QueueInfo]:
    """The queues of a model (None: Lanes) that live under a prefix (None: that of the model), last used first. Raises
    ServerUnavailable, and Malformed for bad values."""
    call, endpoint = _listing(model, prefix, limit), Endpoint(url, client)
    driver = SyncDriver(endpoint, ())
    try:
        return driver.run(call)
    finally:
        driver.close()


async def async_queues(
    url: str = DEFAULT_URL,
    *,
    client: Any = None,
    model: Spec | None = None,
    prefix: str | None = None,
    limit: int = LIMIT_MAX,
) -> list[QueueInfo]:
    """As `queues`, for asyncio."""
    call, endpoint = _listing(model, prefix, limit), Endpoint(url, client, asynchronous=True)
    driver = AsyncDriver(endpoint, ())
    try:
        return await driver.run(call)
    finally:
        await driver.close()


def _listing(model: Spec | None, prefix: object, limit: object) -> Call[list[QueueInfo]]:
    key = bind(model, "any", prefix, None).keys.queues
    most = validate.integer("limit", limit, 1, LIMIT_MAX)
    return Call(None, (), ("ZRANGE", key, 0, most - 1, "REV", "WITHSCORES"), _infos, ListQueues())


def _infos(raw: Sequence[bytes]) -> list[QueueInfo]:
    return [QueueInfo(raw[at].decode(), int(float(raw[at + 1]))) for at in range(0, len(raw), 2)]
