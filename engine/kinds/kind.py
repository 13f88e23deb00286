"""How values of one type travel: what writes them as JSON and reads them, and by what that JSON is told from
that of others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple, NotRequired, Required, cast, get_origin, get_type_hints

#: The shapes that JSON has, as the types that Python reads them as.
SHAPES: frozenset[type] = frozenset((type(None), bool, int, float, str, list, dict))

#: The values of a type that has only a few. Their own types tell 1 from True.
Words = frozenset[tuple[type, Any]]


def shape_of(value: Any) -> type[Any]:
    """The shape of a JSON value."""
    return value.__class__


def words_of(values: Iterable[Any]) -> Words:
    """The words for these values."""
    return frozenset((shape_of(value), value) for value in values)


class Unfit(ValueError):
    """A value that does not fit its type, for a reason that the name of the type does not say."""


class Fields(NamedTuple):
    """Of an object: the fields that it must have, all that it may have (None: also others), and those with a
    few words only."""

    required: frozenset[str]
    known: frozenset[str] | None
    tags: Mapping[str, Words]

    def fit(self, value: Mapping[str, Any], tags: frozenset[str]) -> bool:
        """Whether this object has such fields, and all of these tags that they have."""
        return (
            self.required <= value.keys()
            and (self.known is None or value.keys() <= self.known)
            and all(
                (shape_of(value[name]), value[name]) in words if name in value else name not in tags
                for name, words in self.tags.items()
            )
        )


class Kind(NamedTuple):
    """Writes values of one type as JSON and reads them. `write` and `read` raise for others: ValueError or
    TypeError, and whatever a class or a validator of the service raises."""

    name: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    #: What its JSON can look like.
    shapes: frozenset[type] = SHAPES
    #: Whether what is read is the JSON itself, so that nothing depends on which of several types has read it.
    plain: bool = False
    words: Words | None = None
    fields: Fields | None = None
    #: The class of its values, where they have one of their own.
    made: type | None = None

    def reads(self, value: Any) -> bool:
        """Whether this JSON value can be read."""
        try:
            self.read(value)
        except Exception:
            return False
        return True


# -- Types with named fields: dataclasses and TypedDicts, whose fields travel each as its own type.

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
        if field.init
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
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
    """The fields that it must have. Where its annotations are texts, Python itself has not seen what they say
    of that."""
    found = set(kind.__required_keys__)
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Required:
            found.add(name)
        elif get_origin(hint) is NotRequired:
            found.discard(name)
    return frozenset(found)


# -- `X | Y`: travels where the JSON of one can never be taken for that of the other, and is refused
# otherwise.

_AMBIGUOUS = (
    "nobody could tell which of the two travelled. Told apart are: None, bool, int, float, text, list "
    "and object; the words of a "
    "Literal or an Enum; objects of which one must have a field that the other cannot have, or that "
    "have a Literal under one name"
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
    return Kind(
        " or ".join(names), write, read, frozenset[type]().union(*(kind.shapes for kind in members)), plain
    )


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
    """The fields whose words tell the two apart, none where something else does. Raises TypeError where
    nothing does."""
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
