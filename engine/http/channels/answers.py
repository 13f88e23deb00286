"""Answers as the DSPS server gives them: JSON in Go's spelling, `{"error": ..., "code": ...}` for what went
wrong, and nothing but the status for what is no fault of the caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from engine.channel import contents
from engine.errors import (
    ChannelNotFound,
    EngineError,
    OutcomeUnknown,
    ServerUnavailable,
    SubscriptionNotFound,
)
from engine.http.answers import RETRY_AFTER_S, Problem
from engine.http.describing import Query, Schema

# -- What the endpoints of channels take and answer, for the OpenAPI document. They read their arguments
# themselves, for DSPS says in its own words what is wrong with them, and takes what it does not know.


def record(**fields: Schema) -> Schema:
    """An object with these fields, which are always there."""
    return {"type": "object", "required": list(fields), "properties": dict(fields)}


def _errors() -> dict[int, Schema | None]:
    failed: Schema = {
        "type": "object",
        "required": ["error"],
        "properties": {name: {"type": "string"} for name in ("error", "code", "reason")},
    }
    return {**dict.fromkeys((400, 403, 404, 408, 413, 503), failed), 500: None}


#: What any of them may answer beside what it is for. A 500 has no body.
ERRORS = _errors()


def argument(
    name: str,
    about: str,
    *,
    required: bool = False,
    pattern: str = "",
    words: tuple[str, ...] = (),
    most: int = 1,
) -> Query:
    """One argument of a query, which may be there `most` times."""
    schema: Schema = {"type": "string", "minLength": 1}
    if pattern:
        schema["pattern"] = f"^({pattern})$"
    if words:
        schema = {"enum": list(words)}
    if most > 1:
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": most}

    def read(name: str, text: str, settings: Any) -> str:
        return text

    return Query(name=name, about=about, kind=read, schema=lambda _: schema, required=required)


REJECTED = "dsps.auth.rejected"
INVALID_CHANNEL = "dsps.storage.invalid-channel"
NO_SUBSCRIPTION = "dsps.storage.subscription-not-found"
BAD_HANDLE = "dsps.storage.ack-handle-malformed"
#: What DSPS sends with each answer, so that no proxy keeps one. The rest is what all answers of this server
#: have.
_HEADERS = {
    "Cache-Control": "no-cache, no-store, max-age=0, must-revalidate",
    "Pragma": "no-cache",
    "Expires": "0",
}


class Refused(Problem):
    """A problem that is told as DSPS tells it."""

    def __init__(self, status: int, error: str, code: str = "", reason: str = "") -> None:
        super().__init__(status, error)
        self._code = code
        self._reason = reason

    def response(self) -> Response:
        """The answer."""
        return failed(self.status, self.detail, self._code, self._reason)


def told(fields: Mapping[str, Any], status: int = 200) -> Response:
    """JSON with its fields in alphabetical order, as Go writes it."""
    return spelled(contents.written(dict(sorted(fields.items()))), status)


def spelled(body: bytes, status: int = 200) -> Response:
    """JSON that is written already."""
    return Response(body + b"\n", status, _HEADERS, "application/json")


def nothing() -> Response:
    """Done, with nothing to tell."""
    return Response(status_code=204, headers=_HEADERS)


def failed(status: int, error: str, code: str = "", reason: str = "") -> Response:
    """What went wrong; `code` is for programs."""
    return told(
        {"error": error, **{name: text for name, text in (("code", code), ("reason", reason)) if text}},
        status,
    )


def missing(name: str) -> Refused:
    """A parameter is not there."""
    return Refused(400, f'Missing "{name}" parameter')


def invalid(name: str, code: str = "") -> Refused:
    """A parameter is not what it must be."""
    return Refused(400, f'Invalid "{name}" parameter', code)


def of_problem(problem: Problem) -> Response:
    """A problem, also of the common part. Who is not known gets the answer of DSPS, which has no 401."""
    if isinstance(problem, Refused):
        return problem.response()
    if problem.status == 401:
        return failed(403, "Unauthorized", REJECTED)
    answer = failed(problem.status, problem.detail)
    answer.headers.update(problem.headers)
    return answer


def of_engine_error(error: EngineError) -> Response:
    """What the channel itself could not do."""
    if isinstance(error, ChannelNotFound | SubscriptionNotFound):
        return failed(404, NO_SUBSCRIPTION, NO_SUBSCRIPTION)
    again = (
        {"Retry-After": str(RETRY_AFTER_S)} if isinstance(error, ServerUnavailable | OutcomeUnknown) else {}
    )
    return Response(status_code=500, headers={**_HEADERS, **again})
