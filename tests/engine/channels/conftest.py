"""What tests of channels start from: an empty server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.channels.channel_desk import ChannelDesk


@pytest.fixture
def desk(ironclaim_url: str) -> Iterator[ChannelDesk]:
    """One channel, of which nothing is there."""
    made = ChannelDesk(ironclaim_url)
    yield made
    made.close()
