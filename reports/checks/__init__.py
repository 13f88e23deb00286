"""The checks, one file each: a pure function from the frames of a run to violation rows. Each module with a `CHECK` is one."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from reports.checks.base import Check

_MODULES = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]

#: By letter, H first, then by number.
CHECKS: tuple[Check, ...] = tuple(
    sorted((module.CHECK for module in _MODULES if hasattr(module, "CHECK")), key=lambda check: (check.id[0], int(check.id[1:])))
)
