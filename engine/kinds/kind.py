"""How values of one type travel: what writes them as JSON and reads them, and by what that JSON is told from that of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

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
    """Of an object: the fields that it must have, all that it may have (None: also others), and those with a few words only."""

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
    """Writes values of one type as JSON and reads them. `write` and `read` raise for others: ValueError or TypeError, and
    whatever a class or a validator of the service raises."""

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
