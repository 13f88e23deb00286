"""Programs of `.ci`, whose names are none of modules, as modules."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType


def loaded(program: Path) -> ModuleType:
    """The program as a module of its own, each time anew."""
    loader = importlib.machinery.SourceFileLoader(f"ironclaim_{program.name}", str(program))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
