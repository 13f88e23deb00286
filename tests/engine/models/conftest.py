"""What tests of formats start from: a client that sees keys as the programs of the format do."""

from typing import Any

import pytest
import redis

from tests.engine.desk import lent


@pytest.fixture
def client(ironclaim_url: str) -> Any:
    yield from lent(redis.Redis.from_url(ironclaim_url, decode_responses=True))
