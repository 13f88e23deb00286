"""What tests of channels start from: an empty server."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis

from tests.engine.channels.channel_desk import ChannelDesk


@pytest.fixture
def server(ironclaim_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(ironclaim_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def desk(ironclaim_url: str) -> Iterator[ChannelDesk]:
    """One channel, of which nothing is there."""
    with closing(ChannelDesk(ironclaim_url)) as made:
        yield made
