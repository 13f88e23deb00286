"""Defects that the tree has already: the mutants that ship, and the rules that the simulator takes away. Each as an edit."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chaos import mutants
from chaos.channels import mutants as channel_mutants
from chaos.simulate import patching
from chaos.simulate.removals import REMOVALS
from tests.mutation.edits import ROOT, Edit, from_texts


def shipped() -> Iterator[Edit]:
    """The mutants of jobs and of channels that change scripts; the others are planted in processes of a drill."""
    for mutant in (*mutants.MUTANTS.values(), *channel_mutants.MUTANTS.values()):
        if mutant.patches:
            texts = _Texts()
            for patch in mutant.patches:
                texts.replace(f"lua/{patch.file}", patch.old, patch.new)
            yield texts.edit(f"mutant:{mutant.name}", "mutant")


def removals() -> Iterator[Edit]:
    """The rules, one after the other, taken away."""
    for removal in REMOVALS:
        texts = _Texts()
        for edit in removal.edits:
            if edit.where.endswith(".lua"):
                texts.replace(f"lua/lanes/{edit.where}", edit.old, edit.new)
            else:
                texts.replace_in_method(edit)
        yield texts.edit(f"removal:{removal.rule}:{removal.what}", "removal")


class _Texts:
    """The files that one defect changes, before and after."""

    def __init__(self) -> None:
        self._before: dict[str, str] = {}
        self._after: dict[str, str] = {}

    def replace(self, file: str, old: str, new: str) -> None:
        """Raises ValueError when the file has not exactly one such text."""
        text = self._text(file)
        if text.count(old) != 1:
            raise ValueError(f"{file} has {text.count(old)} times the text {old!r}")
        self._after[file] = text.replace(old, new)

    def replace_in_method(self, edit: patching.Edit) -> None:
        """As the simulator does: the text is that of the method without its indentation."""
        module_name, _, path = edit.where.partition(":")
        class_name, _, name = path.partition(".")
        __import__(module_name)
        method = inspect.getattr_static(getattr(sys.modules[module_name], class_name), name)
        function: Any = method.fget if isinstance(method, property) else method
        file = inspect.getsourcefile(function)
        source = inspect.getsource(function)
        assert file is not None
        plain = textwrap.dedent(source)
        if plain.count(edit.old) != 1:
            raise ValueError(f"{edit.where} has {plain.count(edit.old)} times the text {edit.old!r}")
        indented = textwrap.indent(plain.replace(edit.old, edit.new), source[: len(source) - len(source.lstrip())])
        name = str(Path(file).relative_to(ROOT))
        self._after[name] = self._text(name).replace(source, indented)

    def edit(self, id: str, operator: str) -> Edit:
        return from_texts(id, operator, [(file, self._before[file], text) for file, text in self._after.items()])

    def _text(self, file: str) -> str:
        self._before.setdefault(file, (ROOT / file).read_text())
        return self._after.setdefault(file, self._before[file])
