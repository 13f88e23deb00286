"""pytest fixtures: a real server for the session, and an empty database for each test.

def test_enqueue(ironclaim_url):
    queue = engine.Queue("emails", url=ironclaim_url)

def test_reminders(ironclaim_queue):
    ironclaim_queue.enqueue("remind", {"user": 3}, delay_ms=86_400_000)
    run_all(ironclaim_queue, handlers)      # a day takes no time: engine.testing.run_all
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from engine.testing.server import EmbeddedServer

if TYPE_CHECKING:
    from engine.testing.running import QueueInTest


@pytest.fixture(scope="session")
def ironclaim_server() -> Iterator[EmbeddedServer]:
    """A server that lives as long as the test session."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def ironclaim_url(ironclaim_server: EmbeddedServer) -> str:
    """URL of the session's server, with every database emptied before the test."""
    ironclaim_server.flush()
    return ironclaim_server.url


@pytest.fixture
def ironclaim_queue(ironclaim_url: str) -> Iterator[QueueInTest]:
    """An empty queue whose time stands still, in 2100, until `run_all` or `use_test_clock` moves it. It can
    take the place of a queue that a module made at import: `ironclaim_queue.replaces("shop.jobs:queue")`."""
    # Not before: a plugin that loads a client library would load it in every test session.
    from engine.testing.running import QueueInTest

    with closing(QueueInTest(ironclaim_url)) as queue:
        yield queue
