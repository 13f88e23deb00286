"""Run the console command, in this process: an interpreter for each call took most of these tests' time."""

import argparse
import contextlib
import functools
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from engine.command.main import _parser, main  # pyright: ignore[reportPrivateUsage]

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Done:
    """What a call ended with and printed."""

    returncode: int
    stdout: str
    stderr: str


@functools.cache
def parser_of(settings: frozenset[tuple[str, str]]) -> argparse.ArgumentParser:
    """The parser, whose defaults are these settings of the environment: to make it takes most of the time of a call."""
    return _parser()


def known_parser() -> argparse.ArgumentParser:
    return parser_of(frozenset((name, value) for name, value in os.environ.items() if name.startswith("IRONCLAIM_")))


def ironclaim(*arguments: str, **environment: str) -> Done:
    with (
        # As wide as without a terminal, whatever the terminal of who runs the tests.
        patch.dict(os.environ, {"COLUMNS": "80", **environment}),
        patch("engine.command.main._parser", known_parser),
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


def refused(*arguments: str, **environment: str) -> str:
    """The one line with which the command refuses, before it has printed anything."""
    done = ironclaim(*arguments, **environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), (arguments, done)
    assert done.stderr.startswith("ironclaim: ")
    return done.stderr


def said(*arguments: str, **environment: str) -> Any:
    """What the command prints as JSON."""
    done = ironclaim(*arguments, "--json", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)
