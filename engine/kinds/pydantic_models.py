"""Models of pydantic 2, where the service has it: pydantic writes and reads them, and their JSON schemas say
beforehand that what one side writes the other can read. Nothing here imports pydantic: who has such a model
has done it."""

from __future__ import annotations

import json
import sys
from typing import Any, cast

from engine.kinds.kind import SHAPES, Fields, Kind, Unfit, words_of

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
        model.__name__, write, read, _shapes(top, read_schema), fields=_fields(top, read_schema), made=model
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


def _fields(schema: Schema, root: Schema) -> Fields | None:
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
