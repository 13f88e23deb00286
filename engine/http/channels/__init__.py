"""DSPS's channel API, as the DSPS server has it: paths, bodies and status codes
(docs/guides/http-channels.md).

`settings` says which channels there are, `guarding` who may use them; `messages` and `administration` have
the endpoints, `webhooks` sends messages on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from engine.http.channels import endpoints
from engine.http.channels.service import ChannelService
from engine.http.settings import HttpSettings


def routes(settings: HttpSettings) -> list[BaseRoute]:
    """Its routes."""
    return [
        *endpoints.message_routes(),
        *endpoints.subscription_routes(),
        *endpoints.administration_routes(),
        *endpoints.probe_routes(),
    ]


@asynccontextmanager
async def running(app: Starlette) -> AsyncGenerator[None]:
    """What runs beside its answers, as long as the application does."""
    settings: HttpSettings = app.state.settings
    if settings.channels is None:
        yield
        return
    app.state.channels = ChannelService(settings.channels, settings.url)
    async with app.state.channels.running():
        yield
