"""Bodies of requests: JSON, of bounded size and depth."""

from __future__ import annotations

from typing import Any, cast

from starlette.requests import Request

from engine import validate
from engine.http.problems import Problem, bad_value

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
        raise bad_value("body", found, "an object of JSON")
    return cast("dict[str, Any]", found)


def only(found: dict[str, Any], *known: str) -> dict[str, Any]:
    """The members of an object, which are these alone. Raises Problem."""
    for name in found:
        if name not in known:
            raise bad_value(name, found[name], f"one of {', '.join(known)}")
    return found
