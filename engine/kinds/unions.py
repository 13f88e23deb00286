"""`X | Y`: travels where the JSON of one can never be taken for that of the other, and is refused otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from engine.kinds.kind import Fields, Kind, shape_of

_OBJECT: frozenset[type] = frozenset((dict,))
_AMBIGUOUS = (
    "nobody could tell which of the two travelled. Told apart are: None, bool, int, float, text, list and object; the words of a "
    "Literal or an Enum; objects of which one must have a field that the other cannot have, or that have a Literal under one name"
)


def union_of(kinds: Sequence[Kind]) -> Kind:
    """How a union of these travels. Raises TypeError where two of them could be taken for each other."""
    # The more special class first, which is a value of both.
    members = sorted(map(_strict_float, kinds) if _are_numbers(kinds) else kinds, key=_depth)
    tags: set[str] = set()
    for one, other in combinations(members, 2):
        if not (one.plain and other.plain):
            tags |= _told_by(one, other)
    needed = frozenset(tags)

    def write(value: Any) -> Any:
        failure: Exception | None = None
        for kind in members:
            try:
                return kind.write(value)
            except Exception as error:
                failure = error
        raise TypeError from failure

    def read(value: Any) -> Any:
        shape = shape_of(value)
        failure: Exception | None = None
        for kind in members:
            fields = kind.fields if shape is dict else None
            if shape in kind.shapes and (fields is None or fields.fit(value, needed)):
                try:
                    return kind.read(value)
                except Exception as error:
                    failure = error
        raise TypeError from failure

    # None is the last one to be named.
    names = [kind.name for kind in sorted(kinds, key=lambda kind: kind.name == "None")]
    plain = all(kind.plain for kind in members)
    return Kind(" or ".join(names), write, read, frozenset[type]().union(*(kind.shapes for kind in members)), plain)


def _are_numbers(kinds: Sequence[Kind]) -> bool:
    return {int, float} <= {kind.made for kind in kinds}


def _strict_float(kind: Kind) -> Kind:
    """Beside an int a float is only what is written with a point."""
    if kind.made is not float:
        return kind

    def check(value: Any) -> float:
        if not isinstance(value, float):
            raise TypeError
        return value

    return Kind("float", check, check, frozenset((float,)), plain=True)


def _depth(kind: Kind) -> int:
    return -len(kind.made.__mro__) if kind.made else 0


def _told_by(one: Kind, other: Kind) -> frozenset[str]:
    """The fields whose words tell the two apart, none where something else does. Raises TypeError where nothing does."""
    both = one.shapes & other.shapes
    if not both:
        return frozenset()
    for kind, others in ((one, other), (other, one)):
        if kind.words is not None and not any(others.reads(word) for _, word in kind.words):
            return frozenset()
    if both == _OBJECT and one.fields and other.fields:
        if _lacks(one.fields, other.fields) or _lacks(other.fields, one.fields):
            return frozenset()
        common = one.fields.tags.keys() & other.fields.tags.keys()
        telling = [name for name in sorted(common) if not one.fields.tags[name] & other.fields.tags[name]]
        if telling:
            return frozenset(telling[:1])
    raise TypeError(f"{one.name} or {other.name}: {_AMBIGUOUS}")


def _lacks(one: Fields, other: Fields) -> bool:
    """Whether the other can never have what the first must have."""
    return other.known is not None and not one.required <= other.known
