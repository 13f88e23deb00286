"""Probes: whether this process should be killed, and whether it can answer requests. They ask nobody who he is, and tell nothing
that could help an attacker."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.errors import EngineError
from engine.http.channels import answers
from engine.http.channels.describing import record
from engine.http.channels.guarding import route
from engine.http.channels.service import service_of
from engine.http.describing import described

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
