"""Fixtures for the tests of the load: a server of the test's own, and its processes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.testing import EmbeddedServer
from tests.bench.real_parts import Processes
from tests.chaos.conftest import nothing_left as nothing_left


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as embedded:
        yield embedded


@pytest.fixture
def own_cores() -> Iterator[None]:
    """Give this process its cores back, which the measurements take away."""
    cores = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, cores)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.stop_all()
