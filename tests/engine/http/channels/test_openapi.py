"""The OpenAPI document says what the channel API does: a fuzzer that believes it finds nothing."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

from engine.http.channels.settings import ChannelSettings
from tests.engine.http.channels.desk import ADMIN, desk
from tests.engine.http.fuzzing import ask

OPERATIONS = 10


@pytest.mark.feature("DS33", model="dsps")
@pytest.mark.usefixtures("levels")
def test_a_fuzzer_finds_nothing(ironclaim_url: str) -> None:
    fuzz(ironclaim_url, examples=5)


@pytest.mark.slow
@pytest.mark.usefixtures("levels")
def test_a_fuzzer_finds_nothing_in_many_more_requests(ironclaim_url: str) -> None:
    fuzz(ironclaim_url, examples=50)


def fuzz(url: str, examples: int) -> None:
    """Ask for everything of the channel API."""
    tried: set[tuple[str, str]] = set()
    with desk(url, ChannelSettings(admin_tokens=(ADMIN,)), poll_max_ms=50) as client:
        schema = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
        for found in schema.include(path_regex="^/(channel|admin|probe)/").get_all_operations():
            operation: Any = found.ok()  # pyright: ignore[reportAttributeAccessIssue]
            # A schema does not say what a fetch has given, nor how deep a content may be.
            unfit = operation.method == "delete" and operation.path.endswith("/message")
            ask(operation, examples, [positive_data_acceptance] if unfit else [], {"Authorization": f"Bearer {ADMIN}"})
            tried.add((operation.method, operation.path))
    assert len(tried) == OPERATIONS
