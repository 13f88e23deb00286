"""The user's cache folder, where tools that are built or installed once are kept. Standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path

from chaos.errors import HarnessError


def cache_folder() -> Path:
    """`ironclaim` below XDG_CACHE_HOME or ~/.cache."""
    # The specification says to ignore a relative path.
    base = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if not base.is_absolute():
        base = Path("~/.cache").expanduser()
    return base / "ironclaim"


@contextlib.contextmanager
def locked(folder: Path, name: str, missing: type[HarnessError]) -> Generator[None]:
    """Make the folder and hold the lock of this name in it, which ends with the process. Raises `missing`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / name).open("w")
    except OSError as error:
        raise missing(f"the cache folder {folder} cannot be written: {error.strerror or error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
