"""What uvicorn is told, cookies of sessions, headers of all answers, who is asked again, and jobs as Bananas shows them."""

import asyncio
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from engine.http import access, serving, shield
from engine.http.jobs import bananas
from engine.http.settings import Access, HttpSettings, Token
from engine.ops.jobs import Options
from engine.queue.looks import JobInfo
from tests import golden

ADMIN, MAILS = "a" * 32, "m" * 32
TOKENS = (Token(secret=ADMIN, role="admin", name="admin"), Token(secret=MAILS, role="admin", name="mails", queues=("mails",)))


def plain(value: Any) -> Any:
    """A value as a text can hold it: of what is no data, its kind alone."""
    if isinstance(value, Mapping):
        return {plain(name): plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, map(plain, value)))
    if isinstance(value, re.Pattern):
        return f"/{value.pattern!r}/{value.flags}"
    return value if isinstance(value, str | bytes | int | float | None) else getattr(value, "__name__", type(value).__name__)


def asked(settings: HttpSettings, cookies: str = "", **scope: Any) -> Request:
    """A request to an application with these settings."""
    app = SimpleNamespace(state=SimpleNamespace(settings=settings))
    more: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "path_params": {}, "scheme": "http", "client": None}
    return Request({**more, "headers": [(b"cookie", cookies.encode())], "query_string": b"", "app": app, **scope})


def told_to_uvicorn() -> golden.Told:
    """By which bounds and switches it serves."""
    names = ("host", "port", "ws", "lifespan", "proxy_headers", "server_header", "access_log", "limit_concurrency")
    names += ("h11_max_incomplete_event_size", "timeout_graceful_shutdown", "http")
    config = serving.server(HttpSettings(waiting_max=7), host="::1", port=9).config
    yield "config", {name: plain(getattr(config, name)) for name in names}


def cookies() -> golden.Told:
    """Of sessions: how they begin and end, and until when they count."""
    settings, now_s = HttpSettings(tokens=TOKENS), 1_000_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.http.access.time", SimpleNamespace(time=lambda: now_s))
        for scope in ({}, {"scheme": "https", "root_path": "/jobs"}):
            request, answer = asked(settings, headers=[(b"host", b"localhost")], **scope), Response()
            signed = access.sign_in(request, answer, MAILS)
            access.sign_out(request, answer)
            set_there = [re.sub("expires=.*? GMT", "expired", one) for one in answer.headers.getlist("set-cookie")]
            yield "begun and ended", (signed, set_there)
        yield "a wrong one", (access.sign_in(request, Response(), "x"), access.sign_in(request, Response(), ADMIN[:-1]))
        for ends_s in (now_s, now_s + 1, now_s + 43_200, now_s + 43_201):
            cookie = f"{access.SESSION_COOKIE}={access._signed(TOKENS[1], ends_s)}"
            yield f"ends {ends_s}", access.session_of(asked(settings, cookie))
        for value in ("", "a.b", ".1000001.", "a.1000001.b.c"):
            yield repr(value), access.session_of(asked(settings, f"{access.SESSION_COOKIE}={value}"))


def asked_again() -> golden.Told:
    """A hook is asked at most every 15 s who reads a stream."""
    times: list[float] = []

    async def authorize(request: Request) -> Access:
        times.append(now_s[0])
        return Access(role="read", queues=("q",))

    now_s = [100.0]
    request = asked(HttpSettings(authorize=authorize))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.http.access.time", SimpleNamespace(monotonic=lambda: now_s[0]))

        async def story() -> list[bool]:
            await access._admit(request, "read", "", False)
            found: list[bool] = []
            for now_s[0] in (100.0, 114.9, 115.0, 115.1, 129.9, 130.0):
                found.append(await access.still_admitted(request, "read"))
            return found

        yield "asked", (asyncio.run(story()), times)


def headers() -> golden.Told:
    """Those of all answers, each once, beside those that an answer brings; and the cookie of a new browser."""
    for state, scheme in (({}, "http"), ({"new_csrf": "t"}, "http"), ({"new_csrf": "t"}, "https")):
        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"own")]})

        scope: Any = {"type": "http", "headers": [(b"host", b"localhost")], "path": "/", "query_string": b"", "scheme": scheme}
        asyncio.run(shield.Shield(app, HttpSettings())({**scope, "state": state}, lambda: None, send))  # type: ignore[arg-type]
        yield f"{state} {scheme}", sent


def of_bananas() -> golden.Told:
    """Jobs as its API shows them, and which times of it are taken."""
    for state, options, more in (
        ("waiting", Options(priority=1, headers=((bananas.DESCRIPTION, "d"),)), {"enqueued_ms": 1_500}),
        ("delayed", Options(priority=5, route="west", attempts=4), {"due_ms": 2_001}),
        ("finished", Options(priority=9), {"failures": 1, "crashes": 2}),
        ("dead", Options(priority=10), {"last_error": "ValueError: 5", "unreadable": "torn"}),
        ("expired", Options(), {}),
    ):
        job = JobInfo("j1", state, name="send", payload_bytes=b"[5]", options=options, **more)  # type: ignore[arg-type]
        for payloads in (False, True):
            yield f"{state} {payloads}", bananas._view(job, asked(HttpSettings(show_payloads=payloads)))
    texts = ("2030-01-15T10:30:00Z", "2030-01-15t10:30:00.0001z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00.0000001Z")
    texts += ("5999-12-31T23:59:59+00:00", "6000-01-01T00:00:00Z", "2030-01-15T10:30:00", "0001-01-01T00:00:00+10:00", "x")
    texts += ("2099-01-01T00:00:00.001Z", "2099-01-01T00:00:00.0010001Z", "2099-01-01T00:00:00.000999+00:00")
    for text in (*texts, None, 5):
        yield f"at {text}", golden.outcome(bananas._instant_ms, text)
    yield "priorities", [golden.outcome(bananas._priority, word) for word in ("high", "normal", "low", "High", None)]


def test_serving_access_cookies_and_the_shield_are_as_they_were_read() -> None:
    golden.tells("http/whole.txt", told_to_uvicorn, of_bananas, cookies, asked_again, headers)
