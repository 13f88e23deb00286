"""The original Bull for tests. Without Node they are skipped with the line that installs it; in CI they fail instead."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from chaos.interop import keyspace, node
from chaos.interop.talker import Talker
from tests.absent import without


@pytest.fixture(scope="session", autouse=True)
def packages() -> None:
    """Node is there, and so are its packages."""
    try:
        node.modules()
    except node.NodeMissing as missing:
        without(missing)


@pytest.fixture
def port(ironclaim_url: str) -> int:
    """The port of an empty server."""
    return urlsplit(ironclaim_url).port or 0


@pytest.fixture
def bull(port: int) -> Iterator[Talker]:
    """The original Bull on the queue `mail`."""
    with Talker("mail", port=port) as talker:
        yield talker


@pytest.fixture
def keys(ironclaim_url: str) -> Iterator[keyspace.BullKeys]:
    """The keys of the queue `mail` as they are."""
    look = keyspace.BullKeys(ironclaim_url, "mail")
    yield look
    look.close()
