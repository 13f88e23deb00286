"""What the suite starts from: each model in turn, on an empty server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine import Queue
from engine.models.model import Spec
from tests.conformance.desk import ModelDesk
from tests.conformance.models import ALL, each


@pytest.fixture(params=each(ALL))
def spec(request: pytest.FixtureRequest) -> Spec:
    """A model as a queue is given it."""
    return request.param


@pytest.fixture
def desk(spec: Spec, ironclaim_url: str) -> Iterator[ModelDesk]:
    """A queue of the model under a clock that the test moves."""
    made = ModelDesk(ironclaim_url, spec)
    yield made
    made.close()


@pytest.fixture
def queue(spec: Spec, ironclaim_url: str) -> Iterator[Queue]:
    """A queue of the model."""
    with Queue("q", spec, url=ironclaim_url) as made:
        yield made
