"""The admin API: revoke a token, and set how much is logged. Callers show a bearer token and come from an
allowed network."""

from __future__ import annotations

import hmac
import logging
import re
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.errors import EngineError
from engine.http.channels import answers, networks
from engine.http.channels.answers import ERRORS, Refused, argument, record
from engine.http.channels.guarding import bearer, route
from engine.http.channels.service import ChannelService, service_of
from engine.http.channels.tokens import is_revocable
from engine.http.describing import described
from engine.http.security.access import Endpoint, carried_out, noted
from engine.http.settings import Access

#: Until the year 5138.
_SECONDS = re.compile(r"[0-9]{1,11}")
_LEVELS = {name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")}
#: The categories of DSPS that there are here, and the loggers that they set. `*`: all of the engine's.
_LOGGERS = {
    "*": "ironclaim",
    "http": "ironclaim.http",
    "auth": "ironclaim.http.auth",
    "outgoing-webhook": "ironclaim.worker",
}


def administration_routes() -> list[BaseRoute]:
    """The routes of administrators."""
    return [_admin("/jwt/revoke", revoke), _admin("/log/level", set_level)]


def _admin(path: str, endpoint: Endpoint) -> BaseRoute:
    @wraps(endpoint)
    async def guarded(request: Request) -> Response:
        return await carried_out(request, _admit(request), endpoint, changes=True)

    return route(f"/admin{path}", "PUT", guarded)


async def _admit(request: Request) -> Access:
    """The access of an administrator. Raises Refused, which does not say why."""
    service = service_of(request)
    settings = service.settings
    allowed = _of_an_allowed_network(request, service)
    # Each token is compared, so that the time tells nothing.
    given = bearer(request).encode(errors="surrogateescape")
    known = sum(hmac.compare_digest(token.encode(), given) for token in settings.admin_tokens)
    if not allowed or not known:
        raise Refused(403, "")
    return Access(role="admin", name="administrator")


def _of_an_allowed_network(request: Request, service: ChannelService) -> bool:
    """Whether the caller is of an allowed network; not where nobody can say who it is, which the audit line
    tells."""
    peer, name = request.client.host if request.client else "", service.settings.real_ip_header
    forwarded = request.headers.getlist(name) if name else None
    try:
        caller = networks.caller(
            peer, forwarded, service.trusted_proxies, service.settings.trusted_proxy_hops
        )
    except networks.Unreadable as error:
        noted(request, refused=f"the caller cannot be read: {error}")
        return False
    if not networks.among(caller, service.admin_networks):
        noted(request, refused=f"{caller} is in no admin network")
        return False
    return True


@described(
    "Revoke a token",
    tag="admin",
    query=(
        argument("jti", "The id of the token", required=True),
        argument("exp", "When it expires, seconds since 1970", required=True, pattern=_SECONDS.pattern),
    ),
    answers={200: record(jti={"type": "string"}, exp={"type": "integer"}), **ERRORS},
)
async def revoke(request: Request) -> Response:
    """Refuse a token from now on, for as long as any server might take it."""
    jti = request.query_params.get("jti", "")
    if not jti:
        raise answers.missing("jti")
    if not is_revocable(jti):
        raise answers.invalid("jti")
    expires = request.query_params.get("exp", "")
    if not _SECONDS.fullmatch(expires):
        raise answers.invalid("exp")
    revocations = service_of(request).revocations
    noted(request, jti=jti, exp=expires)
    if revocations.is_late(int(expires)):
        noted(request, late=True)
    if not await revocations.revoke(jti, int(expires)):
        noted(request, late=True, ended=True)
    return answers.told({"jti": jti, "exp": int(expires)})


@described(
    "Set how much is logged",
    tag="admin",
    query=(
        argument("category", "What is logged", required=True, words=tuple(_LOGGERS)),
        argument("level", "What is logged of it at least", required=True, words=tuple(_LEVELS)),
    ),
    answers={204: None, **ERRORS},
)
async def set_level(request: Request) -> Response:
    """Log more or less of one category, in this process."""
    category, level = request.query_params.get("category", ""), request.query_params.get("level", "")
    if not category:
        raise answers.missing("category")
    if category not in _LOGGERS:
        raise answers.invalid("category")
    if level not in _LEVELS:
        raise answers.invalid("level")
    logging.getLogger(_LOGGERS[category]).setLevel(_LEVELS[level])
    return answers.nothing()


# -- Probes: whether this process should be killed, and whether it can answer requests. They ask nobody
# who he is, and tell nothing that could help an attacker.

_STORAGE = record(storage={"type": "object"})


def probe_routes() -> list[BaseRoute]:
    """The routes of probes."""
    return [route("/probe/liveness", "GET", liveness), route("/probe/readiness", "GET", readiness)]


@described("Is the process alive", tag="probes", answers={200: _STORAGE})
async def liveness(request: Request) -> Response:
    """This process answers; a server that is away is no reason to kill it."""
    return answers.told({"storage": {}})


@described("Is the process ready", tag="probes", answers={200: _STORAGE, 500: _STORAGE})
async def readiness(request: Request) -> Response:
    """A call reaches the server and is answered."""
    try:
        await service_of(request).probed.is_revoked("probe")
    except EngineError as error:
        return answers.told({"storage": {"redis": type(error).__name__}}, 500)
    return answers.told({"storage": {"redis": "ping OK"}})
