"""A desk for a queue of Bull's: virtual time, raw keys, and what is published."""

import json
from collections.abc import Iterator
from typing import Any, Self

import pytest
import redis

from chaos.foreign_keys import BullKeys
from engine import models
from engine.models.foreign.bull import UNNAMED
from tests.engine.helpers import node_bull, waiting
from tests.engine.using import Desk, Enqueued, Finish, Lease, LeasedJob, Value, lent

#: In 2038: later than any test runs, and before scores lose the low bits of ids.
START_MS = 2_150_000_000_000
#: Where a look at what was published ends: messages come in their order.
LOOK_ENDS = "bull:desk:look-ends"


class BullDesk(Desk):
    """One queue of Bull's under a clock that the test moves. `wire` names Bull's own keys."""

    def __init__(self, url: str) -> None:
        super().__init__(url, models.Bull())
        self.redis.close()
        self.redis = redis.Redis.from_url(url, decode_responses=True)
        self.bytes: redis.Redis = redis.Redis.from_url(url)
        self.wire = BullKeys("bull:desk:")
        self.aside = f"{self.keys.prefix}aside"
        self._set_clock(START_MS)
        self._listener: Any = self.redis.pubsub()
        self._listener.psubscribe("bull:desk:*")
        # The server listens for this desk only when it has said so.
        assert self._listener.get_message(timeout=waiting.DEADLINE_S)["type"] == "psubscribe"

    def _set_clock(self, now_ms: int) -> None:
        self.now_ms = self.queue.model.now_ms = now_ms

    def tick(self, ms: int) -> Self:
        """Move the clock; keys expire by the server's own."""
        self._set_clock(self.now_ms + ms)
        return self

    def close(self) -> None:
        self._listener.close()
        self.bytes.close()
        super().close()

    def add(self, payload: object = None, *, id: str = "", name: str = UNNAMED, **options: Any) -> str:
        """A job as Node would add it, with one attempt unless said otherwise; its id."""
        nonce = f"{self._count('adds'):08d}".encode()
        operation = self.enqueue_operation(id, name=name, nonce=nonce, payload=payload, **{"attempts": 1, **options})
        enqueued: Enqueued = self.run(operation)
        assert enqueued.result == "created"
        return enqueued.job

    def take(self, limit: int = 10, *, names: tuple[str, ...] = (UNNAMED,), worker: str = "a") -> dict[str, LeasedJob]:
        """The jobs that a worker gets now, by id."""
        return {job.lease.job: job for job in self.claim(worker, limit, classes=names)}

    def finish_with(self, lease: Lease, value: object) -> None:
        data = json.dumps(value, separators=(",", ":")).encode()
        assert self.run(Finish((lease,), None, (Value(0, data, 1000, 5),))).items == (("ok", "finished"),)

    def foreign_keys(self) -> set[str]:
        """All keys of the queue that are not ours."""
        return {key for key in self.redis.keys(f"{self.wire.root}*") if not key.startswith(self.keys.prefix)}

    def published(self) -> list[list[str]]:
        """Channel and message of what was published since the last look."""
        found: list[list[str]] = []
        self.redis.publish(LOOK_ENDS, "")
        while (message := self._listener.get_message(timeout=waiting.DEADLINE_S))["channel"] != LOOK_ENDS:
            found.append([message["channel"], message["data"]])
        return found


@pytest.fixture
def bull(ironclaim_url: str) -> Iterator[BullDesk]:
    """An empty desk."""
    yield from lent(BullDesk(ironclaim_url))


@pytest.fixture
def node(bull: BullDesk) -> node_bull.NodeBull:
    """The original's side of it."""
    return node_bull.NodeBull(bull.redis, bull.wire.root, bull.now_ms)
