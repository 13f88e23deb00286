"""The page for operators."""

from __future__ import annotations

from starlette.routing import BaseRoute

from engine.http.settings import HttpSettings


def routes(settings: HttpSettings) -> list[BaseRoute]:
    """Its routes."""
    return []
