"""What the endpoints of channels take and answer, for the OpenAPI document. They read their arguments themselves, for DSPS says
in its own words what is wrong with them, and takes what it does not know."""

from __future__ import annotations

from typing import Any

from engine.http.describing import Query, Schema


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
    name: str, about: str, *, required: bool = False, pattern: str = "", words: tuple[str, ...] = (), several: bool = False
) -> Query:
    """One argument of a query."""
    schema: Schema = {"type": "string", "minLength": 1}
    if pattern:
        schema["pattern"] = f"^({pattern})$"
    if words:
        schema = {"enum": list(words)}
    if several:
        schema = {"type": "array", "items": schema, "minItems": 1}

    def read(name: str, text: str, settings: Any) -> str:
        return text

    return Query(name=name, about=about, kind=read, schema=lambda _: schema, required=required)
