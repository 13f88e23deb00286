"""What each endpoint needs: declared with it, and enforced here alone.

    @needs("operate", changes=True)
    async def cancel(request: Request) -> Response: ...

An application refuses to be made with a route whose endpoint declares nothing.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.errors import EngineError, logger
from engine.http.problems import Problem, problem_of
from engine.http.security.forgery import refuse_forged
from engine.http.security.roles import Access
from engine.http.security.roles import Role
from engine.http.security.sessions import session_of, token_of
from engine.http.settings import HttpSettings

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
    """Declare the role that an endpoint needs, and whether it changes something: then it is refused unless changes are allowed,
    and where it may come from the page of another site, and it leaves an audit line. A token for some queues reaches what is of
    those: of the queue or channel that the path names, or of this `queue`; of all of them it changes nothing."""

    def decorate(endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        async def guarded(request: Request) -> Response:
            return await carried_out(request, _admit(request, role, queue, changes), endpoint, changes=changes)

        return declared(guarded, Needed(role, changes))

    return decorate


async def carried_out(request: Request, admitting: Awaitable[Access], endpoint: Endpoint, *, changes: bool) -> Response:
    """Call an endpoint for whoever is admitted; one that changes something, only where that is allowed and wanted, and with an
    audit line."""
    if not changes:
        request.state.access = await admitting
        await _meet(request)
        return await endpoint(request)
    status = 500
    try:
        request.state.access = access = await admitting
        if not request.app.state.settings.allow_changes:
            raise Problem(403, "This server changes nothing; it was started without --allow-changes.")
        await refuse_forged(request, access)
        await _meet(request)
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
        raise Problem(403, f"id: {id[:80]!r} may be a job of another queue.", field="id", value=id[:80], bound=bound)


def public(endpoint: Endpoint) -> Endpoint:
    """Declare that an endpoint asks nobody: probes, signing in, static files, and what checks credentials of its own."""
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
    """Whether who reads a stream may do so still: a session ends, and a hook may refuse who was let in before. Asked at most
    every 15 s; the end of it leaves an audit line."""
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
    names = [queue] if queue else [request.path_params[name] for name in _BOUND_TO if name in request.path_params]
    settings: HttpSettings = request.app.state.settings
    if not queue and "queue" in request.path_params and settings.keyspace:
        names = [settings.keyspace]
    if not all(map(access.reaches, names)) or (changes and access.queues and not names):
        noted(request, refused=f"not for {', '.join(names)[:256]}")
        raise Problem(403, f"{access.name} is for {', '.join(access.queues)} alone.")
    refuse_elsewhere(request, request.path_params.get("id"))
    return access


async def _meet(request: Request) -> None:
    """Open the queue that the path names. Raises Malformed, ServerUnavailable."""
    if "queue" in request.path_params:
        await request.app.state.opened.meet(request.path_params["queue"])


def audit(request: Request, status: int) -> None:
    """Write the audit line of a request: one of JSON for each change, also for one that was refused or failed."""
    access: Access | None = getattr(request.state, "access", None)
    line = {
        "who": access.name if access else None,
        "role": access.role if access else None,
        "from": request.client.host if request.client else None,
        "method": request.method,
        "path": request.scope["path"],
        "status": status,
        **getattr(request.state, "noted", {}),
    }
    audit_log.info("%s", json.dumps(line))
