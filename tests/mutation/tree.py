"""Copies of the working tree: edits are made there and nowhere else."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.planting import without_unused
from tests.mutation.edits import ROOT, Edit, changed


class Tree:
    """A copy of all files that git knows or would take, with their present contents."""

    def __init__(self, path: Path) -> None:
        self.path = path
        wanted = files()
        # What is there already stays, with the compiled files: compiling all tests anew takes longer than most edits.
        for old in set(_below(path)) - set(wanted):
            (path / old).unlink()
        for file in wanted:
            copy, content = path / file, (ROOT / file).read_bytes()
            if not copy.is_file() or copy.read_bytes() != content:
                copy.parent.mkdir(parents=True, exist_ok=True)
                self._write(file, content)
                copy.chmod((ROOT / file).stat().st_mode)

    @contextmanager
    def edited(self, edit: Edit) -> Iterator[None]:
        """The copy with an edit; clean again afterwards."""
        clean = {change.file: (self.path / change.file).read_bytes() for change in edit.changes}
        try:
            for file, text in clean.items():
                edited = changed(text.decode(), [change for change in edit.changes if change.file == file])
                self._write(file, (without_unused(edited) if file.endswith(".lua") else edited).encode())
            yield
        finally:
            for file, text in clean.items():
                self._write(file, text)

    def environment(self) -> dict[str, str]:
        """For processes that shall run this copy, wherever they are started."""
        return {**os.environ, "PYTHONPATH": str(self.path), "PYTHONHASHSEED": "0"}

    def _write(self, file: str, content: bytes) -> None:
        path = self.path / file
        path.write_bytes(content)
        # Compiled files are held to the second and the size of their sources: two edits may have both in common.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


def _below(path: Path) -> Iterator[str]:
    for folder, _, names in os.walk(path):
        for name in names:
            if not name.endswith(".pyc"):
                yield str((Path(folder) / name).relative_to(path))


def files() -> list[str]:
    """Sorted paths from the root, with slashes."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return sorted(file for file in set(listed.stdout.split("\0")) if file and (ROOT / file).is_file())
