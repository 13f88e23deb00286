"""The one way to answer with JSON: whatever is stored, an answer can be sent."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from engine import validate
from engine.errors import (
    READ_CHARACTERS_MAX,
    ChannelNotFound,
    EngineError,
    Malformed,
    OutcomeUnknown,
    ScriptFault,
    ServerUnavailable,
    SubscriptionNotFound,
    UnknownJob,
    UnknownParent,
    UnsafeServer,
    UnsupportedFeature,
    json_text,
    logger,
    outlined,
    redacted,
    shown,
)


class JsonAnswer(JSONResponse):
    """JSON in UTF-8; what JSON cannot say is said as a text (`engine.errors`)."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json_text(content).encode()


# -- What goes wrong, as `application/problem+json` (RFC 9457): one table of the engine's errors and their
# status codes.

log = logger("ironclaim.http")

MEDIA_TYPE = "application/problem+json"
#: Seconds after which a caller may try again where the server was away or too much was asked of it.
RETRY_AFTER_S = 1

#: The first class that an error is of says its status.
STATUS_OF_ERRORS: tuple[tuple[type[EngineError], int], ...] = (
    (Malformed, 422),
    (UnknownParent, 422),
    (UnknownJob, 404),
    (ChannelNotFound, 404),
    (SubscriptionNotFound, 404),
    (UnsupportedFeature, 501),
    (OutcomeUnknown, 504),
    (ServerUnavailable, 503),
    (UnsafeServer, 503),
    (ScriptFault, 502),
)


#: Of a wrong value in an answer.
_VALUE_CHARACTERS_MAX = 80


class Problem(Exception):
    """An answer that is a problem. `field`, `value` and `bound` name what is wrong with a request; `more` are
    further members. The value is bounded, and has no password of a url."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        title: str = "",
        field: str | None = None,
        value: str | None = None,
        bound: str | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title or HTTPStatus(status).phrase
        self.detail = detail
        self.headers = headers or {}
        if value is not None:
            # Nobody reads a long one, and a body of 64 MiB would be searched for passwords for seconds.
            long = len(value) > READ_CHARACTERS_MAX
            value = outlined(value) if long else redacted(value)[:_VALUE_CHARACTERS_MAX]
        named = {"field": field, "value": value, "bound": bound}
        self.more = {**{name: text for name, text in named.items() if text is not None}, **more}

    def members(self) -> dict[str, Any]:
        """The members of the JSON object."""
        return {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            **self.more,
        }

    def response(self) -> Response:
        """The answer."""
        return JsonAnswer(self.members(), self.status, self.headers, MEDIA_TYPE)


def bad_value(field: str, value: object, bound: str, *, private: bool = False) -> Problem:
    """The problem of a value that the engine has not seen yet, worded as the engine words its own."""
    return problem_of(Malformed(field, value, bound, private=private))


def problem_of(error: EngineError) -> Problem:
    """The problem that an error of the engine is."""
    status = next((status for kind, status in STATUS_OF_ERRORS if isinstance(error, kind)), 500)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    if isinstance(error, Malformed):
        text = error.value if isinstance(error.value, str) else shown(error.value)
        value = outlined(error.value) if error.private else text
        return Problem(status, str(error), field=error.field, value=value, bound=error.bound)
    return Problem(status, str(error) or (type(error).__doc__ or "").splitlines()[0], headers=headers)


async def on_problem(request: Request, error: Exception) -> Response:
    """Answer a Problem."""
    assert isinstance(error, Problem)
    return error.response()


async def on_engine_error(request: Request, error: Exception) -> Response:
    """Answer an error of the engine."""
    assert isinstance(error, EngineError)
    return problem_of(error).response()


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer what Starlette itself refuses: a path or a method that there is not."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette names the methods of one route; a path has a route for each here. A folder of files has
        # none.
        routes = (route for route in request.app.routes if isinstance(route, Route))
        matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
        of_path = [route.methods or set[str]() for route in matching if route.path == matching[0].path]
        headers["Allow"] = ", ".join(sorted(set[str]().union(*of_path) or {"GET", "HEAD"}))
    return Problem(error.status_code, error.detail, headers=headers).response()


async def on_fault(request: Request, error: Exception) -> Response:
    """Answer a fault of the application; what it was stands in the log alone."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return Problem(500, "The server failed at this request; its log says why.").response()


# -- Bodies of requests: JSON, of bounded size and depth.

_JSON = "application/json"


async def json_object(request: Request, *, may_be_empty: bool = False) -> dict[str, Any]:
    """The body, an object of JSON; an empty one where it may be left out. Raises Problem."""
    raw = await request.body()
    if not raw and may_be_empty:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise Problem(415, f"The body is sent as {_JSON}.", headers={"Accept-Post": _JSON})
    try:
        found: Any = validate.json_value(raw)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"The body is no JSON: {error}.", field="body") from None
    if not isinstance(found, dict):
        raise bad_value("body", found, "an object of JSON", private=True)
    return cast("dict[str, Any]", found)


def only(found: dict[str, Any], *known: str) -> dict[str, Any]:
    """The members of an object, which are these alone. Raises Problem."""
    for name in found:
        if name not in known:
            raise bad_value(name, found[name], f"one of {', '.join(known)}", private=True)
    return found
