"""What the suite starts from: empty storages of each kind in turn."""

from collections.abc import Iterator

import pytest

from engine import Channel
from engine.testing.server import EmbeddedServer
from tests.conformance.channels.places import KINDS, Place


@pytest.fixture(scope="session")
def second_server() -> Iterator[EmbeddedServer]:
    """Another server beside the session's own."""
    with EmbeddedServer() as server:
        yield server


#: Two servers are two storages, as a server and memory are.
@pytest.fixture(params=[pytest.param(kind, marks=[pytest.mark.slow] * (kind == "two servers")) for kind in KINDS])
def place(request: pytest.FixtureRequest, ironclaim_url: str) -> Iterator[Place]:
    """Storages of one kind, with nothing in them."""
    urls = {"first": ironclaim_url}
    if "second" in KINDS[request.param]:
        second: EmbeddedServer = request.getfixturevalue("second_server")
        second.flush()
        urls["second"] = second.url
    made = Place(request.param, urls)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def bells_alone(late_looks: None) -> None:
    """Who waits is woken or fails."""


@pytest.fixture
def channel(place: Place) -> Channel:
    """A channel there."""
    return place.channel()
