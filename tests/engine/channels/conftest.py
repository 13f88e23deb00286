"""What tests of channels start from: an empty server."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.engine.channels.channel_desk import ChannelDesk


@pytest.fixture
def desk(ironclaim_url: str) -> Iterator[ChannelDesk]:
    """One channel, of which nothing is there."""
    with closing(ChannelDesk(ironclaim_url)) as made:
        yield made
