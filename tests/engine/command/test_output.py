"""How commands read their words and print: what a terminal, a pipe and a full disk make of it."""

import argparse
import io
import os
import sys

import pytest

from engine import __version__, errors
from engine.command import output
from engine.command.arguments import numbers, priorities
from engine.command.main import main
from tests.engine.helpers.producing import refused


def test_words_are_read() -> None:
    assert [priorities(text) for text in ("5", "7-10")] == [(5, 5), (7, 10)] and numbers("6,3,1") == (6, 3, 1)
    for text in ("", "x", "7-", "123", "7-10-12"):
        refused(argparse.ArgumentTypeError, "one priority or two with a dash", priorities, text)


def test_json_has_escapes_where_the_terminal_lacks_the_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"é": ['a "é"', "\n\U0001f40d"]}
    escaped = '{"\\u00e9": ["a \\"\\u00e9\\"", "\\n\\ud83d\\udc0d"]}'
    for encoding, wanted in {"latin-1": escaped, "utf-8": errors.json_text(value, spaced=True)}.items():
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding))
        assert output.json_text(value) == wanted


def test_what_takes_long_shows_its_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    output.Progress("backup")(1, 1)
    monkeypatch.setattr(output, "_SILENT_S", 0.0)
    shows = output.Progress("backup")
    shows(1_234, 3 << 19)
    shows(9_999, 1)
    assert capsys.readouterr().err == "backup: 1,234 keys, 1.5 MiB\n"


def test_an_output_may_end_but_not_be_full(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--version"]) == 0 and capsys.readouterr() == (f"ironclaim {__version__}\n", "")
    words = ["lua", "--model", "dsps"]
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(words) == 2
        # What the interpreter flushes at its end goes nowhere.
        print("more", file=full, flush=True)
    assert capsys.readouterr().err == "ironclaim: the output cannot be written: [Errno 28] No space left on device\n"
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert main(words) == 0
    monkeypatch.setattr(sys, "stdout", None)
    output.finish_output()
