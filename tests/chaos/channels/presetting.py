"""Clocks that begin elsewhere, for tests."""

from chaos.channels.keyspace import Keyspace
from chaos.channels.spec import Channel


def preset(url: str, name: str, clock: int) -> None:
    """Let the channel's clock stand there, as if as much had been published."""
    keyspace = Keyspace(url, [Channel(name, "one", (), (), 0, 1_800_000, clock)])
    try:
        keyspace.preset()
    finally:
        keyspace.close()
