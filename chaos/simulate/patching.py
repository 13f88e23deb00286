"""Takes a rule away: plants edits in a copy of the scripts and in the methods of the running engine."""

from __future__ import annotations
import __future__

import ast
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from chaos.planting import ENGINE, Edit, planted
from engine.redis.scripts import scripts_folder


@dataclass(frozen=True, slots=True)
class Removal:
    """One rule taken away (0: what a format asks for, beyond the rules): how, the invariants that may find it, and the profiles
    in which it is looked for. `exact`: only where jobs are due to the millisecond can it be found."""

    rule: int
    what: str
    finds: tuple[str, ...]
    profiles: tuple[str, ...]
    edits: tuple[Edit, ...] = ()
    exact: bool = False

    def by(self, anchor: str, new: str) -> Removal:
        """The same with these lines in the place of those of an anchor, too."""
        return replace(self, edits=(*self.edits, Edit(anchor, new)))


def removal(
    rule: int, what: str, finds: str | tuple[str, ...], profiles: str | tuple[str, ...], *, exact: bool = False
) -> Removal:
    """A row of a table, in which a text names several with commas; its edits follow."""
    several = [tuple(one.split(", ")) if isinstance(one, str) else one for one in (finds, profiles)]
    return Removal(rule, what, several[0], several[1], exact=exact)


@contextmanager
def removed(removal: Removal) -> Generator[Path]:
    """A folder of scripts without the rule, while the engine's decisions are without it. Raises HarnessError for an unknown
    anchor."""
    with tempfile.TemporaryDirectory(prefix="ironclaim-removal-") as folder, ExitStack() as patches:
        lua = Path(folder) / "lua"
        shutil.copytree(scripts_folder(), lua)
        for path, text in planted(removal.edits).items():
            if path.suffix == ".lua":
                (lua / path.relative_to(scripts_folder())).write_text(text)
            else:
                for changed in changed_methods(path, text):
                    patches.enter_context(changed)
        yield lua


def changed_methods(path: Path, text: str) -> Iterator[Any]:
    """A patch for each method of the engine's file at `path` that is another one in `text`."""
    module = import_module(".".join(path.relative_to(ENGINE.parent).with_suffix("").parts))
    for before, after in zip(ast.parse(path.read_text()).body, ast.parse(text).body, strict=True):
        if isinstance(before, ast.ClassDef) and isinstance(after, ast.ClassDef):
            for old, new in zip(before.body, after.body, strict=True):
                if isinstance(new, ast.FunctionDef) and ast.dump(old) != ast.dump(new):
                    made: dict[str, Any] = {}
                    flags = __future__.annotations.compiler_flag
                    exec(compile(ast.Module([new], []), f"<{path} changed>", "exec", flags=flags), vars(module), made)  # noqa: S102  the changed engine
                    yield patch.object(getattr(module, after.name), new.name, made[new.name])
