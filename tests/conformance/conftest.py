"""What the suite starts from: each model in turn, on an empty server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Queue
from engine.models import Spec
from tests.conformance.desk import ModelDesk
from tests.conformance.models import ALL, each

FOLDER = Path(__file__).parent
#: What these files ask is the same wherever a format keeps its jobs: second layouts of a format are of the second tier.
ONE_LAYOUT = (
    *("test_looks.py", "test_workers.py", "test_schedules.py", "test_administration.py"),
    *("test_own_garbage.py", "test_foreign_garbage.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark those of second layouts."""
    for item in items:
        if item.path.parent == FOLDER and item.path.name in ONE_LAYOUT and "-live" in item.name:
            item.add_marker(pytest.mark.slow)


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
