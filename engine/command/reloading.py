"""`ironclaim worker --reload`, for development: a worker that stops and is started anew when a source file has changed.

The worker is a process of its own, which gets SIGTERM and finishes what runs; one that has ended by an error is started anew at
the next change. Files are looked at, not listened to: that needs no library, and works on every file system.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from engine.errors import logger
from engine.worker.control import stop_signals

log = logger("ironclaim.worker")

#: Between two looks at the files, and at most before a signal is passed on.
LOOK_S = 0.25
#: The exit code of a worker that is to be started anew.
_RECYCLED = 75


def keep_running(arguments: Sequence[str], references: Sequence[str]) -> int:
    """Run `ironclaim` with these arguments until a signal ends it, anew at each change of a source file. The exit code of the
    last one."""
    command = [sys.executable, "-m", "engine", *(word for word in arguments if not _asks(word))]
    roots = sorted({Path.cwd(), *(_home_of(reference) for reference in references)})
    with stop_signals(lambda reason: None) as came:
        while True:
            before = dict(_sources(roots))
            # A session of its own: Ctrl-C is passed on once, as a signal to this process is.
            worker = subprocess.Popen(command, start_new_session=True)
            passed_on = 0
            changed = ""
            while (code := _code(worker)) is None:
                if not changed and not came and (changed := _changed(before, roots)):
                    log.info("%s has changed: the worker stops, and starts anew", changed)
                    worker.terminate()
                while passed_on < len(came):
                    passed_on += 1
                    worker.send_signal(signal.SIGTERM)
            if came:
                return code if code >= 0 else 128 - code
            if not changed and code != _RECYCLED:
                log.info("the worker has ended with code %d: it starts anew when a file changes", code)
                while not _changed(before, roots):
                    if came:
                        return code if code >= 0 else 128 - code
                    time.sleep(LOOK_S)


def _asks(word: str) -> bool:
    """Whether an argument is `--reload`, also shortened."""
    return word.startswith("--rel") and "--reload".startswith(word)


def _code(worker: subprocess.Popen[bytes]) -> int | None:
    """How it ended, if it does within a look."""
    try:
        return worker.wait(LOOK_S)
    except subprocess.TimeoutExpired:
        return None


def _home_of(reference: str) -> Path:
    """Where the source of an object is: the file or folder of its outermost module, which is not imported for that."""
    try:
        spec = find_spec(reference.partition(":")[0].partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or "site-packages" in spec.origin:
        return Path.cwd()
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def _changed(before: Mapping[str, int], roots: Iterable[Path]) -> str:
    """A source file that is new, gone, or written since; empty when there is none."""
    now = dict(_sources(roots))
    different = sorted(path for path, _ in before.items() ^ now.items())
    return os.path.relpath(different[0]) if different else ""


def _sources(roots: Iterable[Path]) -> Iterator[tuple[str, int]]:
    """The Python files below these folders, and when each was written. Not those of packages that were installed."""
    for root in roots:
        if root.is_file():
            yield from _written(str(root))
        for folder, inner, files in os.walk(root):
            # Pruned in place, as os.walk wants it.
            inner[:] = [name for name in inner if _is_source(Path(folder, name))]
            for name in files:
                if name.endswith(".py"):
                    yield from _written(os.path.join(folder, name))


def _is_source(folder: Path) -> bool:
    plain = not folder.name.startswith(".") and folder.name not in ("__pycache__", "node_modules", "site-packages")
    return plain and not (folder / "pyvenv.cfg").exists()


def _written(path: str) -> Iterator[tuple[str, int]]:
    try:
        yield path, os.stat(path).st_mtime_ns
    except OSError:
        # Gone between the listing and the look.
        return
