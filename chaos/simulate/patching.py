"""Takes a rule away: replaces exact text in a copy of the scripts or in a function of the engine. Text that is not there any more
is an error, so that no removal can rot."""

from __future__ import annotations
import __future__

import inspect
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from engine.models.lanes import Lanes
from engine.scripts import scripts_folder


class Rotten(Exception):
    """A removal names a text that the engine does not have."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement. `where`: a script below `lua/lanes`, or `module:Class.method` of the engine."""

    where: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Removal:
    """One rule taken away: how, the invariants that may find it, and the profiles in which it is looked for."""

    rule: int
    what: str
    edits: tuple[Edit, ...]
    finds: tuple[str, ...]
    profiles: tuple[str, ...]


def check_fits(removal: Removal) -> None:
    """Raises Rotten when the engine has not the text that the removal replaces."""
    for edit in removal.edits:
        if edit.where.endswith(".lua"):
            _replaced((scripts_folder() / "lanes" / edit.where).read_text(), edit)
        else:
            _method(edit)


@contextmanager
def removed(removal: Removal, queue: str) -> Generator[Lanes]:
    """A model without the rule, while the engine's decisions are without it as well. Raises Rotten."""
    with tempfile.TemporaryDirectory(prefix="ironclaim-removal-") as folder:
        lua = Path(folder) / "lua"
        shutil.copytree(scripts_folder(), lua)
        patches: list[Any] = []
        for edit in removal.edits:
            if edit.where.endswith(".lua"):
                path = lua / "lanes" / edit.where
                path.write_text(_replaced(path.read_text(), edit))
            else:
                patches.append(_method(edit))
        with _all(iter(patches)):
            yield Lanes(queue, lua=lua)


@contextmanager
def _all(patches: Iterator[Any]) -> Generator[None]:
    first = next(patches, None)
    if first is None:
        yield
        return
    with first, _all(patches):
        yield


def _replaced(text: str, edit: Edit) -> str:
    if text.count(edit.old) != 1:
        raise Rotten(f"{edit.where} has {text.count(edit.old)} times the text {edit.old!r}")
    return text.replace(edit.old, edit.new)


def _method(edit: Edit) -> Any:
    """The patch of a method, from its changed source."""
    module_name, _, path = edit.where.partition(":")
    class_name, _, name = path.partition(".")
    __import__(module_name)
    module = sys.modules[module_name]
    owner = getattr(module, class_name)
    method: Any = inspect.getattr_static(owner, name)
    function: Any = method.fget if isinstance(method, property) else method
    source = _replaced(textwrap.dedent(inspect.getsource(function)), edit)
    made: dict[str, Any] = {}
    code = compile(source, f"<{edit.where} changed>", "exec", flags=__future__.annotations.compiler_flag)
    exec(code, vars(module), made)
    return patch.object(owner, name, made[name])
