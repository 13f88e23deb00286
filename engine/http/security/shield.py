"""Stands before the application: refuses what is out of bounds, bounds what comes in slowly, and adds the headers that tell
browsers what a page of ours may do."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.http.problems import Problem
from engine.http.security import forgery
from engine.http.security.bounds import refusal, too_large
from engine.http.settings import HttpSettings

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
        until_s = asyncio.get_running_loop().time() + BODY_S
        size, whole = 0, False

        async def bounded() -> Message:
            nonlocal size, whole
            if whole:
                return await receive()
            try:
                async with asyncio.timeout_at(until_s):
                    message = await receive()
            except TimeoutError:
                raise Problem(408, f"The body did not come within {BODY_S:g} s.", headers={"Connection": "close"}) from None
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
            message["headers"] = [*message["headers"], *(pair for pair in _RAW_HEADERS if pair[0] not in given)]
            token = scope.get("state", {}).get("new_csrf")
            if token is not None:
                path, secure = scope.get("root_path", "") or "/", "; Secure" if scope["scheme"] == "https" else ""
                cookie = f"{forgery.CSRF_COOKIE}={token}; HttpOnly; Path={path}; SameSite=Strict{secure}"
                MutableHeaders(scope=message).append("Set-Cookie", cookie)
        await send(message)

    return sending
