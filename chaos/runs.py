"""Run folders: their names, the link to the latest, and pruning by age and count."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from calendar import timegm
from dataclasses import dataclass
from pathlib import Path

from chaos.errors import HarnessError

#: A folder with another name is not a run of ours and is never touched.
RUN_ID = re.compile(r"(\d{8}-\d{6})-[a-z0-9]+-seed\d+(-[a-z0-9-]+)?")

#: Runs that start in the same second get the suffixes -2, -3 and so on, up to this.
NAMES_MAX = 100

#: Held (flock) for as long as a drill works in the folder: a run in progress is never pruned, a dead one leaves no trace.
LOCK_NAME = ".lock"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's folder, locked by this process until it exits or `release` is called."""

    path: Path
    lock_descriptor: int

    @property
    def history(self) -> Path:
        return self.path / "history"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def release(self) -> None:
        """Let the run be pruned by later ones."""
        os.close(self.lock_descriptor)


def run_id(scenario: str, seed: int, label: str, now_s: float) -> str:
    """`<UTC yyyymmdd-HHMMSS>-<scenario>-seed<seed>[-<label>]`; a mutant is a label, and so is a model."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_s))
    return f"{stamp}-{scenario}-seed{seed}" + (f"-{label}" if label else "")


def create(runs: Path, name: str) -> RunFolder:
    """Make `runs/<name>/` with its subfolders, lock it, and point `runs/latest` at it. Raises HarnessError.

    A name that another run has taken gets a suffix.
    """
    path = runs / name
    try:
        runs.mkdir(parents=True, exist_ok=True)
        path = make_unique(path)
        for part in ("history", "samples", "logs"):
            (path / part).mkdir()
        descriptor = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        link_latest(runs, path.name)
    except OSError as error:
        raise HarnessError(f"run folder {path}: {error.strerror or error}") from error
    return RunFolder(path, descriptor)


def make_unique(wanted: Path) -> Path:
    """Make the folder, or the first of `<wanted>-2`, `<wanted>-3`, ... that nobody has. Raises OSError."""
    number, path = 1, wanted
    while True:
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1
            if number > NAMES_MAX:
                raise
            path = wanted.with_name(f"{wanted.name}-{number}")


def link_latest(runs: Path, name: str) -> None:
    """Point `runs/latest` at the run in one step. Raises OSError."""
    fresh = runs / f".latest-{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(name, target_is_directory=True)
    fresh.replace(runs / "latest")


def prune(runs: Path, *, keep: int, keep_days: int, now_s: float) -> list[str]:
    """Remove runs older than `keep_days` and all but the newest `keep`; return the names removed, oldest first.

    The time of a run is the one in its name. A run that some process is still working on stays, and counts.
    """
    found = sorted((entry.name for entry in runs.iterdir() if entry.is_dir() and RUN_ID.fullmatch(entry.name)), reverse=True)
    oldest_s = now_s - keep_days * 86_400
    removed: list[str] = []
    for position, name in enumerate(found):
        if (position >= keep or started_s(name) < oldest_s) and not in_use(runs / name):
            shutil.rmtree(runs / name, ignore_errors=True)
            if not (runs / name).exists():
                removed.append(name)
    return removed[::-1]


def slim(run: Path) -> None:
    """Remove from a judged run what its seed makes again and nobody looks up: verdict, spec, page and logs stay."""
    for part in ("history", "samples", "tables", "lua", "engine"):
        shutil.rmtree(run / part, ignore_errors=True)


def utc(now_s: float) -> str:
    """ISO 8601 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))


def started_s(name: str) -> float:
    """The start of a run in seconds since 1970, from its name; a date that no calendar has counts as long ago."""
    try:
        return timegm(time.strptime(name[:15], "%Y%m%d-%H%M%S"))
    except ValueError:
        return 0.0


def in_use(path: Path) -> bool:
    """True while a drill holds the run's lock."""
    try:
        descriptor = os.open(path / LOCK_NAME, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return False
