"""The admin API: revoke a token, and set how much is logged. Callers show a bearer token and come from an allowed network."""

from __future__ import annotations

import hmac
import logging
import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.http.channels import answers, networks
from engine.http.channels.answers import Refused
from engine.http.channels.guarding import bearer, route
from engine.http.channels.revocations import EXPIRES_S_MAX, JTI_CHARS_MAX
from engine.http.channels.service import ChannelService, service_of
from engine.http.security.access import Access, Endpoint, carried_out

_SECONDS = re.compile(r"[0-9]{1,12}")
_LEVELS = {name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")}
#: The categories of DSPS that there are here, and the loggers that they set. `*`: all of the engine's.
_LOGGERS = {"*": "ironclaim", "http": "ironclaim.http", "auth": "ironclaim.http.auth", "outgoing-webhook": "ironclaim.worker"}


def routes() -> list[BaseRoute]:
    """The routes of administrators."""
    return [_admin("/jwt/revoke", _revoke), _admin("/log/level", _set_level)]


def _admin(path: str, endpoint: Endpoint) -> BaseRoute:
    async def guarded(request: Request) -> Response:
        service = service_of(request)
        if not _allowed(service, request):
            raise Refused(403, "")
        return await carried_out(request, Access(role="admin", name="administrator"), endpoint, changes=True)

    return route(f"/admin{path}", "PUT", guarded)


def _allowed(service: ChannelService, request: Request) -> bool:
    settings = service.settings
    peer = request.client.host if request.client else ""
    forwarded = request.headers.getlist(settings.real_ip_header) if settings.real_ip_header else []
    caller = networks.caller(peer, forwarded, service.trusted_proxies)
    # Each token is compared, so that the time tells nothing.
    given = bearer(request).encode(errors="surrogateescape")
    known = sum(hmac.compare_digest(token.encode(), given) for token in settings.admin_tokens)
    return networks.among(caller, service.admin_networks) and known > 0


async def _revoke(request: Request) -> Response:
    jti = request.query_params.get("jti", "")
    if not jti:
        raise answers.missing("jti")
    if len(jti) > JTI_CHARS_MAX:
        raise answers.invalid("jti")
    expires = request.query_params.get("exp", "")
    if not _SECONDS.fullmatch(expires) or int(expires) > EXPIRES_S_MAX:
        raise answers.invalid("exp")
    await service_of(request).revocations.revoke(jti, int(expires))
    return answers.told({"jti": jti, "exp": int(expires)})


async def _set_level(request: Request) -> Response:
    category, level = request.query_params.get("category", ""), request.query_params.get("level", "")
    if not category:
        raise answers.missing("category")
    if category not in _LOGGERS:
        raise answers.invalid("category")
    if level not in _LEVELS:
        raise answers.invalid("level")
    logging.getLogger(_LOGGERS[category]).setLevel(_LEVELS[level])
    return answers.nothing()
