"""The library that processes are started with: compiled once from `shim.c`, and kept in the user's cache folder.

Standard library only. Without a compiler the faults that need it are missing, and a run that plans one is unknown.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from chaos.errors import HarnessError
from chaos.tool_cache import cache_folder, locked

SOURCE = Path(__file__).parent / "shim.c"

#: Compilers that are looked for on PATH, in this order.
COMPILERS = ("cc", "gcc", "clang")

#: A second of work on a busy machine.
BUILD_TIMEOUT_S = 120

#: What installs a compiler with the headers of the C library.
INSTALL = "sudo apt-get install build-essential"

COMPILER_MISSING = (
    f"faults of clocks, syncs and host names need a C compiler, and there is no {' or '.join(COMPILERS)} on PATH; "
    f"install it, on Debian: {INSTALL}"
)


class LibraryMissing(HarnessError):
    """The library cannot be had. The message is one line that says why and what to install."""


def find_compiler() -> Path | None:
    """The C compiler on PATH; None when there is none."""
    found = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    return Path(found) if found else None


def built() -> Path:
    """Where the build is kept: a folder per version of the source."""
    version = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    return cache_folder() / f"preload-{version}" / "shim.so"


def build(say: Callable[[str], None]) -> Path:
    """The library, compiled now if it is not there yet; `say` gets a line about that. Raises LibraryMissing."""
    target = built()
    if target.is_file():
        return target
    compiler = find_compiler()
    if compiler is None:
        raise LibraryMissing(COMPILER_MISSING)
    with locked(target.parent, ".lock", LibraryMissing):
        if not target.is_file():
            say(f"compiling {SOURCE.name} with {compiler}, once")
            with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as folder:
                compile_with(compiler, Path(folder) / target.name)
                # In one step: no reader ever sees half a library.
                (Path(folder) / target.name).replace(target)
    return target


def compile_with(compiler: Path, target: Path) -> None:
    """Compile the source. Raises LibraryMissing with what the compiler said."""
    command = [str(compiler), "-std=gnu11", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(target), str(SOURCE), "-ldl"]
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BUILD_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LibraryMissing(f"{SOURCE.name}: {compiler} cannot compile it: {error}") from error
    if done.returncode != 0:
        first = next((line for line in done.stderr.splitlines() if "error" in line), "it said nothing").strip()
        raise LibraryMissing(f"{SOURCE.name}: {compiler} failed: {first[:200]}; on Debian: {INSTALL}")
