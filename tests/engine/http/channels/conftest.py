"""What tests of channels over HTTP start from: an application on a real socket and an empty server, and receivers of webhooks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.http.channels.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server that notes what is sent to it."""
    with Receiver() as made:
        yield made
