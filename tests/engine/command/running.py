"""Run the console command as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


def ironclaim(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engine", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )


def said(*arguments: str, **environment: str) -> Any:
    """What the command prints as JSON."""
    done = ironclaim(*arguments, "--json", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)
