"""What tests of formats start from: a client that sees keys as the programs of the format do."""

from typing import Any

import pytest
import redis


@pytest.fixture
def client(ironclaim_url: str) -> Any:
    with redis.Redis.from_url(ironclaim_url, decode_responses=True) as made:
        yield made
