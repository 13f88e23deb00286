"""Temporary folders that vanish with their owner: at once when it ends well, by the next one's hand when it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

PREFIX = "ironclaim-testing-"

#: A folder this young may belong to an owner that has not locked it yet.
YOUNG_S = 60.0


class OwnedFolder:
    """A new folder below the system's temporary one. Its owner holds its lock (flock), which the kernel ends with the owner."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock_descriptor = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock_descriptor)


def sweep(folder: Path | None = None, *, now_s: float | None = None) -> list[Path]:
    """Remove folders whose owner is gone, below `folder` (default: the system's temporary one); the removed ones.

    A folder that cannot be looked at or removed, somebody else's for example, stays.
    """
    oldest_s = (time.time() if now_s is None else now_s) - YOUNG_S
    removed: list[Path] = []
    for path in (folder or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest_s and not _owned(path):
                shutil.rmtree(path)
                removed.append(path)
    return removed


def _owned(path: Path) -> bool:
    """True while some process holds the folder's lock. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
