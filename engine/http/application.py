"""The application: the routes of its parts behind one shield."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from engine.errors import EngineError
from engine.http import channels, jobs, openapi, page, problems
from engine.http.jobs.events import Readers
from engine.http.opening import Opened
from engine.http.problems import Problem
from engine.http.security.access import Needed
from engine.http.security.shield import Shield
from engine.http.settings import HttpSettings
from engine.http.waiting import Waits

_HANDLERS: dict[Any, Any] = {
    Problem: problems.on_problem,
    EngineError: problems.on_engine_error,
    HTTPException: problems.on_http_exception,
    Exception: problems.on_fault,
}
_READING = {"GET", "HEAD"}


def application(settings: HttpSettings) -> Starlette:
    """The application with these settings. It may be mounted into another one, whose lifespan then enters
    `app.router.lifespan_context(app)` of this one, which closes the connections."""
    routes: list[BaseRoute] = [Route("/openapi.json", openapi.get_document, methods=["GET"]), *jobs.routes()]
    routes += [*(channels.routes(settings) if settings.channels else ()), *page.routes(settings)]
    for route in routes:
        _check(route)
    app = Starlette(
        routes=routes, middleware=[Middleware(Shield, settings=settings)], exception_handlers=_HANDLERS, lifespan=_running
    )
    app.router.redirect_slashes = False
    app.state.settings = settings
    app.state.opened = Opened(settings)
    app.state.waits = Waits(settings.waiting_max)
    app.state.readers = Readers()
    return app


@asynccontextmanager
async def _running(app: Starlette) -> AsyncGenerator[None]:
    """What runs as long as the application does."""
    try:
        async with channels.running(app):
            yield
    finally:
        end_waits(app)
        await app.state.opened.close()


def end_waits(app: Starlette) -> None:
    """Let no request wait any more, because the application ends."""
    app.state.waits.end()
    app.state.readers.end()


def _check(route: BaseRoute) -> None:
    """Raise TypeError for a route that does not say what it needs, and for one that changes something as if it did not."""
    if isinstance(route, Mount) and not isinstance(route.app, StaticFiles):
        inner: Iterable[BaseRoute] = route.routes
        for found in inner:
            _check(found)
    elif isinstance(route, Route):
        needed: Any = getattr(route.endpoint, "needed", None)
        if not isinstance(needed, Needed):
            raise TypeError(f"{route.path}: its endpoint does not say what it needs")
        if needed.role is not None and needed.changes == ((route.methods or set()) <= _READING):
            raise TypeError(f"{route.path}: {route.methods} with changes={needed.changes}")
    elif not isinstance(route, Mount):
        raise TypeError(f"{route!r} is neither a route nor a folder of static files")
