"""What each endpoint needs: declared with it, and enforced here alone.

    @needs("operate", changes=True)
    async def cancel(request: Request) -> Response: ...

An application refuses to be made with a route whose endpoint declares nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from engine.errors import EngineError, logger, redacted
from engine.http.answers import Problem, problem_of
from engine.http.describing import digits
from engine.http.settings import Access, HttpSettings, Role, Token

# -- Keeps the pages of other sites from making a browser change something here (cross-site request
# forgery).
#
# Asked for where a browser would show its access by itself: as a cookie, or because nobody is asked. A change
# then needs the `Origin` of this site and the token of this browser, which a page of ours has in a form field
# or sends as a header. What is no browser says nothing of an origin, and only must not send what a form of
# another site could.

CSRF_COOKIE = "ironclaim_csrf"
HEADER = "x-csrf-token"
FIELD = "csrf_token"
FIELDS_MAX = 200
#: What a form can send to another site without asking it first.
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


def csrf_token(request: Request) -> str:
    """The token of this browser, for forms and scripts of ours; a new browser gets its cookie with the
    response."""
    known = request.cookies.get(CSRF_COOKIE, "")
    if _TOKEN.fullmatch(known):
        return known
    if not hasattr(request.state, "new_csrf"):
        request.state.new_csrf = secrets.token_urlsafe(32)
    return request.state.new_csrf


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form of ours, the last value of each. Raises Problem."""
    if _media_type(request) != _FORMS[0]:
        raise Problem(415, f"A form is sent as {_FORMS[0]}.")
    try:
        text = (await request.body()).decode()
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"))
    except ValueError as error:
        raise Problem(400, f"The form cannot be read: {error}.") from None


async def refuse_forged(request: Request, access: Access) -> None:
    """Raise Problem for a change that the page of another site may have made a browser ask for."""
    if access.ambient:
        await refuse_foreign(request)


async def refuse_foreign(request: Request) -> None:
    """Raise Problem for a request that is neither from a page of this site nor from something that is no
    browser."""
    headers = request.headers
    if "origin" not in headers and "sec-fetch-site" not in headers and "cookie" not in headers:
        if _media_type(request) in _FORMS:
            raise Problem(403, "A form is sent with the Origin of this site.")
        return
    if not _of_this_site(headers.get("origin", ""), headers.get("host", "")):
        raise Problem(403, "The page that this comes from is not of this site (Origin).")
    known, given = request.cookies.get(CSRF_COOKIE, ""), headers.get(HEADER)
    if given is None and _media_type(request) == _FORMS[0]:
        given = (await form_of(request)).get(FIELD)
    if not _TOKEN.fullmatch(known) or not hmac.compare_digest(
        known.encode(), (given or "").encode(errors="surrogateescape")
    ):
        raise Problem(
            403, f"The token of this browser is missing or another one ({FIELD}); load the page again."
        )


def _of_this_site(origin: str, host: str) -> bool:
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    return found.scheme in ("http", "https") and found.netloc.lower() == host.lower()


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


# -- Sessions of browsers: who has shown a token once gets a cookie, which is worth as much as the token
# for some hours.
#
# The cookie holds which token it was, when it ends, and a code made with the token itself. So no server needs
# to remember it. It ends with the token.

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
    """Begin a session for whoever shows this secret: its cookie goes with the response. None for one that is
    no token."""
    token = token_of(secret, request.app.state.settings.tokens)
    if token is not None:
        value = _signed(token, int(time.time()) + LENGTH_S)
        response.set_cookie(
            SESSION_COOKIE,
            value,
            LENGTH_S,
            path=_path(request),
            secure=_secure(request),
            httponly=True,
            samesite="strict",
        )
    return token


def sign_out(request: Request, response: Response) -> None:
    """End the session of this browser."""
    response.delete_cookie(
        SESSION_COOKIE, path=_path(request), secure=_secure(request), httponly=True, samesite="strict"
    )


def session_of(request: Request) -> Token | None:
    """The token that the session of this request began with; None without a session, and for one that is over
    or made up."""
    found, now_s = None, time.time()
    value = request.cookies.get(SESSION_COOKIE, "")
    _, ends, *_ = (*value.split("."), "")
    ends_s = digits(ends)
    if ends_s is None or not now_s < ends_s <= now_s + LENGTH_S:
        return None
    for token in request.app.state.settings.tokens:
        if hmac.compare_digest(_signed(token, ends_s).encode(), value.encode(errors="surrogateescape")):
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


Endpoint = Callable[[Request], Awaitable[Response]]

audit_log = logger("ironclaim.http.audit")
# Whoever sets how much the rest of the engine logs leaves these lines alone.
audit_log.setLevel(logging.INFO)
#: Who reads a stream is asked for again so often.
ASKED_AGAIN_S = 15.0
#: Path parameters that name what a token may be bound to.
_BOUND_TO = ("queue", "channel")


@dataclass(frozen=True, slots=True)
class Needed:
    """What an endpoint needs: a role (None: nothing), and whether it changes something."""

    role: Role | None
    changes: bool


def needs(role: Role, *, changes: bool = False, queue: str = "") -> Callable[[Endpoint], Endpoint]:
    """Declare the role that an endpoint needs, and whether it changes something. A change is refused unless
    changes are allowed, and where it may come from the page of another site; it leaves an audit line. A token
    for some queues reaches what is of those: of the queue or channel that the path names, or of this `queue`;
    of all of them it changes nothing."""

    def decorate(endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        async def guarded(request: Request) -> Response:
            return await carried_out(
                request, _admit(request, role, queue, changes), endpoint, changes=changes
            )

        return declared(guarded, Needed(role, changes))

    return decorate


async def carried_out(
    request: Request, admitting: Awaitable[Access], endpoint: Endpoint, *, changes: bool
) -> Response:
    """Call an endpoint for whoever is admitted; one that changes something, only where that is allowed and
    wanted, and with an audit line."""
    if not changes:
        request.state.access = await admitting
        await _meet(request, changes=False)
        return await endpoint(request)
    status = 500
    try:
        request.state.access = access = await admitting
        if not request.app.state.settings.allow_changes:
            raise Problem(403, "This server changes nothing; it was started without --allow-changes.")
        await refuse_forged(request, access)
        await _meet(request, changes=True)
        response = await endpoint(request)
        status = response.status_code
    except Problem as problem:
        status = problem.status
        raise
    except EngineError as error:
        status = problem_of(error).status
        raise
    finally:
        audit(request, status)
    return response


def noted(request: Request, **members: str | bool) -> None:
    """Add members to the audit line of a request that changes something."""
    request.state.noted = {**getattr(request.state, "noted", {}), **members}


def refuse_elsewhere(request: Request, id: object) -> None:
    """Raise Problem for the id of a job that may be in a queue that the caller does not reach."""
    access = access_of(request)
    if access.queues and isinstance(id, str) and request.app.state.settings.may_be_elsewhere(id):
        noted(request, refused=f"id: {id[:128]} may be a job of another queue")
        bound = "an id without a colon, for who is for some queues alone"
        raise Problem(
            403, f"id: {id[:80]!r} may be a job of another queue.", field="id", value=id[:80], bound=bound
        )


def public(endpoint: Endpoint) -> Endpoint:
    """Declare that an endpoint asks nobody: probes, signing in, static files, and what checks credentials of
    its own."""
    return declared(endpoint, Needed(None, False))


def declared(endpoint: Any, needed: Needed) -> Any:
    """The endpoint, with what it needs."""
    endpoint.needed = needed
    return endpoint


def access_of(request: Request) -> Access:
    """The access of a request to an endpoint that needs a role."""
    return request.state.access


async def caller(request: Request) -> Access | None:
    """The access of whoever asks; None for somebody who is not known."""
    settings: HttpSettings = request.app.state.settings
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if settings.authorize is not None:
        found = await settings.authorize(request)
        # Any other scheme, and any cookie, a browser shows by itself.
        return None if found is None else replace(found, ambient=scheme.lower() != "bearer")
    if not settings.tokens:
        return Access(role="admin", name="anybody", ambient=True)
    if scheme:
        token = token_of(secret.strip(), settings.tokens) if scheme.lower() == "bearer" else None
        return token and token.access(ambient=False)
    token = session_of(request)
    return token and token.access(ambient=True)


async def still_admitted(request: Request, role: Role) -> bool:
    """Whether who reads a stream may do so still: a session ends, and a hook may refuse who was let in
    before. Asked at most every 15 s; the end of it leaves an audit line."""
    now_s = time.monotonic()
    if now_s - getattr(request.state, "admitted_s", now_s) < ASKED_AGAIN_S:
        return True
    try:
        await _admit(request, role, "", False)
        return True
    except (Problem, EngineError) as refusal:
        noted(request, refused=f"no longer admitted: {refusal}")
        audit(request, 403)
        return False


async def _admit(request: Request, role: Role, queue: str, changes: bool) -> Access:
    """The access of a request, where it is enough. Raises Problem."""
    request.state.admitted_s = time.monotonic()
    access = await caller(request)
    if access is None:
        raise Problem(401, "Who asks is not known.", headers={"WWW-Authenticate": 'Bearer realm="ironclaim"'})
    request.state.access = access
    if not access.may(role):
        raise Problem(403, f"This needs the role {role}, and {access.name} has {access.role}.")
    # What a request is about; nothing where it is about all queues.
    names = (
        [queue] if queue else [request.path_params[name] for name in _BOUND_TO if name in request.path_params]
    )
    settings: HttpSettings = request.app.state.settings
    if not queue and "queue" in request.path_params and settings.keyspace:
        names = [settings.keyspace]
    if not all(map(access.reaches, names)) or (changes and access.queues and not names):
        noted(request, refused=f"not for {', '.join(names)[:256]}")
        raise Problem(403, f"{access.name} is for {', '.join(access.queues)} alone.")
    refuse_elsewhere(request, request.path_params.get("id"))
    return access


async def _meet(request: Request, *, changes: bool) -> None:
    """Open the queue that the path names. Raises Malformed, ServerUnavailable."""
    if "queue" in request.path_params:
        await request.app.state.opened.meet(request.path_params["queue"], changes=changes)


def audit(request: Request, status: int) -> None:
    """Write the audit line of a request: one of JSON for each change, also for one that was refused or
    failed."""
    access: Access | None = getattr(request.state, "access", None)
    line = {
        "who": access.name if access else None,
        "role": access.role if access else None,
        "from": request.client.host if request.client else None,
        "method": request.method,
        # An id that somebody took from the wrong place may be a url with its password.
        "path": redacted(request.scope["path"]),
        "status": status,
        **getattr(request.state, "noted", {}),
    }
    audit_log.info("%s", json.dumps(line))
