"""The OpenAPI document says what the channel API does: a fuzzer that believes it finds nothing."""

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

from engine.http.channels.settings import ChannelSettings
from tests.engine.http import fuzzing, serving
from tests.engine.http.channels.desk import ADMIN, desk

OPERATIONS, PATHS = 10, "^/(channel|admin|probe)/"


def test_what_is_not_let_in_is_refused_as_the_document_says(ironclaim_url: str) -> None:
    with desk(ironclaim_url) as client:
        refused, told = client.publish("chx", "%C2%84", "1"), client.publish("chx", "NO", "1")
        paths = client.get("/openapi.json").json()["paths"]
    declared = paths["/channel/{channel}/message/{message}"]["put"]["responses"]["400"]["content"]
    assert {refused.status_code, told.status_code} == {400}
    assert set(declared) == {refused.headers["content-type"], told.headers["content-type"]}


@pytest.mark.nightly
@pytest.mark.timeout(fuzzing.CAMPAIGN_S)
@pytest.mark.parametrize("changes", [True, False], ids=["an admin", "anybody, to look"])
@pytest.mark.usefixtures("levels")
def test_a_campaign_finds_nothing(ironclaim_url: str, tmp_path: Path, changes: bool) -> None:
    # A schema does not say what a fetch has given.
    unfit, channels = [("DELETE", "/message$", "positive_data_acceptance")], ChannelSettings(admin_tokens=(ADMIN,))
    with desk(ironclaim_url, channels, poll_max_ms=50, allow_changes=changes) as client:
        fuzzing.campaign(str(client.base_url).rstrip("/"), tmp_path, PATHS, unfit, ADMIN if changes else "")


@pytest.mark.slow
@pytest.mark.feature("DS33", model="dsps")
@pytest.mark.usefixtures("levels")
def test_a_fuzzer_finds_nothing(ironclaim_url: str) -> None:
    """It asks for everything of the channel API."""
    tried: set[tuple[str, str]] = set()
    with desk(ironclaim_url, ChannelSettings(admin_tokens=(ADMIN,)), poll_max_ms=50) as client:
        schema = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
        for found in schema.include(path_regex=PATHS).get_all_operations():
            operation: Any = found.ok()  # pyright: ignore[reportAttributeAccessIssue]
            # A schema does not say what a fetch has given, nor how deep a content may be.
            unfit = operation.method == "delete" and operation.path.endswith("/message")
            fuzzing.ask(operation, 50, [positive_data_acceptance] if unfit else [], serving.bearer(ADMIN))
            tried.add((operation.method, operation.path))
    assert len(tried) == OPERATIONS
