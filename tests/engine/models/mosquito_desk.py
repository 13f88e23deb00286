"""A desk for Mosquito, in either layout, with one of its own programs at the other side of the keyspace."""

from dataclasses import fields, replace
from typing import Any

import pytest

from chaos.foreign_keys import MosquitoKeys
from engine import models
from engine.models import Layout
from engine.models.foreign.mosquito import DEFAULTS
from tests.conformance.desk import ModelDesk
from tests.engine.models.crystal import Crystal
from tests.engine.using import Beat, Enqueue, LeasedJob, Options, lent

KIND = "ok_job"
#: The incarnation of the worker "a".
A = "61" * 8


class MosquitoDesk(ModelDesk):
    """`theirs` does what the original programs do, by the desk's clock. Finished jobs are kept for ten minutes."""

    def __init__(self, url: str, layout: Layout, **settings: Any) -> None:
        super().__init__(url, models.Mosquito(**{"layout": layout, "success_ttl_s": 600, **settings}))
        self.there = MosquitoKeys("desk")
        self.layout: Layout = layout
        self.theirs = Crystal(url, "desk", layout, now_ms=lambda: self.now_ms)

    def close(self) -> None:
        self.theirs.close()
        super().close()

    def enqueue_operation(self, job: str, **more: Any) -> Enqueue:
        """With the options that a job of this model has which is given none."""
        operation = super().enqueue_operation(job, **more)
        names = {field.name for field in fields(Options)}
        return replace(operation, options=replace(DEFAULTS, **{name: value for name, value in more.items() if name in names}))

    def beat_operation(self, worker: str = "a", **more: Any) -> Beat:
        """With the incarnation that its claims have."""
        return replace(super().beat_operation(worker, **more), incarnation=f"{ord(worker):02x}" * 8)

    def take(self, limit: int = 10, worker: str = "a") -> list[LeasedJob]:
        """Claim jobs of the one kind that these tests have."""
        return self.claim(worker, limit, classes=(KIND,))

    def one(self, worker: str = "a", limit: int = 10, **more: Any) -> LeasedJob:
        """The same, where it is a single one."""
        return super().one(worker, limit, **{"classes": (KIND,), **more})

    def add(self, nonce: int = 0, **options: Any) -> str:
        """Enqueue one; the id that the server gave it."""
        made = self.enqueue_operation("", name=KIND, nonce=nonce.to_bytes(8, "big"), payload={"n": nonce}, **options)
        enqueued = self.run(made)
        assert enqueued.result == "created"
        return enqueued.job

    def entries(self, which: str) -> list[str]:
        """The entries of waiting, pending, scheduled or dead, first in first."""
        return self.theirs.ids(getattr(self.there, which))

    def heard_s(self, overseer: str = A) -> float | None:
        """The last heartbeat of an overseer."""
        return self.redis.zscore(self.there.overseers, overseer)  # type: ignore[return-value]

    def nowhere(self, id: str) -> bool:
        return all(id not in self.entries(which) for which in ("waiting", "pending", "scheduled", "dead"))


@pytest.fixture(params=["live", "document"])
def desk(request: pytest.FixtureRequest, ironclaim_url: str) -> Any:
    """An empty one."""
    yield from lent(MosquitoDesk(ironclaim_url, request.param))
