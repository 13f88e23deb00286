"""What tests of commands start from: a queue named mails, and how a command is told which it is."""

from collections.abc import Iterator

import pytest

from engine import Queue


@pytest.fixture
def queue(ironclaim_url: str) -> Iterator[Queue]:
    with Queue("mails", url=ironclaim_url) as made:
        yield made


@pytest.fixture
def at(ironclaim_url: str) -> tuple[str, ...]:
    return ("--queue", "mails", "--url", ironclaim_url)
