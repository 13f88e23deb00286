"""Finds the dataclasses of a package whose fields can be assigned."""

import pkgutil
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from importlib import import_module
from types import ModuleType
from typing import Any


def assignable(package: ModuleType) -> set[str]:
    """Their names: the others refuse it, so whoever shares a value of theirs with another thread need not look after it."""
    return {kind.__name__ for kind in _dataclasses(package) if not _refuses(kind)}


def _dataclasses(package: ModuleType) -> Iterator[type[Any]]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            for value in vars(import_module(found.name)).values():
                here = isinstance(value, type) and value.__module__ == found.name
                # Operations have a hash of their values instead, because they are made for each call.
                if here and "__dataclass_params__" in vars(value) and not value.__dataclass_params__.unsafe_hash:
                    yield value


def _refuses(kind: type[Any]) -> bool:
    for field in fields(kind):
        try:
            setattr(object.__new__(kind), field.name, None)
        except FrozenInstanceError:
            continue
        return False
    return True
