"""pytest fixtures: a real server for the session, and an empty database for each test.

def test_enqueue(ironclaim_url):
    queue = engine.Queue("emails", url=ironclaim_url)
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.testing.server import EmbeddedServer


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
