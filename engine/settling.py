"""Settings in dataclasses: each field becomes the plain value that it is declared as, or is a Malformed that names it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, cast

from engine import validate
from engine.errors import Malformed

_ITEMS = ("Sequence[", "tuple[")


def settle(record: Any, prefix: str = "", /, **wanted: tuple[float, float] | type | Callable[..., object]) -> None:
    """Put into each field of a frozen dataclass the plain value that its annotation says: texts, numbers and truth values without
    what their classes do, a tuple for what is iterable once. A whole float that stayed one would fail where it counts.

    `wanted`: the bounds of each number; the class of a value, or of each item; `callable` for a function. `prefix` goes before
    the names of fields. A field that no repr shows is in no Malformed either. Raises Malformed."""
    for one in dataclasses.fields(record):
        value = getattr(record, one.name)
        try:
            found = _read(str(one.type), prefix + one.name, value, wanted.get(one.name))
        except Malformed as error:
            if one.repr:
                raise
            raise Malformed(error.field, "(not shown)", error.bound) from None
        object.__setattr__(record, one.name, found)


def _read(kind: str, name: str, value: object, wanted: Any) -> object:
    if value is None and kind.endswith("| None"):
        return None
    if isinstance(wanted, tuple):
        least, most = cast("tuple[Any, Any]", wanted)
        read = validate.integer if kind == "int" else validate.number
        return read(name, value, least, most)
    if kind.startswith(_ITEMS):
        item = _text if wanted is None else _one
        listed = validate.items(name, value, "a list, not a single text")
        return tuple(item(f"{name}[{at}]", one, wanted) for at, one in enumerate(listed))
    if kind == "bool":
        return validate.truth(name, value)
    if kind.startswith("Mapping["):
        validate.instance(name, value, Mapping, "a mapping of texts")
        pairs: dict[Any, Any] = validate.asked(name, value, "a mapping of texts", cast("Any", dict), value)
        item = _text if kind == "Mapping[str, str]" else _as_it_is
        return {_text(name, key): item(f"{name}.{key}", one) for key, one in pairs.items()}
    if kind.removesuffix(" | None") == "str":
        return _text(name, value)
    return value if wanted is None else _one(name, value, wanted)


def _text(name: str, value: object, _: object = None) -> str:
    text = validate.plain_text(value)
    if text is None:
        raise Malformed(name, value, "text")
    return text


def _one(name: str, value: object, wanted: Any) -> object:
    if wanted is callable:
        if not validate.asked(name, value, "a function", callable, value):
            raise Malformed(name, value, "a function")
        return value
    return validate.instance(name, value, wanted, f"{wanted.__name__}, or a subclass of it")


def _as_it_is(_: str, value: object) -> object:
    return value
