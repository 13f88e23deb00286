"""Which queues a server holds (MQ22): each is listed when something is first put into it, and again with its workers' beats.

The list has a key, and so a slot, of its own; no script touches it together with a queue's keys (rule 27). It only informs: a
queue works whether it is listed or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine import validate
from engine.models.spec import Spec, bind
from engine.ops.admin import ListQueues
from engine.ops.base import text, whole
from engine.redis.call import Call

#: Queues of one answer.
LIMIT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue and the server's time (ms) at which it was last noted as used."""

    name: str
    used_ms: int


def listing(model: Spec | None, prefix: object, limit: object) -> Call[list[QueueInfo]]:
    """The call that lists the queues of a model under a prefix. Raises Malformed."""
    key = bind(model, "any", prefix, None).model.keys.queues
    most = validate.integer("limit", limit, 1, LIMIT_MAX)
    return Call(None, (key,), ("ZRANGE", key, 0, most - 1, "REV", "WITHSCORES"), _infos, ListQueues())


def _infos(raw: Sequence[bytes]) -> list[QueueInfo]:
    return [QueueInfo(text(raw[at]), whole(raw[at + 1])) for at in range(0, len(raw), 2)]
