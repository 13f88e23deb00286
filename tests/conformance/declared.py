"""What a model declares, and that it refuses the rest."""

import pkgutil
from importlib import import_module
from typing import Any

import pytest

from engine import Queue, UnsupportedFeature, ops
from engine.ops.base import Operation


def every_operation() -> set[type[Operation]]:
    """All operations of all models."""
    modules = [import_module(module.name) for module in pkgutil.iter_modules(ops.__path__, "engine.ops.")]
    values: list[Any] = [value for module in modules for value in vars(module).values()]
    return {value for value in values if isinstance(value, type) and issubclass(value, Operation) and value is not Operation}


def holds(queue: Queue, *options: str) -> bool:
    """Whether jobs of the model hold these options."""
    held: frozenset[str] | None = getattr(queue.model, "OPTIONS", None)
    return held is None or held.issuperset(options)


def has(queue: Queue, *operations: type[Operation]) -> bool:
    """Whether the model has these operations."""
    lacked: frozenset[type[Any]] = getattr(queue.model, "LACKS", frozenset())
    return not lacked.intersection(operations)


def accepts(queue: Queue, **options: Any) -> bool:
    """Whether jobs may have these options; where not, an enqueue with them says so."""
    if holds(queue, *options):
        return True
    with pytest.raises(UnsupportedFeature):
        queue.enqueue("main", {"label": "refused"}, **options)
    return False


def attempts(queue: Queue, count: int) -> dict[str, Any]:
    """Options of a job that may run so often; nothing where the format says how often it does."""
    return {"attempts": count} if accepts(queue, attempts=count) else {}
