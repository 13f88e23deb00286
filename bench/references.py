"""Objects of a service by their names. Standard library only."""

from __future__ import annotations

from importlib import import_module
from typing import Any


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
