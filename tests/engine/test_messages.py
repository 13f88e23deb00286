"""What people read when something is wrong: the field, the value, the bound, and no words of the engine's own. What users import,
with each parameter, field and default: a change of one shows as a change of `tests/golden/engine/api.txt`."""

import dataclasses
import inspect
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

import engine
from engine import EngineError, Malformed, Queue, ServerUnavailable, models, testing
from engine.redis import exchange
from tests.conformance.declared import every_operation
from tests.engine.using import Call, refused
from tests.golden import same


def test_a_call_that_fails_is_named_in_words(nowhere: Queue) -> None:
    refused(ServerUnavailable, "^counts: ", nowhere.counts)
    kinds = every_operation()
    assert len(kinds) > 30
    for kind in kinds:
        operation: Any = object.__new__(kind)
        assert re.fullmatch("[a-z. ]+", exchange._name(Call(None, (), (), str, operation)))  # pyright: ignore[reportPrivateUsage]


#: One of each class whose constructor takes other arguments than a message.
ERRORS: list[EngineError] = [
    Malformed("card", {"number": 1}, "a text", private=True), engine.UnknownParent("child", "parent"),
    engine.JobFailed("job", "dead", "ValueError: no"), engine.NoResult("job"), engine.TimedOut("job", 5),
    engine.BatchFailed({"a": "no"}, {"b": 1}), engine.PartlyEnqueued("partly", [ServerUnavailable("away")]),
    engine.PartlyPublished("partly", []), engine.ChannelNotFound("news"), engine.SubscriptionNotFound("news", "reader"),
]  # fmt: skip


@pytest.mark.parametrize("error", [*ERRORS, engine.LeaseLost("over")], ids=lambda error: type(error).__name__)
def test_an_error_crosses_a_border_of_processes(error: EngineError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), repr(vars(again))) == (type(error), str(error), repr(vars(error)))


def test_each_error_that_takes_arguments_of_its_own_is_sent_across() -> None:
    own = {kind for kind in vars(engine).values() if isinstance(kind, type) and issubclass(kind, EngineError)}
    assert {kind for kind in own if "__init__" in vars(kind)} == {type(error) for error in ERRORS}


PLAIN = (bool, int, float, str, bytes, type(None), tuple)
#: Whose defaults tests have set longer, and what the machine says.
ELSEWHERE = {"ConnectOptions", "GroupSettings", "WorkerSettings"}


def signature(function: Any) -> str:
    """Names and plain defaults of the parameters."""
    try:
        found = inspect.signature(function)
    except ValueError:
        # As of exceptions, whose arguments are not named.
        return ""
    bare = [
        at.replace(annotation=at.empty, default=at.default if at.default is at.empty or type(at.default) in PLAIN else ...)
        for at in found.parameters.values()
        if at.name != "self"
    ]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


def lines_of(name: str, found: Any) -> Iterator[str]:
    """A name that users import: a function, a class with its public attributes and methods, or a value."""
    if not inspect.isclass(found):
        yield f"{name}{signature(found)}" if inspect.isroutine(found) else f"{name} = {found!a}" if type(found) in PLAIN else name
        return
    bases = ", ".join(base.__name__ for base in found.__mro__[1:-1] if base.__module__.startswith("engine"))
    frozen = " frozen" * bool(dataclasses.is_dataclass(found) and found.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    yield f"{name}{signature(found)}{bases and f' is a {bases}'}{frozen}"
    own = {attribute for base in found.__mro__ if base.__module__.startswith("engine") for attribute in vars(base)}
    for attribute in sorted(attribute for attribute in own if not attribute.startswith("_")):
        value = inspect.getattr_static(found, attribute)
        value = getattr(value, "__func__", value)
        told = signature(value) if inspect.isfunction(value) else f" = {value!a}" if type(value) in PLAIN else ""
        yield f"{name}.{attribute}{told}"


def test_what_users_import_and_what_counts_where_nothing_is_said() -> None:
    told = list[str]()
    for module in (engine, models, testing):
        for name in sorted({*module.__all__} - ELSEWHERE):
            told += lines_of(f"{module.__name__}.{name}", getattr(module, name))
    same("engine/api.txt", "\n".join([*told, ""]))
