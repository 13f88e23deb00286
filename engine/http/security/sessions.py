"""Sessions of browsers: who has shown a token once gets a cookie, which is worth as much as the token for some hours.

The cookie holds which token it was, when it ends, and a code made with the token itself, so no server needs to remember it, and
it ends with the token.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response

from engine.http.security.roles import Token

SESSION_COOKIE = "ironclaim_session"
LENGTH_S = 12 * 3600


def token_of(secret: str, tokens: Iterable[Token]) -> Token | None:
    """The token with this secret. It takes as long whichever it is, and whether there is one."""
    found = None
    given = secret.encode(errors="surrogateescape")
    for token in tokens:
        if hmac.compare_digest(token.secret.encode(), given):
            found = token
    return found


def sign_in(request: Request, response: Response, secret: str) -> Token | None:
    """Begin a session for whoever shows this secret: its cookie goes with the response. None for one that is no token."""
    token = token_of(secret, request.app.state.settings.tokens)
    if token is not None:
        value = _signed(token, int(time.time()) + LENGTH_S)
        response.set_cookie(
            SESSION_COOKIE, value, LENGTH_S, path=_path(request), secure=_secure(request), httponly=True, samesite="strict"
        )
    return token


def sign_out(request: Request, response: Response) -> None:
    """End the session of this browser."""
    response.delete_cookie(SESSION_COOKIE, path=_path(request), secure=_secure(request), httponly=True, samesite="strict")


def session_of(request: Request) -> Token | None:
    """The token that the session of this request began with; None without a session, and for one that is over or made up."""
    found, now_s = None, time.time()
    value = request.cookies.get(SESSION_COOKIE, "")
    ends_s = value.split(".")[1] if value.count(".") == 2 else ""
    if not (ends_s.isascii() and ends_s.isdigit() and len(ends_s) <= 12) or not now_s < int(ends_s) <= now_s + LENGTH_S:
        return None
    for token in request.app.state.settings.tokens:
        if hmac.compare_digest(_signed(token, int(ends_s)).encode(), value.encode(errors="surrogateescape")):
            found = token
    return found


def _signed(token: Token, ends_s: int) -> str:
    """The value of a cookie."""
    name = hashlib.sha256(token.secret.encode()).hexdigest()[:16]
    text = f"{name}.{ends_s}"
    return f"{text}.{hmac.new(token.secret.encode(), f'session.{text}'.encode(), 'sha256').hexdigest()}"


def _path(request: Request) -> str:
    return request.scope.get("root_path", "") or "/"


def _secure(request: Request) -> bool:
    return request.url.scheme == "https"
