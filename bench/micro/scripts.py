"""Runs the benchmarks of the single scripts, and reads the output of pytest-benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.micro.place import ROOT

_FILE = "bench/micro/each_script.py"
_TIMEOUT_S = 300
_NANO = 1e6


class ScriptsFailed(Exception):
    """The benchmarks of the scripts failed; the message contains the last lines of their output."""


def measure(rounds: int, output: Path, report: Callable[[str], None]) -> dict[str, Any]:
    """Microseconds of each script: the median round trip, and the server's part. `output`: path for pytest-benchmark's JSON."""
    options = [f"--benchmark-min-rounds={rounds}", f"--benchmark-json={output}", "--benchmark-columns=median"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options, _FILE]
    # Drop the variables of an outer pytest: as one of its parallel processes, pytest-benchmark would measure nothing.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise ScriptsFailed("\n".join(done.stdout.splitlines()[-15:]))
    found = {
        row["params"]["title"]: {"us": row["stats"]["median"] * _NANO, "redis_us": row["extra_info"]["redis_us_per_call"]}
        for row in json.loads(output.read_text())["benchmarks"]
    }
    report(f"{len(found)} benchmarks")
    return {"scripts": found}
