"""Run the console command, in this process: an interpreter for each call took most of these tests' time."""

from __future__ import annotations

import contextlib
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from engine.command.main import main

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Done:
    """What a call ended with and printed."""

    returncode: int
    stdout: str
    stderr: str


def ironclaim(*arguments: str, **environment: str) -> Done:
    with (
        patch.dict(os.environ, environment),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        try:
            code = main(arguments)
        except SystemExit as stopped:
            # argparse ends so where arguments are wrong.
            assert isinstance(stopped.code, int)
            code = stopped.code
    return Done(code, out.getvalue(), err.getvalue())


def said(*arguments: str, **environment: str) -> Any:
    """What the command prints as JSON."""
    done = ironclaim(*arguments, "--json", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)
