"""What users import, with each parameter, field and default: a change of one changes the calls of every service, so it shows
as a change of `tests/golden/engine/api.txt`."""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import engine
from engine import models, testing
from tests.golden import same

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
