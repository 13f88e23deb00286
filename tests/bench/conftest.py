"""Fixtures for the tests of the load: a server of the test's own, and its processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.testing import EmbeddedServer
from tests.bench.real_parts import Processes


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as embedded:
        yield embedded


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.stop_all()
