"""The application: what holds for all of its answers."""

from __future__ import annotations

import httpx

from engine.http.settings import HttpSettings
from tests.engine.http.serving import served


def test_a_path_that_there_is_not_is_a_problem_with_the_headers_of_all_answers(ironclaim_url: str) -> None:
    with served(HttpSettings(url=ironclaim_url)) as base:
        answer = httpx.get(f"{base}/nothing")
    assert answer.status_code == 404 and answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == 404
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert answer.headers["cache-control"] == "no-store"
