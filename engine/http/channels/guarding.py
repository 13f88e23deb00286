"""Who may do what with a channel. A channel whose rules ask for tokens is open to these alone; any other one to whoever the
server knows with the role that it takes. Whatever happens, the answer is one of DSPS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.channel import ids
from engine.errors import EngineError, Malformed, ServerUnavailable
from engine.http.channels import answers
from engine.http.channels.answers import Refused
from engine.http.channels.observing import Exchange
from engine.http.channels.policies import ChannelAccess
from engine.http.channels.service import ChannelService, service_of
from engine.http.channels.tokens import TokenRefused
from engine.http.problems import Problem
from engine.http.security.access import Access, Endpoint, Role, carried_out, needs, public
from engine.spared import logger

auth_log = logger("ironclaim.http.auth")

#: For logs: the subject of a token may be as long as it likes.
_NAME_CHARS_MAX = 100

ChannelEndpoint = Callable[[Request, ChannelAccess], Awaitable[Response]]
_NEEDS: dict[bool, Role] = {False: "read", True: "operate"}


def route(path: str, method: str, endpoint: Endpoint) -> Route:
    """A route whose answers are DSPS's, whatever happens, and which is told to who watches. The endpoint checks who asks
    itself."""

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
        return ids.check(name, request.path_params[name])
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
    """The access that the token of a request gives. Raises Refused, and ServerUnavailable where the list of revoked tokens
    cannot be read: then nobody is let in."""
    try:
        claims = channel.claims_of(bearer(request))
        jti: Any = claims.get("jti")
        if isinstance(jti, str) and jti:
            about(request, {"jwt.jti": jti})
            if await service.revocations.is_revoked(jti):
                raise TokenRefused("presented JWT has been revoked")
    except TokenRefused as error:
        auth_log.info("JWT verification failure for channel %s: %s", channel.name, error)
        reason = f"JWT verification failure: {error}" if service.settings.disclose_auth_rejection else ""
        raise Refused(403, "Unauthorized", answers.REJECTED, reason) from error
    name = str(claims.get("sub") or claims.get("iss"))[:_NAME_CHARS_MAX]
    return Access(role="operate", queues=(channel.name,), name=f"token of {name}", ambient=False)


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
