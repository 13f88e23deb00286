"""Types whose values travel as JSON, and how: from annotations to JSON values, and back.

What travels, as a parameter and as a result: None, bool, int, float, str, bytes (base64), datetime, date,
time (ISO 8601), timedelta (seconds), UUID, Decimal and Path (text), Enum (its value), dataclasses,
TypedDicts, models of pydantic 2 (as they say themselves), `dict[str, T]`, `list`, `Sequence`, `tuple`, `set`,
`frozenset`, `T | None`, `X | Y` where the JSON of one can never be taken for that of the other, Literal,
NewType, and Any for whatever JSON can say. What `Annotated` adds is not looked at, and a value of a subclass
travels as the type that was declared. Anything else is refused when the function is registered.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from engine.kinds.kind import (
    Fields,
    Kind,
    dataclass_fields,
    dataclass_kind,
    is_typed_dict,
    shape_of,
    typed_dict_kind,
    union_of,
    words_of,
)
from engine.kinds.pydantic_models import is_model, model_kind

_TEXT, _LIST, _OBJECT = (frozenset[type]((shape,)) for shape in (str, list, dict))
_NUMBERS: frozenset[type] = frozenset((int, float))


def _checked(*allowed: type, write: Any = None) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        # True is an int for Python; and a datetime is a date.
        if type(value) not in allowed and not (
            isinstance(value, allowed) and not isinstance(value, bool | datetime)
        ):
            raise TypeError
        return write(value) if write else value

    return check


def _plain(kind: type, name: str = "") -> Kind:
    """Values that JSON has as well."""
    check = _checked(kind)
    return Kind(name or kind.__name__, check, check, frozenset((kind,)), plain=True, made=kind)


def _text(kind: type, write: Callable[[Any], str], make: Callable[[str], Any]) -> Kind:
    """Values that travel as texts, which `write` makes of them and `make` makes into such values again."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            raise TypeError
        return make(value)

    return Kind(kind.__name__, _checked(kind, write=write), read, _TEXT)


def _iso(value: date | time) -> str:
    return value.isoformat()


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError as error:
        raise ValueError from error


def _same(value: Any) -> Any:
    return value


def _to_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _seconds(value: Any) -> timedelta:
    return timedelta(seconds=_float(value))


_ANYTHING = Kind("a JSON value", _same, _same, plain=True)
_NONE = _plain(type(None), "None")
_SIMPLE: dict[Any, Kind] = {
    Any: _ANYTHING,
    object: _ANYTHING,
    None: _NONE,
    type(None): _NONE,
    bool: _plain(bool),
    int: _plain(int),
    float: Kind("float", _float, _float, _NUMBERS, made=float),
    str: _plain(str),
    bytes: _text(bytes, _to_base64, _from_base64),
    datetime: _text(datetime, _iso, datetime.fromisoformat),
    date: _text(date, _iso, date.fromisoformat),
    time: _text(time, _iso, time.fromisoformat),
    timedelta: Kind("timedelta", _checked(timedelta, write=timedelta.total_seconds), _seconds, _NUMBERS),
    UUID: _text(UUID, str, UUID),
    Decimal: _text(Decimal, str, _decimal),
    Path: _text(Path, str, Path),
    PurePath: _text(PurePath, str, PurePath),
}
_SEQUENCES: dict[Any, Callable[[Any], Any]] = {list: list, Sequence: list, set: set, frozenset: frozenset}


def kind_of(annotation: Any) -> Kind:
    """How values of this type travel. Raises TypeError for a type that does not."""
    try:
        return _kind_of(annotation)
    except RecursionError:
        raise TypeError(
            f"{inspect.formatannotation(annotation)} holds itself, so it does not travel"
        ) from None


def _kind_of(annotation: Any) -> Kind:
    try:
        simple = _SIMPLE.get(annotation)
    except TypeError:
        # Not even hashable: no type.
        simple = None
    if simple is not None:
        return simple
    origin: Any = get_origin(annotation) or annotation
    arguments: tuple[Any, ...] = get_args(annotation)
    if origin in (Union, types.UnionType):
        return union_of([_kind_of(one) for one in arguments])
    if origin is Annotated:
        return _kind_of(arguments[0])
    if origin is Literal:
        return _literal(arguments)
    if origin in _SEQUENCES:
        return _sequence(_SEQUENCES[origin], _kind_of(arguments[0]) if arguments else _ANYTHING)
    if origin is tuple:
        return _tuple(arguments)
    if origin in (dict, Mapping) and (not arguments or arguments[0] is str):
        return _mapping(_kind_of(arguments[1]) if arguments else _ANYTHING)
    # NewType, and the statement `type` of Python 3.12.
    named = getattr(origin, "__supertype__", None) or getattr(origin, "__value__", None)
    if named is not None and not isinstance(origin, type):
        return _kind_of(named)
    if isinstance(origin, type):
        found = _kind_of_class(cast("Any", origin))
        if found is not None:
            return found
    raise TypeError(f"{inspect.formatannotation(annotation)} does not travel")


def _kind_of_class(kind: Any) -> Kind | None:
    if issubclass(kind, Enum):
        return _enum(kind)
    if is_model(kind):
        return model_kind(kind)
    if dataclasses.is_dataclass(kind):
        return dataclass_kind(
            kind, {name: _kind_of(hint) for name, hint in hints_of(kind, dataclass_fields(kind))}
        )
    if is_typed_dict(kind):
        return typed_dict_kind(
            kind, {name: _kind_of(hint) for name, hint in hints_of(kind, list(kind.__annotations__))}
        )
    return None


def _literal(words: tuple[Any, ...]) -> Kind:
    if not all(isinstance(word, str | int | bool | None) for word in words):
        raise TypeError("a Literal of other things than texts and numbers")

    def check(value: Any) -> Any:
        if not any(type(value) is type(word) and value == word for word in words):
            raise ValueError
        return value

    shapes = frozenset(map(shape_of, words))
    return Kind(
        f"one of {', '.join(map(repr, words))}", check, check, shapes, plain=True, words=words_of(words)
    )


def _sequence(make: Callable[[Any], Any], item: Kind) -> Kind:
    def write(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple | set | frozenset):
            raise TypeError
        return [item.write(one) for one in cast("list[Any]", value)]

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError
        return make([item.read(one) for one in cast("list[Any]", value)])

    return Kind(
        f"{getattr(make, '__name__', 'list')} of {item.name}",
        write,
        read,
        _LIST,
        plain=make is list and item.plain,
    )


def _tuple(arguments: tuple[Any, ...]) -> Kind:
    if not arguments or (len(arguments) == 2 and arguments[1] is Ellipsis):
        return _sequence(tuple, _kind_of(arguments[0]) if arguments else _ANYTHING)
    kinds = [_kind_of(one) for one in arguments]

    def write(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise TypeError
        return [kind.write(one) for kind, one in zip(kinds, cast("list[Any]", value), strict=True)]

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError
        return tuple(kind.read(one) for kind, one in zip(kinds, cast("list[Any]", value), strict=True))

    return Kind(f"({', '.join(kind.name for kind in kinds)})", write, read, _LIST)


def _mapping(item: Kind) -> Kind:
    def each(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def convert(value: Any) -> dict[str, Any]:
            pairs = cast("Mapping[Any, Any]", value)
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in pairs):
                raise TypeError
            return {key: function(one) for key, one in pairs.items()}

        return convert

    fields = Fields(frozenset(), None, {})
    return Kind(f"dict of {item.name}", each(item.write), each(item.read), _OBJECT, item.plain, fields=fields)


def _enum(kind: type[Enum]) -> Kind:
    if not all(isinstance(one.value, str | int) for one in kind):
        raise TypeError(f"{kind.__name__}: an Enum whose values are neither texts nor whole numbers")

    def write(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        return value.value

    values = [one.value for one in kind]
    shapes = frozenset(map(shape_of, values))
    return Kind(kind.__name__, write, kind, shapes, words=words_of(values), made=kind)


def hints_of(what: Any, names: list[str]) -> list[tuple[str, Any]]:
    """The types of these names, Any where there is none. Raises TypeError for annotations that cannot be
    read."""
    try:
        hints = get_type_hints(what)
    except NameError as error:
        raise TypeError(f"annotations that can be read where it is defined ({error})") from error
    return [(name, hints.get(name, Any)) for name in names]
