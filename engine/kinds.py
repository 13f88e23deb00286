"""Types whose values travel as JSON, and how: from annotations to JSON values, and back.

What travels: None, bool, int, float, str, bytes (base64), datetime, date, time (ISO 8601), timedelta (seconds), UUID and Decimal
(text), Enum (its value), dataclasses, `dict[str, T]`, `list`, `tuple`, `set`, `frozenset`, `T | None`, Literal, and Any for
whatever JSON can say. Anything else is refused when the function is registered.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID


class Kind(NamedTuple):
    """Writes values of one type as JSON and reads them. `write` and `read` raise ValueError or TypeError for others."""

    name: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _exactly(*allowed: type, name: str = "", read: Callable[[Any], Any] | None = None, write: Any = None) -> Kind:
    """Values of these types. They travel as they are, or as `write` makes them; `read` makes them anew from JSON."""

    def check(value: Any) -> Any:
        # True is an int for Python; and a datetime is a date.
        if type(value) not in allowed and not (isinstance(value, allowed) and not isinstance(value, bool | datetime)):
            raise TypeError
        return write(value) if write else value

    return Kind(name or allowed[0].__name__, check, read or check)


def _text(make: Callable[[str], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, str):
            raise TypeError
        return make(value)

    return read


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


_ANYTHING = Kind("a JSON value", _same, _same)
_NONE = _exactly(type(None), name="None")
_SIMPLE: dict[Any, Kind] = {
    Any: _ANYTHING,
    object: _ANYTHING,
    None: _NONE,
    type(None): _NONE,
    bool: _exactly(bool),
    int: _exactly(int),
    float: Kind("float", _float, _float),
    str: _exactly(str),
    bytes: _exactly(bytes, write=_to_base64, read=_text(_from_base64)),
    datetime: _exactly(datetime, write=_iso, read=_text(datetime.fromisoformat)),
    date: _exactly(date, write=_iso, read=_text(date.fromisoformat)),
    time: _exactly(time, write=_iso, read=_text(time.fromisoformat)),
    timedelta: _exactly(timedelta, write=timedelta.total_seconds, read=_seconds),
    UUID: _exactly(UUID, write=str, read=_text(UUID)),
    Decimal: _exactly(Decimal, write=str, read=_text(_decimal)),
}
_SEQUENCES: dict[Any, Callable[[Any], Any]] = {list: list, set: set, frozenset: frozenset}


def kind_of(annotation: Any) -> Kind:
    """How values of this type travel. Raises TypeError for a type that does not."""
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
        return _optional([one for one in arguments if one is not type(None)], annotation)
    if origin is Literal:
        return _literal(arguments)
    if origin in _SEQUENCES:
        return _sequence(_SEQUENCES[origin], kind_of(arguments[0]) if arguments else _ANYTHING)
    if origin is tuple:
        return _tuple(arguments)
    if origin in (dict, Mapping) and (not arguments or arguments[0] is str):
        return _mapping(kind_of(arguments[1]) if arguments else _ANYTHING)
    if isinstance(origin, type):
        kind = cast("Any", origin)
        if issubclass(kind, Enum):
            return _enum(kind)
        if dataclasses.is_dataclass(kind):
            return _dataclass(kind)
    raise TypeError(f"{inspect.formatannotation(annotation)} does not travel as a parameter")


def _optional(others: list[Any], annotation: Any) -> Kind:
    if len(others) != 1:
        raise TypeError(f"{inspect.formatannotation(annotation)}: of a union, nobody could tell which one travelled")
    kind = kind_of(others[0])

    def write(value: Any) -> Any:
        return None if value is None else kind.write(value)

    def read(value: Any) -> Any:
        return None if value is None else kind.read(value)

    return Kind(f"{kind.name} or None", write, read)


def _literal(words: tuple[Any, ...]) -> Kind:
    if not all(isinstance(word, str | int | bool | None) for word in words):
        raise TypeError("a Literal of other things than texts and numbers")

    def check(value: Any) -> Any:
        if not any(type(value) is type(word) and value == word for word in words):
            raise ValueError
        return value

    return Kind(f"one of {', '.join(map(repr, words))}", check, check)


def _sequence(make: Callable[[Any], Any], item: Kind) -> Kind:
    def write(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple | set | frozenset):
            raise TypeError
        return [item.write(one) for one in cast("list[Any]", value)]

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError
        return make([item.read(one) for one in cast("list[Any]", value)])

    return Kind(f"{getattr(make, '__name__', 'list')} of {item.name}", write, read)


def _tuple(arguments: tuple[Any, ...]) -> Kind:
    if not arguments or (len(arguments) == 2 and arguments[1] is Ellipsis):
        return _sequence(tuple, kind_of(arguments[0]) if arguments else _ANYTHING)
    kinds = [kind_of(one) for one in arguments]

    def write(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise TypeError
        return [kind.write(one) for kind, one in zip(kinds, cast("list[Any]", value), strict=True)]

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError
        return tuple(kind.read(one) for kind, one in zip(kinds, cast("list[Any]", value), strict=True))

    return Kind(f"({', '.join(kind.name for kind in kinds)})", write, read)


def _mapping(item: Kind) -> Kind:
    def each(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def convert(value: Any) -> dict[str, Any]:
            pairs = cast("Mapping[Any, Any]", value)
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in pairs):
                raise TypeError
            return {key: function(one) for key, one in pairs.items()}

        return convert

    return Kind(f"dict of {item.name}", each(item.write), each(item.read))


def _enum(kind: type[Enum]) -> Kind:
    if not all(isinstance(one.value, str | int) for one in kind):
        raise TypeError(f"{kind.__name__}: an Enum whose values are neither texts nor whole numbers")

    def write(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        return value.value

    return Kind(kind.__name__, write, kind)


def _dataclass(kind: Any) -> Kind:
    kinds = {
        name: kind_of(hint) for name, hint in hints_of(kind, [field.name for field in dataclasses.fields(kind) if field.init])
    }

    def write(value: Any) -> dict[str, Any]:
        if not isinstance(value, kind):
            raise TypeError
        return {name: one.write(getattr(value, name)) for name, one in kinds.items()}

    def read(value: Any) -> Any:
        if not isinstance(value, dict) or not value.keys() <= kinds.keys():
            raise TypeError
        return kind(**{name: kinds[name].read(one) for name, one in cast("dict[str, Any]", value).items()})

    return Kind(kind.__name__, write, read)


def hints_of(what: Any, names: list[str]) -> list[tuple[str, Any]]:
    """The types of these names, Any where there is none. Raises TypeError for annotations that cannot be read."""
    try:
        hints = get_type_hints(what)
    except NameError as error:
        raise TypeError(f"annotations that can be read where it is defined ({error})") from error
    return [(name, hints.get(name, Any)) for name in names]
