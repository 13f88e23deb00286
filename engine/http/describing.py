"""What an endpoint takes and answers, declared once: its arguments are read by this, and the OpenAPI document
printed from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from engine.http.answers import bad_value
from engine.http.settings import HttpSettings

Schema = dict[str, Any]
_WHOLE = re.compile(r"-?[0-9]{1,18}")
#: So many has the largest cursor that a server gives; what a number means has a bound of its own.
DIGITS_MAX = 20
_DIGITS = re.compile(rf"[0-9]{{1,{DIGITS_MAX}}}")
#: What a text of a query may be long.
_TEXT_CHARACTERS_MAX = 200


def digits(text: str) -> int | None:
    """The number that these digits are, at most `DIGITS_MAX`; None for any other text."""
    return int(text) if _DIGITS.fullmatch(text) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One argument of a query. `kind` turns its text into a value, with the settings of the application."""

    name: str
    about: str
    kind: Callable[[str, str, HttpSettings], Any]
    schema: Callable[[HttpSettings], Schema]
    default: Any = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Header:
    """A header that a request may have, and the pattern that its value is of; the endpoint checks it."""

    name: str
    about: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What an endpoint takes and answers: the schema of its body of JSON, and those of its answers by status,
    None for one without a body."""

    summary: str
    query: tuple[Query, ...] = ()
    body: Schema | None = None
    needs_body: bool = True
    answers: Mapping[int, Schema | None] = field(default_factory=dict[int, "Schema | None"])
    media_type: str = "application/json"
    headers: tuple[Header, ...] = ()
    tag: str = "jobs"


def described(summary: str, **fields: Any) -> Callable[[Any], Any]:
    """Declare what an endpoint takes and answers: the fields of Described."""

    def decorate(endpoint: Any) -> Any:
        endpoint.described = Described(summary=summary, **fields)
        return endpoint

    return decorate


def arguments(request: Request) -> dict[str, Any]:
    """The arguments of a request's query, as its endpoint declares them. Raises Problem for one that is out
    of bounds, comes twice, or that the endpoint does not have."""
    wanted: Described = request.scope["endpoint"].described
    known = {query.name: query for query in wanted.query}
    given = request.query_params.multi_items()
    found: dict[str, Any] = {}
    for name, text in given:
        if name not in known:
            raise bad_value(
                name, text, f"one of {', '.join(known)}" if known else "left out: nothing is asked for here"
            )
        if name in found:
            raise bad_value(name, text, "given once")
        found[name] = known[name].kind(name, text, request.app.state.settings)
    return {name: found.get(name, query.default) for name, query in known.items()}


def whole(name: str, about: str, least: int, most: int | str, default: int) -> Query:
    """A whole number from `least` to `most`, which may be the name of a setting."""

    def greatest(settings: HttpSettings) -> int:
        return most if isinstance(most, int) else getattr(settings, most)

    def read(name: str, text: str, settings: HttpSettings) -> int:
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= greatest(settings):
            raise bad_value(name, text, f"a whole number from {least} to {greatest(settings)}")
        return int(text)

    def schema(settings: HttpSettings) -> Schema:
        return {"type": "integer", "minimum": least, "maximum": greatest(settings), "default": default}

    return Query(name=name, about=about, kind=read, schema=schema, default=default)


def choice(name: str, about: str, words: tuple[str, ...], default: str) -> Query:
    """One of some words."""

    def read(name: str, text: str, settings: HttpSettings) -> str:
        if text not in words:
            raise bad_value(name, text, f"one of {', '.join(words)}")
        return text

    return Query(
        name=name,
        about=about,
        kind=read,
        schema=lambda _: {"enum": list(words), "default": default},
        default=default,
    )


def name_of(name: str, about: str, pattern: str) -> Query:
    """A name, which the engine checks by the rule of the queue's model; `pattern` is that of Lanes."""
    schema: Schema = {"type": "string", "minLength": 1, "pattern": f"^({pattern})$"}
    return Query(name=name, about=about, kind=lambda name, given, settings: given, schema=lambda _: schema)


def text(name: str, about: str, *, pattern: str = "", most: int = _TEXT_CHARACTERS_MAX) -> Query:
    """A text of 1 to `most` characters, of a pattern where there is one."""
    shape = re.compile(pattern) if pattern else None

    def read(name: str, given: str, settings: HttpSettings) -> str:
        if not 1 <= len(given) <= most or (shape is not None and not shape.fullmatch(given)):
            raise bad_value(name, given, f"a text of {pattern or f'1 to {most} characters'}")
        return given

    schema: Schema = {"type": "string", "minLength": 1, "maxLength": most}
    return Query(
        name=name,
        about=about,
        kind=read,
        schema=lambda _: {**schema, **({"pattern": f"^({pattern})$"} if pattern else {})},
    )
