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
import json
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import combinations
from pathlib import Path, PurePath
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

# -- How one kind of values travels, and kinds that are made of others.

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


# -- Models of pydantic 2, where the service has it: pydantic writes and reads them, and their JSON schemas
# say beforehand that what one side writes the other can read. Nothing here imports pydantic: who has such a
# model has done it.

_TYPES: dict[str, frozenset[type]] = {
    "object": frozenset((dict,)),
    "array": frozenset((list,)),
    "string": frozenset((str,)),
    "integer": frozenset((int,)),
    "number": frozenset((int, float)),
    "boolean": frozenset((bool,)),
    "null": frozenset((type(None),)),
}
Schema = dict[str, Any]


def is_model(kind: type) -> bool:
    """Whether this is a model of pydantic 2."""
    pydantic = sys.modules.get("pydantic")
    return (
        pydantic is not None and hasattr(kind, "model_json_schema") and issubclass(kind, pydantic.BaseModel)
    )


def model_kind(model: Any) -> Kind:
    """How a model travels. Raises TypeError where that cannot be read which is written."""
    pydantic: Any = sys.modules["pydantic"]
    adapter: Any = pydantic.TypeAdapter(model)
    by_alias, read_schema = _agreed(model)
    names = _names_in(read_schema)

    def write(value: Any) -> Any:
        if not isinstance(value, model):
            raise TypeError
        return adapter.dump_python(value, mode="json", by_alias=by_alias, round_trip=True)

    def read(value: Any) -> Any:
        # As JSON, since strict models take dates and sets from nothing else but from what spells them there.
        try:
            return adapter.validate_json(json.dumps(value))
        except pydantic.ValidationError as error:
            raise Unfit("; ".join(_told(one, names) for one in error.errors())) from None

    top = _resolved(read_schema, read_schema)
    return Kind(
        model.__name__,
        write,
        read,
        _shapes(top, read_schema),
        fields=_schema_fields(top, read_schema),
        made=model,
    )


def _told(error: Any, names: frozenset[str]) -> str:
    """One error in words that quote nothing of the value: keys of mappings are `*`, and a wrong tag is not
    repeated."""
    place = ".".join(str(part) if isinstance(part, int) or part in names else "*" for part in error["loc"])
    wrong_tag = error["type"] == "union_tag_invalid"
    text = f"a tag that is one of {error['ctx']['expected_tags']}" if wrong_tag else error["msg"]
    return f"{place}: {text}" if place else text


def _names_in(schema: Any) -> frozenset[str]:
    """The names of all properties and definitions that a JSON schema has, at any depth."""
    if isinstance(schema, list):
        return frozenset[str]().union(*map(_names_in, cast("list[Any]", schema)))
    if not isinstance(schema, dict):
        return frozenset()
    inner = cast("dict[str, Any]", schema)
    own = {name for part in ("properties", "$defs") for name in inner.get(part, ())}
    return frozenset(own).union(*map(_names_in, inner.values()))


def _agreed(model: Any) -> tuple[bool, Schema]:
    """Whether aliases are written, and the schema of what is read. Raises TypeError."""
    try:
        read: Schema = model.model_json_schema(mode="validation")
        written: list[Schema] = [
            model.model_json_schema(by_alias=alias, mode="serialization") for alias in (True, False)
        ]
    except Exception as error:
        raise TypeError(
            f"{model.__name__}: a model of which pydantic has no JSON schema ({error})"
        ) from error
    wrong = ""
    for by_alias, schema in zip((True, False), written, strict=True):
        wrong = _unread(schema, read)
        if not wrong:
            return by_alias, read
    raise TypeError(f"{model.__name__}: a model that writes other fields than it reads: {wrong}")


def _unread(written: Schema, read: Schema) -> str:
    """A field that is written and not read, or must be read and is not written; empty where there is none."""
    found: dict[str, Any] = read.get("$defs", {})
    pairs = [(_resolved(written, written), _resolved(read, read))]
    pairs += [(one, found[name]) for name, one in written.get("$defs", {}).items() if name in found]
    for one, other in pairs:
        # Computed ones are not written: see round_trip.
        names = {name for name, field in one.get("properties", {}).items() if not field.get("readOnly")}
        lost = (names - other.get("properties", {}).keys()) | (set(other.get("required", ())) - names)
        if lost:
            return min(lost)
    return ""


def _resolved(schema: Schema, root: Schema) -> Schema:
    reference = schema.get("$ref", "")
    return root["$defs"][reference.rpartition("/")[2]] if reference.startswith("#/$defs/") else schema


def _shapes(schema: Schema, root: Schema) -> frozenset[type]:
    if "anyOf" in schema:
        return frozenset[type]().union(*(_shapes(_resolved(one, root), root) for one in schema["anyOf"]))
    return _TYPES.get(schema.get("type", ""), SHAPES)


def _schema_fields(schema: Schema, root: Schema) -> Fields | None:
    properties: dict[str, Schema] | None = schema.get("properties")
    if properties is None:
        return None
    tags = {name: words for name, field in properties.items() if (words := _words(_resolved(field, root)))}
    closed = schema.get("additionalProperties") is False
    return Fields(
        frozenset(schema.get("required", ())),
        frozenset(properties) if closed else None,
        {name: words_of(words) for name, words in tags.items()},
    )


def _words(field: Schema) -> list[Any]:
    return [field["const"]] if "const" in field else field.get("enum", [])


# -- The kinds of annotations.

_TEXT, _LIST = (frozenset[type]((shape,)) for shape in (str, list))
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
