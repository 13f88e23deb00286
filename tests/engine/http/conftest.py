"""What tests of HTTP start from: receivers of webhooks, levels of loggers, and the audit."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.http.channels.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server that notes what is sent to it."""
    with Receiver() as made:
        yield made


@pytest.fixture
def levels() -> Iterator[None]:
    """Loggers have their levels again afterwards."""
    names = ("ironclaim", "ironclaim.http", "ironclaim.http.auth", "ironclaim.http.audit", "ironclaim.worker")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    """The lines of the audit since they were asked for last."""
    caplog.set_level(logging.INFO, logger="ironclaim.http.audit")

    def asked() -> list[dict[str, Any]]:
        found = [json.loads(record.getMessage()) for record in caplog.records if record.name.endswith("audit")]
        caplog.clear()
        return found

    return asked
