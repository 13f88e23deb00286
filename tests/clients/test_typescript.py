"""The TypeScript client in Node and in Chromium."""

from __future__ import annotations

from tests.clients.conftest import Scenarios
from tests.clients.relay import relay

#: Nothing listens there.
NOWHERE = "http://127.0.0.1:9"


def test_a_wrong_argument_is_named_before_anything_is_sent(scenario: Scenarios) -> None:
    with relay(NOWHERE, scenario.pages) as harmed:
        found = scenario("refusals", harmed)
        assert harmed.seen == []
    fields = {name: name for name in found} | {"user": "url", "surrogate": "id"}
    assert len(found) > 15
    for name, error in found.items():
        assert error and error["name"] == "InvalidArgument" and error["ours"], (name, error)
        assert error["field"] == fields[name] and error["bound"] and error["message"].startswith(f"{fields[name]}: "), error
