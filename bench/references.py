"""Objects of a service by their names, and what its load yields. Standard library only."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LoadError(Exception):
    """What the service names as its load is none."""


def found(reference: str) -> Any:
    """The object of a reference `module:object`. Raises AttributeError that says what is missing, and what its module raises."""
    module, _, name = reference.partition(":")
    value: Any = import_module(module)
    for part in name.split("."):
        if not hasattr(value, part):
            raise AttributeError(f"{module} has no {name}")
        value = getattr(value, part)
    return value


def is_user(load: object) -> bool:
    """True for a class of Locust users."""
    return isinstance(load, type) and any(kind.__module__.startswith("locust.user") for kind in load.__mro__)


def parts_of(yielded: object) -> tuple[Any, Any, dict[str, Any]]:
    """Task, arguments and options of what a load has yielded. Raises LoadError for what is no job."""
    if not isinstance(yielded, tuple) or not 2 <= len(yielded) <= 3:
        # What it is and not what it says, because payloads are nobody's to print.
        what = f"a tuple of {len(yielded)}" if isinstance(yielded, tuple) else f"a {type(yielded).__name__}"
        raise LoadError(f"the load yielded {what}, it must yield (task, arguments) or (task, arguments, options)")
    task, arguments, options = (*yielded, {})[:3]
    return task, arguments, options
