"""Calls of scripts whose slots are filled by name, from what an operation declares.

A slot of KEYS is a key of the queue or channel: the attribute of its keys with the slot's name, or, where that is a method,
the key of one field of the operation. A slot of ARGV is a constant, or a field of the operation. Where the field has another
name than the slot, `Operation.slots` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from engine.errors import ScriptFault
from engine.ops.base import Operation
from engine.wire.call import Call
from engine.wire.scripts import Script

#: Slots of KEYS whose attribute has another name.
_ATTRIBUTES = {"record": "claim", "worker_settings": "settings"}
#: Slots of KEYS whose key is made of a field with another name, unless the operation itself names the field.
_FIELDS = {
    **dict.fromkeys(("run", "result", "waits"), "job"),
    **dict.fromkeys(("swept", "worker", "told", "record"), "incarnation"),
    "wait": "token",
    "op": "op_id",
    "news": "version",
    "lock": "name",
    "cursor": "subscriber",
}

#: Where the value of a slot comes from.
Source = Callable[[Operation], Any]


class _Filling(NamedTuple):
    """How one kind of operation fills the slots of a script: the constant values, in the order of the header, and for the other
    slots their positions, names and sources."""

    script: Script
    keys: Sequence[Any]
    key_sources: Sequence[tuple[int, str, Source]]
    arguments: Sequence[Any]
    argument_sources: Sequence[tuple[int, str, Source]]


class FilledSlots:
    """Calls of the scripts of one queue or channel. `constants`: arguments that are the same in every call that has them."""

    def __init__(self, keys: object, scripts: Mapping[str, Script], constants: Mapping[str, object]) -> None:
        self.scripts = scripts
        #: The time that a test sets, on queues made for tests.
        self.now_ms: int | None = None
        self._all_keys = keys
        self._constants = constants
        self._fillings: dict[tuple[str, type[Any]], _Filling] = {}

    def parse(self, operation: Any, raw: Any) -> Any:
        """The raw reply of an operation as a value. Raises ScriptFault for one outside its contract."""
        try:
            return self.read_reply(operation, raw)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ScriptFault(f"{type(operation).__name__}: reply outside the contract ({error}): {raw!r:.200}") from error

    def read_reply(self, operation: Any, raw: Any) -> Any:
        """Like `parse`, but a reply outside the contract raises any error."""
        raise NotImplementedError

    def bound(
        self,
        operation: Operation,
        script: str = "",
        key_groups: Sequence[Sequence[str | bytes]] = (),
        argument_groups: Sequence[Sequence[object]] = (),
        **given: Any,
    ) -> Call[Any]:
        """The call of the operation's script, or of `script`. `given`: the values of slots that have no field."""
        name = script or operation.script
        kind: type[Any] = type(operation)
        filling = self._fillings.get((name, kind))
        if filling is None:
            filling = self._fillings[name, kind] = self._find(name, kind, given)
        filling.script.check_groups(key_groups, argument_groups)
        keys = _filled(filling.keys, filling.key_sources, operation, given, key_groups)
        arguments = _filled(filling.arguments, filling.argument_sources, operation, given, argument_groups)
        return Call(filling.script, keys, arguments, partial(self.parse, operation), operation, patient=operation.patient)

    def _find(self, name: str, kind: type[Any], given: Mapping[str, object]) -> _Filling:
        script = self.scripts.get(name)
        if script is None:
            raise ScriptFault(f"the folder of scripts has no {name}.lua")
        unknown = given.keys() - {*script.keys, *script.arguments}
        if unknown:
            raise ScriptFault(f"script {name}: its header has no slot {', '.join(sorted(unknown))}")
        constants: dict[str, Any] = dict(self._constants)
        sources: dict[str, Source] = {}
        try:
            for slot in script.keys:
                if slot in given:
                    continue
                key: Any = getattr(self._all_keys, _ATTRIBUTES.get(slot, slot))
                if callable(key):
                    sources[slot] = _key_source(key, _field_source(kind, kind.slots.get(slot) or _FIELDS.get(slot, slot)))
                else:
                    constants[slot] = key
            for slot in script.arguments:
                if slot == "now_ms":
                    sources[slot] = lambda operation: "" if self.now_ms is None else self.now_ms
                elif slot not in given and slot not in constants:
                    sources[slot] = _field_source(kind, kind.slots.get(slot, slot))
        except AttributeError as error:
            raise ScriptFault(f"script {name}: nothing fills a slot of its header: {error}") from None

        def split_slots(slots: Sequence[str]) -> tuple[Sequence[Any], Sequence[tuple[int, str, Source]]]:
            dynamic = [
                (at, slot, sources.get(slot, _missing)) for at, slot in enumerate(slots) if slot not in constants or slot in given
            ]
            return [constants.get(slot) for slot in slots], dynamic

        return _Filling(script, *split_slots(script.keys), *split_slots(script.arguments))


def _filled(
    constants: Sequence[Any],
    sources: Sequence[tuple[int, str, Source]],
    operation: Operation,
    given: Mapping[str, Any],
    groups: Sequence[Sequence[Any]],
) -> tuple[Any, ...]:
    values = list(constants)
    for at, slot, source in sources:
        values[at] = given[slot] if slot in given else source(operation)
    for group in groups:
        values += group
    return tuple(values)


def _missing(operation: Operation) -> object:
    raise ScriptFault(f"{type(operation).__name__}: a slot of its script is given in other calls and not in this one")


def _key_source(key_of: Callable[[Any], object], value: Source) -> Source:
    return lambda operation: key_of(value(operation))


def _field_source(kind: type[Any], path: str) -> Source:
    """A source that reads a field as a script argument: None as '', true as 1. Raises AttributeError if the kind lacks it."""
    first, *further = path.split(".")
    getattr(kind, first)

    def value(operation: Operation) -> object:
        found = getattr(operation, first)
        for step in further:
            found = None if found is None else getattr(found, step)
        return "" if found is None else int(found) if isinstance(found, bool) else found

    return value
