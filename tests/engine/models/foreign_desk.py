"""A desk for tests of the scripts that all foreign models share: one queue of one model on a real server under virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from engine import models
from engine.models.foreign import Foreign
from engine.models.model import Spec
from engine.wire.operations import Finish as FinishOf
from engine.wire.operations import LeasedJob, Release, Value
from tests.conformance.models import FOREIGN
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
    "mosquito": Subject(FOREIGN["mosquito-document"]),
    "mosquito-live": Subject(FOREIGN["mosquito-live"]),
}


class ForeignDesk(Desk):
    """A desk whose queue has a foreign model: formats give some keys lengths of real time."""

    expires_from_ms = START_MS - 10_000_000
    passes_for_all = True

    def __init__(self, url: str, subject: Subject) -> None:
        super().__init__(url, subject.spec)
        model = self.queue.model
        assert isinstance(model, Foreign)
        self.model = model
        #: Jobs that were enqueued.
        self.made: list[str] = []

    def begin(self) -> None:
        """Begin once more, with nothing on the server."""
        super().begin()
        self.made.clear()

    def enqueue(self, *jobs: str, **options: Any) -> None:
        super().enqueue(*jobs, **options)
        self.made += jobs

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


def open_desk(url: str, name: str) -> Iterator[ForeignDesk]:
    """An empty desk of a subject, as a fixture yields it."""
    made = ForeignDesk(url, SUBJECTS[name])
    yield made
    made.close()


@pytest.fixture(params=SUBJECTS)
def desk(request: pytest.FixtureRequest, ironclaim_url: str) -> Iterator[ForeignDesk]:
    """An empty desk of each model."""
    yield from open_desk(ironclaim_url, request.param)
