"""A desk for tests of the scripts that all foreign models share: one queue of one model on a real server under virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from engine import models
from engine.models.foreign import Foreign
from engine.models.model import Spec
from engine.operations import Finish as FinishOf
from engine.operations import LeasedJob, Release, Value
from tests.engine.desk import START_MS, Desk


@dataclass(frozen=True)
class Subject:
    """A model in one layout, and what these tests ask of it."""

    spec: Spec


#: Every test of the shared scripts runs on each of these.
SUBJECTS = {
    "bull": Subject(models.Bull()),
    "bridge": Subject(models.Bridge()),
    "bananas": Subject(models.Bananas()),
    "bananas-live": Subject(models.Bananas(layout="live")),
    "mosquito": Subject(models.Mosquito()),
    "mosquito-live": Subject(models.Mosquito(layout="live")),
}


class ForeignDesk(Desk):
    """A desk whose queue has a foreign model."""

    def __init__(self, url: str, subject: Subject) -> None:
        super().__init__(url, subject.spec)
        model = self.queue.model
        assert isinstance(model, Foreign)
        self.model = model
        #: Jobs that were enqueued.
        self.made: list[str] = []

    def begin(self) -> None:
        """Begin once more, with nothing on the server."""
        self.redis.flushall()
        self.now_ms, self._counters = START_MS, {}
        self.made.clear()
        self.queue.model.now_ms = None
        self.queue.use_test_clock(self.now_ms)

    def enqueue(self, *jobs: str, **options: Any) -> None:
        super().enqueue(*jobs, **options)
        self.made += jobs

    def tick(self, ms: int) -> None:
        """Formats give some keys lengths of real time: those pass as well."""
        keys = list(self.redis.scan_iter(count=1000)) if ms > 0 else []
        with self.redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.pexpiretime(key)
            for key, at_ms in zip(keys, pipe.execute(), strict=True):
                if 0 < at_ms < START_MS - 10_000_000:
                    pipe.pexpireat(key, at_ms - ms)
            pipe.execute()
        super().tick(ms)

    def expired(self, at_ms: int) -> bool:
        """Of the keys with a time of ours."""
        return START_MS - 10_000_000 < at_ms <= self.now_ms

    def wire_dump(self) -> dict[str, Any]:
        """Every key that is not ours."""
        return {key: value for key, value in self.dump().items() if "ironclaim:" not in key}

    def release(self, *jobs: LeasedJob) -> list[tuple[str, str]]:
        """Give leases back."""
        return list(self.run(Release(tuple(job.lease for job in jobs))).items)

    def finish_with(self, job: LeasedJob, value: bytes) -> list[tuple[str, str]]:
        """Finish a job that returned something."""
        return list(self.run(FinishOf((job.lease,), None, (Value(0, value, 60_000, 5),))).items)

    def names(self, jobs: list[LeasedJob]) -> list[str]:
        """The ids of jobs."""
        return [job.lease.job for job in jobs]


@pytest.fixture(params=SUBJECTS)
def desk(request: pytest.FixtureRequest, ironclaim_url: str) -> Iterator[ForeignDesk]:
    """An empty desk of each model."""
    made = ForeignDesk(ironclaim_url, SUBJECTS[request.param])
    yield made
    made.close()
