"""Typed parameters of a function: its arguments as a payload, and back (`engine.kinds` says what travels)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from engine.errors import Malformed
from engine.kinds import Kind, hints_of, kind_of


class Parameters:
    """Those of one function. Raises Malformed for a function whose parameters cannot travel. A first one of type `context` is the
    Job, which does not."""

    def __init__(self, function: Callable[..., object], context: type) -> None:
        try:
            signature = inspect.signature(function)
            kinds = dict(hints_of(function, list(signature.parameters)))
        except (TypeError, ValueError) as error:
            raise Malformed("handler", function, f"a function with readable parameters: {error}") from error
        parameters = list(signature.parameters.values())
        first = parameters[0] if parameters else None
        unannotated = first is not None and first.annotation is inspect.Parameter.empty
        self.takes_job = first is not None and (kinds[first.name] is context or (unannotated and first.name == "job"))
        self._signature = signature.replace(parameters=parameters[1:] if self.takes_job else parameters)
        self._kinds: dict[str, Kind] = {}
        for name, parameter in self._signature.parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise Malformed("handler", function, f"a function whose parameters have names, unlike *{name}")
            try:
                self._kinds[name] = kind_of(kinds[name])
            except TypeError as error:
                raise Malformed("handler", function, f"a function whose parameters can travel; {name}: {error}") from error

    def write(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of a call: its arguments by name. Raises Malformed."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise Malformed("arguments", (args, dict(kwargs)), f"those of {self._signature}: {error}") from None
        return {name: self._convert(name, self._kinds[name].write, value) for name, value in bound.arguments.items()}

    def read(self, payload: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call from its payload. Raises Malformed."""
        if not isinstance(payload, dict):
            raise Malformed("payload", payload, f"an object with the parameters of {self._signature}")
        given = cast("dict[str, Any]", payload)
        unknown = [name for name in given if name not in self._kinds]
        if unknown:
            raise Malformed("payload", unknown[0], f"an object with the parameters of {self._signature}")
        bound = self._signature.bind_partial()
        for name, parameter in self._signature.parameters.items():
            if name in given:
                bound.arguments[name] = self._convert(name, self._kinds[name].read, given[name])
            elif parameter.default is inspect.Parameter.empty:
                raise Malformed("payload", given, f"an object with {name}")
            else:
                # The default of today, not that of who enqueued it: keyword arguments behind it need their places.
                bound.arguments[name] = parameter.default
        return bound.args, bound.kwargs

    def _convert(self, name: str, convert: Callable[[Any], Any], value: Any) -> Any:
        try:
            return convert(value)
        except Malformed:
            raise
        except (TypeError, ValueError, RecursionError):
            raise Malformed(name, value, f"a value of type {self._kinds[name].name}") from None
