"""The types of a function: its arguments as a payload, what it returns as a result, and both back
(`engine.kinds` says what travels)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Never, NoReturn, TypeVar, cast, get_args, get_origin

from engine.errors import Malformed, describe
from engine.kinds import Kind, Unfit, hints_of, kind_of
from engine.serializers import Texts

#: What a function is called with.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]

R_co = TypeVar("R_co", covariant=True)


class Parameters:
    """Those of one function, and its result. Raises Malformed for a method, for a parameter without a type,
    and where parameters or the result cannot travel. A first one of type `context` is the Job, which does
    not. `batch`: the function takes the calls of several jobs. Each of its parameters is a list with one item
    for each job; the first one may be the list of the Jobs. It returns nothing, a list of results, or a
    mapping of results by job id."""

    def __init__(self, function: Callable[..., object], context: type, *, batch: bool = False) -> None:
        if not callable(function):
            raise Malformed("handler", function, "a function")
        try:
            signature = inspect.signature(function)
            kinds = dict(hints_of(function, [*signature.parameters, "return"]))
        except (TypeError, ValueError) as error:
            raise Malformed("handler", function, f"a function with readable parameters: {error}") from error
        parameters = list(signature.parameters.values())
        if inspect.ismethod(function) or (parameters and parameters[0].name in ("self", "cls")):
            raise Malformed(
                "handler", function, "a function, not a method: a worker has no object to call it on"
            )
        first = parameters[0] if parameters else None
        unannotated = first is not None and first.annotation is inspect.Parameter.empty
        wanted: tuple[Any, str] = (list[context], "jobs") if batch else (context, "job")
        self.takes_job = first is not None and (
            kinds[first.name] == wanted[0] or (unannotated and first.name == wanted[1])
        )
        self._signature = signature.replace(parameters=parameters[1:] if self.takes_job else parameters)
        self._kinds: dict[str, Kind] = {}
        for name, parameter in self._signature.parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise Malformed(
                    "handler", function, f"a function whose parameters have names, unlike *{name}"
                )
            if parameter.annotation is inspect.Parameter.empty:
                bound = f"a function whose parameters have types, unlike {name} (Any: whatever JSON can say)"
                raise Malformed("handler", function, bound)
            try:
                self._kinds[name] = kind_of(_item_of(parameter, kinds[name]) if batch else kinds[name])
            except TypeError as error:
                raise Malformed(
                    "handler", function, f"a function whose parameters can travel; {name}: {error}"
                ) from error
        try:
            #: How its result travels.
            self.result = kind_of(_result_of(kinds["return"], batch=batch))
        except TypeError as error:
            raise Malformed("handler", function, f"a function whose result can travel: {error}") from error

    def write(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of a call: its arguments by name. Raises Malformed."""
        return {
            name: self._convert(name, self._kinds[name].write, value)
            for name, value in self._bound(args, kwargs).items()
        }

    def read(self, payload: Any) -> Arguments:
        """The arguments of a call from the payload of its job. Raises Malformed that names the parameter:
        `payload.user`."""
        return self._called_with(self.came(payload))

    def came(self, payload: Any) -> dict[str, Any]:
        """The same by name. The Malformed is `unfit`, unless a validator of the service has raised: that one
        may succeed in the next run."""
        try:
            return self.item(payload)
        except Malformed as error:
            error.unfit = error.__cause__ is None
            raise

    def listed(self, items: Sequence[Mapping[str, Any]]) -> Arguments:
        """The arguments of several calls, by name, for a function that takes batches."""
        return self._called_with({name: [item[name] for item in items] for name in self._kinds})

    def alone(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """The arguments of a batch with this call alone. Raises Malformed."""
        return self.listed([self._bound(args, kwargs)])

    def write_result(self, value: Any) -> Any:
        """What the function returned, for one job, as JSON has it. Raises Malformed where it is not what the
        function says."""
        return self._result_by(self.result.write, value)

    def read_result(self, value: Any) -> Any:
        """What the function returned, from JSON. Raises Malformed."""
        return self._result_by(self.result.read, value)

    def _result_by(self, convert: Callable[[Any], Any], value: Any) -> Any:
        try:
            return convert(value)
        except Exception as error:
            raise Malformed("result", value, _described(self.result, error), private=True) from _cause(error)

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            bound, said = f"those of {self._signature}: {error}", "what was given is not allowed"
            raise Malformed("arguments", (args, dict(kwargs)), bound, private=True, said=said) from error

    def knows(self, name: str) -> bool:
        """Whether one of them has this name."""
        return name in self._kinds

    def item(self, payload: Any) -> dict[str, Any]:
        """The arguments by name, from a payload. Raises Malformed as `read` does."""
        if not isinstance(payload, dict):
            bound = f"an object with the parameters of {self._signature}"
            raise Malformed("payload", payload, bound, private=True)
        given, read = cast("dict[str, Any]", payload), _read_text if isinstance(payload, Texts) else _read
        for name in given:
            if name not in self._kinds:
                bound = f"left out: the parameters are {self._signature}"
                raise Malformed(f"payload.{name}", given[name], bound, private=True)
        found: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            if name in given:
                found[name] = self._convert(f"payload.{name}", read(self._kinds[name]), given[name])
            elif parameter.default is inspect.Parameter.empty:
                bound = f"given, a value of type {self._kinds[name].name}"
                raise Malformed(f"payload.{name}", None, bound, said="missing")
            else:
                # The default of this process, not of the one that enqueued the job: arguments behind it need
                # their places.
                found[name] = parameter.default
        return found

    def _called_with(self, arguments: Mapping[str, Any]) -> Arguments:
        bound = self._signature.bind_partial()
        bound.arguments.update(arguments)
        return bound.args, bound.kwargs

    def _convert(self, field: str, convert: Callable[[Any], Any], value: Any) -> Any:
        try:
            return convert(value)
        except Exception as error:
            bound = _described(self._kinds[field.removeprefix("payload.")], error)
            raise Malformed(field, value, bound, private=True) from _cause(error)


class TypedJob(Generic[R_co]):
    """Stands for a job's name, as a task does. It has the name, its options (with `id` if one was given), the
    types of payload and result, and the function that a worker calls."""

    name: str
    options: Mapping[str, object]
    parameters: Parameters
    handler: Callable[[Any], object]


JobName = str | TypedJob[Any]


def _read(kind: Kind) -> Callable[[Any], Any]:
    return kind.read


def _read_text(kind: Kind) -> Callable[[Any], Any]:
    """Read a value of this type from a text that may be no JSON. It stays a text where the type is one; else
    it is what it spells."""

    def read(text: str) -> Any:
        try:
            return kind.read(text)
        except Exception:
            return kind.read(
                {"true": True, "false": False}[text] if text in ("true", "false") else _number(text)
            )

    return read


def _described(kind: Kind, error: Exception) -> str:
    """What a value has to be, and why it is not where its type does not say that: a validator may raise
    anything."""
    if isinstance(error, Unfit):
        return f"a value of type {kind.name} ({error})"
    return f"a value of type {kind.name}" + (
        "" if type(error) in (TypeError, ValueError) else f" ({describe(error)})"
    )


def _cause(error: Exception) -> Exception | None:
    """None for the errors of built-in types, because their texts quote the value, and traces are stored."""
    return None if isinstance(error, TypeError | ValueError) else error


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        found = float(text)
        if math.isinf(found) and text.strip("+-").isdecimal():
            raise
        return found


def _item_of(parameter: inspect.Parameter, hint: Any) -> Any:
    """The type of an item of a parameter of a batch. Raises TypeError."""
    if get_origin(hint) is not list:
        raise TypeError("with batch each parameter is a list[...], of which every job has one item")
    if parameter.default is not inspect.Parameter.empty:
        raise TypeError("with batch a parameter has no default, since each job has its own item")
    return get_args(hint)[0]


def _result_of(hint: Any, *, batch: bool) -> Any:
    """The type of the result of a job, from what its function returns. Raises TypeError."""
    if hint in (Never, NoReturn):
        return None
    if not batch or hint in (Any, None, type(None)):
        return hint
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin in (list, Sequence, dict, Mapping):
        return arguments[-1] if arguments else Any
    raise TypeError(
        "with batch a function returns None, a list[...] of results, or a dict[str, ...] of results by job id"
    )
