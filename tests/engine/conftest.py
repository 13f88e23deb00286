"""What tests of the engine start from: a queue on an empty server, and worker processes that are gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Queue
from tests.engine.helpers.processes import Workers


@pytest.fixture
def queue(ironclaim_url: str) -> Iterator[Queue]:
    """Nothing is in it."""
    made = Queue("q", url=ironclaim_url)
    yield made
    made.close()


@pytest.fixture
def workers(tmp_path: Path, ironclaim_url: str) -> Iterator[Workers]:
    """Handlers that hold on are let go before their workers are stopped."""
    made = Workers(tmp_path, ironclaim_url)
    yield made
    made.open_gate()
    made.stop_all()
