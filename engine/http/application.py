"""The application: the routes of its parts behind one shield."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from engine import validate
from engine.channel import settings
from engine.errors import EngineError
from engine.http import answers, routes
from engine.http.access import Needed, public
from engine.http.answers import MEDIA_TYPE, JsonAnswer, Problem
from engine.http.channels.service import ChannelService
from engine.http.describing import Described, Schema
from engine.http.jobs import schemas
from engine.http.jobs.events import Readers
from engine.http.opening import Opened, Waits
from engine.http.settings import HttpSettings
from engine.http.shield import SEGMENT_PATTERN, Shield
from engine.models import Lanes
from engine.version import __version__

# -- The OpenAPI document, printed from the routes of the application and what their endpoints declare.

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
#: What a parameter of a path may be; others are texts.
_PATTERNS = {
    "queue": f"^{validate.QUEUE.pattern}$",
    "id": f"^{validate.KNOWN_ID.pattern}$",
    "name": f"^{validate.NAME.pattern}$",
    "schedule": f"^{validate.SCHEDULE.pattern}$",
    "key": rf"^({validate.KEY.pattern}|\*)$",
    **dict.fromkeys(("channel", "subscriber", "message"), f"^{settings.ID_PATTERN}$"),
}
_ANY = f"^{SEGMENT_PATTERN}$"
#: Those that are any texts in old keyspaces.
_OF_MODELS = frozenset({"queue", "id", "name", "schedule", "key"})
PROBLEM: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        **{name: {"type": "string"} for name in ("type", "title", "detail", "field", "value", "bound")},
        "status": {"type": "integer"},
    },
}
_PROBLEM_CONTENT = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}


@public
async def get_document(request: Request) -> Response:
    """The document of the application that serves it."""
    return JsonAnswer(
        document(request.app.routes, request.app.state.settings, request.scope.get("root_path", ""))
    )


def document(routes: Iterable[BaseRoute], settings: HttpSettings, root: str = "") -> dict[str, Any]:
    """The document of these routes, as far as their endpoints declare what they take and answer."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if not isinstance(route, Route):
            continue
        found: Described | None = getattr(route.endpoint, "described", None)
        if found is None:
            continue
        path = _PARAMETER.sub(r"{\1}", route.path)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(path, {})[method.lower()] = _operation(route, found, settings)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ironclaim", "version": __version__},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, found: Described, settings: HttpSettings) -> dict[str, Any]:
    endpoint: Any = route.endpoint
    needed: Needed = endpoint.needed
    narrow = isinstance(settings.spec, Lanes)
    problem = {"description": "A problem", "content": _PROBLEM_CONTENT}
    operation: dict[str, Any] = {
        "operationId": f"{found.tag}_{endpoint.__name__}",
        "tags": [found.tag],
        "summary": found.summary,
        "description": (endpoint.__doc__ or "").strip(),
        "parameters": [*_in_path(route.path, narrow), *_in_query(found, settings), *_in_headers(found)],
        "responses": {
            **{
                str(status): _answer(status, schema, found.media_type)
                for status, schema in found.answers.items()
            },
            "default": problem,
        },
    }
    if needed.role is not None:
        operation["x-role"] = needed.role
        if settings.asks_who:
            operation["security"] = [{"token": []}]
    if found.body is not None:
        body = found.body if narrow else schemas.widened(found.body)
        operation["requestBody"] = {
            "required": found.needs_body,
            "content": {"application/json": {"schema": body}},
        }
    return operation


def _in_path(path: str, narrow: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": _pattern(name, narrow)},
        }
        for name in _PARAMETER.findall(path)
    ]


def _pattern(name: str, narrow: bool) -> str:
    return _ANY if name in _OF_MODELS and not narrow else _PATTERNS.get(name, _ANY)


def _in_query(found: Described, settings: HttpSettings) -> list[dict[str, Any]]:
    return [
        {
            "name": query.name,
            "in": "query",
            "description": query.about,
            "required": query.required,
            "schema": query.schema(settings),
        }
        for query in found.query
    ]


def _in_headers(found: Described) -> list[dict[str, Any]]:
    return [
        {
            "name": header.name,
            "in": "header",
            "description": header.about,
            "schema": {"type": "string", "pattern": f"^{header.pattern}$"},
        }
        for header in found.headers
    ]


def _answer(status: int, schema: Schema | None, media_type: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if schema is not None and status != HTTPStatus.NO_CONTENT:
        answer["content"] = {
            media_type: {"schema": schema if media_type == "application/json" else {"type": "string"}}
        }
        if status >= HTTPStatus.BAD_REQUEST:
            # What is not let in is refused before anybody knows whose words to use.
            answer["content"] |= _PROBLEM_CONTENT
    return answer


_HANDLERS: dict[Any, Any] = {
    Problem: answers.on_problem,
    EngineError: answers.on_engine_error,
    HTTPException: answers.on_http_exception,
    Exception: answers.on_fault,
}
_READING = {"GET", "HEAD"}


def application(settings: HttpSettings) -> Starlette:
    """The application with these settings. It may be mounted into another one, whose lifespan then enters
    `app.router.lifespan_context(app)` of this one, which closes the connections."""
    found: list[BaseRoute] = [Route("/openapi.json", get_document, methods=["GET"]), *routes.job_routes()]
    found += [*(routes.channel_routes() if settings.channels else ()), *routes.page_routes(settings)]
    for route in found:
        _check(route)
    app = Starlette(
        routes=found,
        middleware=[Middleware(Shield, settings=settings)],
        exception_handlers=_HANDLERS,
        lifespan=_running,
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
    served: HttpSettings = app.state.settings
    try:
        if served.channels is None:
            yield
        else:
            app.state.channels = ChannelService(served.channels, served.url)
            async with app.state.channels.running():
                yield
    finally:
        end_waits(app)
        await app.state.opened.close()


def end_waits(app: Starlette) -> None:
    """Let no request wait any more, because the application ends."""
    app.state.waits.end()
    app.state.readers.end()


def _check(route: BaseRoute) -> None:
    """Raise TypeError for a route that does not say what it needs, and for one that changes something as if
    it did not."""
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
