"""What tests of channels over HTTP start from: an application on a real socket and an empty server, and receivers of webhooks."""

import logging
from collections.abc import Iterator

import pytest

from tests.engine.http.channels.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server that notes what is sent to it."""
    with Receiver() as made:
        yield made


@pytest.fixture
def levels() -> Iterator[None]:
    """Loggers have their levels again afterwards."""
    names = ("ironclaim", "ironclaim.http", "ironclaim.http.auth", "ironclaim.http.audit", "ironclaim.worker")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
