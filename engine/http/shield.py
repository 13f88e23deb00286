"""The middleware before the application. It refuses what is out of bounds, bounds what comes in slowly, and
adds the headers by which browsers restrict a page of ours."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any, cast
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.http import access
from engine.http.answers import Problem
from engine.http.settings import HttpSettings
from engine.redis.async_driver import Patience

# -- What a request must be before anything else looks at it: its host, its path, its headers, its size.
# Without I/O.

HEADERS_MAX = 100
HEADERS_BYTES_MAX = 16_384
QUERY_BYTES_MAX = 8_192
PATH_BYTES_MAX = 2_048
#: Headers that come once: of two, who stands in between may have looked at the other one.
SINGLE = frozenset(
    {
        *(
            b"host",
            b"content-length",
            b"content-type",
            b"authorization",
            b"origin",
            b"cookie",
            b"sec-fetch-site",
        ),
        *(b"idempotency-key", b"x-csrf-token", b"last-event-id", b"transfer-encoding"),
    }
)
_HOST = re.compile(r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?")
#: Encoded slashes, dots, backslashes and NUL: a proxy and we could read two different paths. No name needs
#: them.
_ENCODED = re.compile(rb"%(2[ef]|5c|00)", re.IGNORECASE)
#: What is left of bytes that are no UTF-8, and the control characters of ASCII. A proxy that decodes those
#: writes a line of its own into a header. All other characters are bytes that no proxy reads anything into.
_UNSAFE = r"\x00-\x1f\x7f\ufffd"
_UNSAFE_IN = re.compile(f"[{_UNSAFE}]")
#: The texts that a segment of a path can carry.
SEGMENT_PATTERN = rf"(?!\.\.?$)[^/\\{_UNSAFE}]+"
_SEGMENT = re.compile(SEGMENT_PATTERN)


def carries(path: str, segment: str) -> bool:
    """Whether the address is let in that has this text as one more segment."""
    size = len(path) + len("/") + len(quote(segment, safe=""))
    return size <= PATH_BYTES_MAX and _SEGMENT.fullmatch(segment) is not None


def refusal(scope: dict[str, Any], settings: HttpSettings) -> Problem | None:
    """Why a request is not let in; None for one that is."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    counts = Counter(name for name, _ in headers)
    doubled = sorted(name.decode() for name in SINGLE if counts[name] > 1)
    if doubled:
        return Problem(400, f"The header {doubled[0]} is there more than once.", field=doubled[0])
    if (
        len(headers) > HEADERS_MAX
        or sum(len(name) + len(value) for name, value in headers) > HEADERS_BYTES_MAX
    ):
        return Problem(
            431, f"At most {HEADERS_MAX} headers of {HEADERS_BYTES_MAX} bytes altogether are read."
        )
    found = dict(headers)
    host = _HOST.fullmatch(found.get(b"host", b"").decode("latin-1"))
    if host is None or host[1].lower() not in {name.lower() for name in settings.allowed_hosts}:
        return Problem(
            421, "This server does not answer to this name (Host); --allowed-hosts says which it answers to."
        )
    return _path_refusal(scope) or _size_refusal(found, settings)


def _path_refusal(scope: dict[str, Any]) -> Problem | None:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if len(raw) > PATH_BYTES_MAX or len(scope["query_string"]) > QUERY_BYTES_MAX:
        return Problem(
            414, f"At most {PATH_BYTES_MAX} bytes of a path and {QUERY_BYTES_MAX} of a query are read."
        )
    segments = raw.split(b"/")
    if _ENCODED.search(raw) or b"\\" in raw or b"." in segments or b".." in segments or b"" in segments[1:-1]:
        return Problem(
            400, "The path has empty segments, dots as segments, or encoded slashes, dots or backslashes."
        )
    if _UNSAFE_IN.search(scope["path"]):
        return Problem(400, "The path is no UTF-8, or has control characters.")
    return None


def _size_refusal(headers: dict[bytes, bytes], settings: HttpSettings) -> Problem | None:
    if b"transfer-encoding" in headers and b"content-length" in headers:
        return Problem(
            400, "A body has either a Content-Length or a Transfer-Encoding.", field="content-length"
        )
    length = headers.get(b"content-length", b"0")
    if not length.isdigit():
        return Problem(400, "The Content-Length is no number.", field="content-length")
    return too_large(settings) if len(length) > 15 or int(length) > settings.body_max_bytes else None


def too_large(settings: HttpSettings) -> Problem:
    """The problem of a body beyond the bound."""
    return Problem(413, f"A body has at most {settings.body_max_bytes} bytes.", field="body")


#: The whole body has to be there after so long.
BODY_S = 15.0

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: As ASGI has them: each answer gets those that it does not have.
_RAW_HEADERS = tuple((name.lower().encode(), value.encode()) for name, value in HEADERS.items())


class Shield:
    """The outermost middleware."""

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            # Nothing here talks over websockets, and what knows no bounds is not let in.
            return await send({"type": "websocket.close", "code": 1003})
        answer = _with_headers(scope, send)
        problem = refusal(cast("dict[str, Any]", scope), self._settings)
        if problem is not None:
            return await problem.response()(scope, receive, answer)
        return await self._app(scope, self._bounded(receive), answer)

    def _bounded(self, receive: Receive) -> Receive:
        """Receives a body of bounded size, in bounded time."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + BODY_S
        size, whole = 0, False

        async def bounded() -> Message:
            nonlocal size, whole
            if whole:
                return await receive()
            try:
                # What came while the loop stood still is read, though the time is over.
                async with Patience(until_s - loop.time()):
                    message = await receive()
            except TimeoutError:
                raise Problem(
                    408, f"The body did not come within {BODY_S:g} s.", headers={"Connection": "close"}
                ) from None
            size += len(message.get("body", b""))
            if size > self._settings.body_max_bytes:
                raise too_large(self._settings)
            whole = not message.get("more_body", False)
            return message

        return bounded


def _with_headers(scope: Scope, send: Send) -> Send:
    """Sends answers with the headers of all answers."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *(pair for pair in _RAW_HEADERS if pair[0] not in given),
            ]
            token = scope.get("state", {}).get("new_csrf")
            if token is not None:
                path, secure = (
                    scope.get("root_path", "") or "/",
                    "; Secure" if scope["scheme"] == "https" else "",
                )
                cookie = f"{access.CSRF_COOKIE}={token}; HttpOnly; Path={path}; SameSite=Strict{secure}"
                MutableHeaders(scope=message).append("Set-Cookie", cookie)
        await send(message)

    return sending
