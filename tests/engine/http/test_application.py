"""The application: what holds for all of its answers."""

import asyncio
import http.client
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from engine import Queue
from engine.http import access, application, opening, routes
from engine.http.channels.settings import ChannelSettings
from engine.http.settings import HttpSettings
from tests.engine.helpers.waiting import soon
from tests.engine.http.channels.desk import ADMIN
from tests.engine.http.serving import asking, bearer, served


def test_a_path_that_there_is_not_is_a_problem_with_the_headers_of_all_answers(ironclaim_url: str) -> None:
    with asking(ironclaim_url) as client:
        answer = client.get("/nothing")
    assert (answer.status_code, answer.json()["status"]) == (404, 404)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert answer.headers["cache-control"] == "no-store"


def test_a_method_that_a_path_does_not_have_is_answered_with_all_that_it_has(ironclaim_url: str) -> None:
    has = {"limits/a": "DELETE, PUT", "events": "DELETE, GET, HEAD, PUT", "jobs/j1/cancel": "POST", "jobs/batch": "POST"}
    with asking(ironclaim_url) as client:
        answers = {path: client.patch(f"/api/queues/q/{path}") for path in has}
    told = {path: (answer.status_code, answer.headers["allow"]) for path, answer in answers.items()}
    assert told == {path: (405, allow) for path, allow in has.items()}


def test_a_service_mounts_it_and_closes_it_with_its_own_lifespan(ironclaim_url: str, queue: Queue, raw: Any) -> None:
    channels = ChannelSettings(admin_tokens=(ADMIN,))
    inner = application.application(HttpSettings(url=ironclaim_url, allow_changes=True, channels=channels))

    @asynccontextmanager
    async def running(app: Starlette) -> AsyncGenerator[None]:
        async with inner.router.lifespan_context(inner):
            yield

    outer = Starlette(routes=[Mount("/jobs", inner)], lifespan=running)

    async def ask() -> tuple[httpx.Response, httpx.Response]:
        transport = httpx.ASGITransport(outer)
        async with running(outer), httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            made = await client.post("/jobs/api/queues/q/jobs", json={"name": "a", "id": "j1"})
            for path in ("api/queues", "api/v1/jobs", "probe/readiness"):
                assert (await client.get(f"/jobs/{path}")).is_success, path
            assert (await client.put("/jobs/admin/jwt/revoke?jti=a&exp=4070912400", headers=bearer(ADMIN))).is_success
            return made, await client.get("/jobs/openapi.json")

    before = {one["id"] for one in raw.client_list()}
    made, printed = asyncio.run(ask())
    soon(lambda: before.issuperset(one["id"] for one in raw.client_list()), "its connections are closed")
    assert (made.status_code, made.headers["location"]) == (201, "/jobs/api/queues/q/jobs/j1")
    document = printed.json()
    assert (document["openapi"], document["servers"]) == ("3.1.0", [{"url": "/jobs"}]) and queue.jobs.state("j1") == "waiting"


def test_queues_beyond_the_bound_make_room(ironclaim_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "QUEUES_MAX", 2)
    queue.enqueue("a", 1, id="j1")
    with asking(ironclaim_url) as client:
        for name in ("q", "r", "s", "t", "q"):
            assert client.get(f"/api/queues/{name}").json()["counts"]["waiting"] == (name == "q")


async def test_what_was_used_last_stays_open(ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "QUEUES_MAX", 2)
    opened = opening.Opened(HttpSettings(url=ironclaim_url, channels=ChannelSettings()))
    for of in (opened.queue, opened.channel):
        first, _, again, _ = map(of, "abac")
        assert of("a") is again is first
    monkeypatch.setattr(opened, "_made", None)
    await opened.meet("a", changes=False)
    await opened.close()


def test_a_fault_shows_nothing_of_itself(ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @access.public
    async def fail(request: Request) -> Response:
        raise RuntimeError("a secret")

    monkeypatch.setattr(routes, "page_routes", lambda settings: [Route("/fail", fail, methods=["GET"])])
    with asking(ironclaim_url) as client:
        answer = client.get("/fail")
    assert answer.status_code == 500 and answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text


_OF = {"queue": "q", "id": "j1", "channel": "c", "subscriber": "s", "message": "m"}
_POLL = "/channel/{channel}/subscription/polling/{subscriber}"
_WAITS = {"/api/queues/{queue}/jobs/{id}/result": "?wait_ms=60000", _POLL: "?timeout=60s"}


@pytest.mark.slow
def test_a_connection_serves_on_after_head_and_options_of_each_route(ironclaim_url: str) -> None:
    """They end at once: the next request on the same connection is answered."""
    settings = HttpSettings(url=ironclaim_url, allow_changes=True, channels=ChannelSettings())
    routes = [route for route in application.application(settings).routes if isinstance(route, Route)]
    with Queue("q", url=ironclaim_url) as queue:
        queue.enqueue("a", 1, id="j1")
    with served(settings) as base:
        connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=30)
        paths = {route.path: re.sub(r"\{(\w+)[^}]*\}", lambda found: _OF.get(found[1], "x"), route.path) for route in routes}
        connection.request("PUT", paths[_POLL])
        connection.getresponse().read()
        for path, filled in {**paths, "/static": "/static/page.css"}.items():
            for method in ("HEAD", "OPTIONS"):
                connection.request(method, filled + _WAITS.get(path, ""))
                answer = connection.getresponse()
                body = answer.read()
                assert answer.status < 500, (method, path, answer.status)
                assert method == "OPTIONS" or not body
                assert answer.status != 405 or answer.headers["Allow"], (method, path)
                connection.request("GET", "/openapi.json")
                assert connection.getresponse().read(), (method, path)
        connection.close()
