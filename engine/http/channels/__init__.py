"""DSPS's channel API."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from engine.http.settings import HttpSettings


def routes(settings: HttpSettings) -> list[BaseRoute]:
    """Its routes."""
    return []


@asynccontextmanager
async def running(app: Starlette) -> AsyncGenerator[None]:
    """What runs beside its answers, as long as the application does."""
    yield
