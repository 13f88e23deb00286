"""Types with named fields: dataclasses and TypedDicts, whose fields travel each as its own type."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NotRequired, Required, cast, get_origin, get_type_hints

from engine.kinds.kind import Fields, Kind

_OBJECT: frozenset[type] = frozenset((dict,))


def is_typed_dict(kind: Any) -> bool:
    """Whether this is a TypedDict, of typing or of typing_extensions."""
    return issubclass(kind, dict) and {"__required_keys__", "__total__"} <= {*dir(cast("Any", kind))}


def dataclass_fields(kind: Any) -> list[str]:
    """The names of what a dataclass is made of."""
    return [field.name for field in dataclasses.fields(kind) if field.init]


def dataclass_kind(kind: Any, kinds: Mapping[str, Kind]) -> Kind:
    """How a dataclass with such fields travels."""

    def write(value: Any) -> dict[str, Any]:
        if not isinstance(value, kind):
            raise TypeError
        return {name: one.write(getattr(value, name)) for name, one in kinds.items()}

    def read(value: Any) -> Any:
        if not isinstance(value, dict) or not value.keys() <= kinds.keys():
            raise TypeError
        return kind(**{name: kinds[name].read(one) for name, one in cast("dict[str, Any]", value).items()})

    without = [
        field.name
        for field in dataclasses.fields(kind)
        if field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    return Kind(kind.__name__, write, read, _OBJECT, fields=_fields(kinds, frozenset(without)), made=kind)


def typed_dict_kind(kind: Any, kinds: Mapping[str, Kind]) -> Kind:
    """How a TypedDict with such fields travels."""
    required = _required(kind)

    def checked(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or not required <= value.keys() <= kinds.keys():
            raise TypeError
        return cast("dict[str, Any]", value)

    def write(value: Any) -> dict[str, Any]:
        return {name: kinds[name].write(one) for name, one in checked(value).items()}

    def read(value: Any) -> dict[str, Any]:
        return {name: kinds[name].read(one) for name, one in checked(value).items()}

    plain = all(one.plain for one in kinds.values())
    return Kind(kind.__name__, write, read, _OBJECT, plain, fields=_fields(kinds, required))


def _fields(kinds: Mapping[str, Kind], required: frozenset[str]) -> Fields:
    tags = {name: kind.words for name, kind in kinds.items() if kind.words is not None}
    return Fields(required, frozenset(kinds), tags)


def _required(kind: Any) -> frozenset[str]:
    """The fields that it must have. Where its annotations are texts, Python itself has not seen what they say of that."""
    found = set(kind.__required_keys__)
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Required:
            found.add(name)
        elif get_origin(hint) is NotRequired:
            found.discard(name)
    return frozenset(found)
