"""Probes: a process lives without its server, and is not ready without it."""

import pytest

from engine.http.settings import Token
from tests.engine.http.channels.desk import desk

pytestmark = pytest.mark.feature("DS31", model="dsps")


def test_with_its_server_the_process_lives_and_is_ready(ironclaim_url: str) -> None:
    with desk(ironclaim_url, allow_changes=False, tokens=(Token(secret="reader-0123456789"),)) as client:
        live, ready = client.get("/probe/liveness"), client.get("/probe/readiness")
        assert (live.status_code, live.json()) == (200, {"storage": {}})
        assert (ready.status_code, ready.json()) == (200, {"storage": {"redis": "ping OK"}})


@pytest.mark.slow
def test_without_its_server_the_process_lives_and_is_not_ready() -> None:
    with desk("redis://127.0.0.1:1/0") as client:
        live, ready = client.get("/probe/liveness"), client.get("/probe/readiness")
        assert live.status_code == 200
        assert (ready.status_code, ready.json()) == (500, {"storage": {"redis": "ServerUnavailable"}})
