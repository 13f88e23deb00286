"""Probes: whether this process should be killed, and whether it can answer requests. They ask nobody who he is, and tell nothing
that could help an attacker."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.errors import EngineError
from engine.http.channels import answers
from engine.http.channels.guarding import route
from engine.http.channels.service import service_of


def routes() -> list[BaseRoute]:
    """The routes of probes."""
    return [route("/probe/liveness", "GET", _liveness), route("/probe/readiness", "GET", _readiness)]


async def _liveness(request: Request) -> Response:
    """This process answers; a server that is away is no reason to kill it."""
    return answers.told({"storage": {}})


async def _readiness(request: Request) -> Response:
    """A call reaches the server and is answered."""
    try:
        await service_of(request).probed.is_revoked("probe")
    except EngineError as error:
        return answers.told({"storage": {"redis": type(error).__name__}}, 500)
    return answers.told({"storage": {"redis": "ping OK"}})
