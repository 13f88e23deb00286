"""Who may do what with a channel. A channel whose rules ask for tokens is open to these alone. Any other
channel is open to callers that the server knows, by their role. Whatever happens, the answer is one of
DSPS."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.channel import settings
from engine.errors import EngineError, Malformed, ServerUnavailable, logger
from engine.http.access import Endpoint, audit, carried_out, needs, noted, public
from engine.http.answers import Problem
from engine.http.channels import answers
from engine.http.channels.answers import Refused
from engine.http.channels.observing import Exchange
from engine.http.channels.service import ChannelService, service_of
from engine.http.channels.settings import ChannelAccess
from engine.http.channels.tokens import TokenRefused, jti_of
from engine.http.settings import Access, Role

auth_log = logger("ironclaim.http.auth")

#: For logs: the subject of a token may be as long as it likes.
_NAME_CHARS_MAX = 100

ChannelEndpoint = Callable[[Request, ChannelAccess], Awaitable[Response]]
T = TypeVar("T")
#: A request that waits has its token looked up so often.
RECHECK_S = 2.0
_REVOKED = "presented JWT has been revoked"
_NEEDS: dict[bool, Role] = {False: "read", True: "operate"}


def route(path: str, method: str, endpoint: Endpoint) -> Route:
    """A route whose answers are DSPS's, whatever happens, and which is told to who watches. The endpoint
    checks who asks itself."""

    @wraps(endpoint)
    async def watched(request: Request) -> Response:
        service = service_of(request)
        with service.telemetry.request(method, path, request.headers) as exchange:
            request.state.exchange = exchange
            response = await _answer(service, request, endpoint)
            exchange.answered(response.status_code)
            return response

    return Route(path, public(watched), methods=[method])


def channel_route(path: str, method: str, endpoint: ChannelEndpoint) -> Route:
    """The route of an endpoint about one channel, `{channel}` in its path. All but GET change something."""
    changes = method != "GET"

    @wraps(endpoint)
    async def guarded(request: Request) -> Response:
        service = service_of(request)
        channel = _channel(service, request)

        async def asked(request: Request) -> Response:
            return await endpoint(request, channel)

        async def answered(request: Request) -> Response:
            # Before the audit line is written, which says how it ended.
            return await _answer(service, request, asked)

        if not channel.checks:
            return await needs(_NEEDS[changes], changes=changes)(answered)(request)
        return await carried_out(request, _token_access(service, request, channel), answered, changes=changes)

    return route(f"/channel/{{channel}}{path}", method, guarded)


def about(request: Request, attributes: dict[str, str | int]) -> None:
    """Note what a request is about, for who watches."""
    exchange: Exchange = request.state.exchange
    exchange.about(attributes)


def id_of(request: Request, name: str, shown: str) -> str:
    """An id in the path; `shown`: what DSPS calls it. Raises Refused."""
    try:
        return settings.check_id(name, request.path_params[name])
    except Malformed:
        raise answers.invalid(shown) from None


def bearer(request: Request) -> str:
    """The token of a request, '' for none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _channel(service: ChannelService, request: Request) -> ChannelAccess:
    name = id_of(request, "channel", "channelID")
    channel = service.policies.of(name)
    if channel is None:
        raise answers.invalid("channelID", answers.INVALID_CHANNEL)
    about(request, {"messaging.system": "dsps", "messaging.destination.name": name})
    return channel


async def _token_access(service: ChannelService, request: Request, channel: ChannelAccess) -> Access:
    """The access that the token of a request gives. Raises Refused, and ServerUnavailable where the list of
    revoked tokens cannot be read: then nobody is let in."""
    try:
        claims = channel.claims_of(bearer(request))
        request.state.jti = jti = jti_of(claims)
        if jti:
            about(request, {"jwt.jti": jti})
            if await service.revocations.is_revoked(jti):
                raise TokenRefused(_REVOKED)
    except TokenRefused as error:
        raise _unauthorized(service, channel.name, str(error)) from error
    name = str(claims.get("sub") or claims.get("iss"))[:_NAME_CHARS_MAX]
    return Access(role="operate", queues=(channel.name,), name=f"token of {name}", ambient=False)


async def while_admitted(
    request: Request, channel: ChannelAccess, work: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """What a request waits for. Its token is looked up meanwhile, and once more before the end. Raises
    Refused as soon as it is revoked, with an audit line, and ServerUnavailable where nobody can say whether
    it is."""
    jti: str = getattr(request.state, "jti", "")
    if not jti:
        return await work()
    service, task = service_of(request), asyncio.ensure_future(work())
    try:
        while True:
            await asyncio.wait((task,), timeout=RECHECK_S)
            if await service.revocations.is_revoked(jti):
                noted(request, jti=jti, refused="revoked while it waited")
                audit(request, 403)
                raise _unauthorized(service, channel.name, _REVOKED)
            if task.done():
                return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _unauthorized(service: ChannelService, channel: str, why: str) -> Refused:
    auth_log.info("JWT verification failure for channel %s: %s", channel, why)
    reason = f"JWT verification failure: {why}" if service.settings.disclose_auth_rejection else ""
    return Refused(403, "Unauthorized", answers.REJECTED, reason)


async def _answer(service: ChannelService, request: Request, endpoint: Endpoint) -> Response:
    try:
        return await endpoint(request)
    except Problem as problem:
        return answers.of_problem(problem)
    except EngineError as error:
        answer = answers.of_engine_error(error)
        if answer.status_code == 500 and not isinstance(error, ServerUnavailable):
            service.report(error, {"method": request.method, "path": request.url.path})
        return answer
    except Exception as error:
        service.report(error, {"method": request.method, "path": request.url.path})
        return Response(status_code=500)
