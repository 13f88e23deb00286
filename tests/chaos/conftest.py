"""Fixtures that the tests of the drill share."""

from collections.abc import Iterator

import psutil
import pytest


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """The test leaves no process behind, directly or below."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) - before == set()
