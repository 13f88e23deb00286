"""The files of another commit, unpacked beside this checkout."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class NoCommit(Exception):
    """The commit does not exist in this repository."""


def git(*arguments: str) -> bytes:
    """What git answers in this checkout. Raises NoCommit."""
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout
    except OSError as error:
        raise NoCommit(f"git {arguments[0]}: {error}") from error
    except subprocess.CalledProcessError as error:
        raise NoCommit(f"git {' '.join(arguments)}: {error.stderr.decode().strip()}") from error


def short_hash(commit: str) -> str:
    """The short hash of a commit. Raises NoCommit."""
    return git("rev-parse", "--short", f"{commit}^{{commit}}").decode().strip()


def unpacked(commit: str, folder: Path) -> Path:
    """The folder with the files of a commit, named by its short hash; unpacked unless it exists. Raises NoCommit."""
    target = folder / short_hash(commit)
    if not target.exists():
        scratch = target.with_suffix(".part")
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit))) as archive:
            archive.extractall(scratch, filter="data")
        scratch.rename(target)
    return target
