"""No input and no terminal makes a traceback of a command: one line on stderr, and the documented exit code."""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Queue
from engine.command.arguments import words as _words
from engine.command.main import main
from tests.engine.command.running import ironclaim, known_parser, refused
from tests.engine.helpers.producing import raises

#: Words in any place of a command: deep JSON, bytes of a terminal that are no UTF-8, NUL, numbers without end, and folders.
HOSTILE = ("[" * 5_000 + "]" * 5_000, "\udcff", "a\0b", "9" * 5_000, "/")
AWAY = "redis://127.0.0.1:1"


def lines(queue: str, word: str) -> list[tuple[str, ...]]:
    """Commands with a hostile word, none of which needs a server to refuse it."""
    at = ("--queue", queue, "--url", AWAY)
    return [
        *(("enqueue", "work", f"--{flag}={word}", *at) for flag in ("payload", "on-success", "delay-ms", "run-at-ms", "target")),
        *(("jobs", "list", f"--{flag}={word}", *at) for flag in ("state", "limit", "offset", "older-than")),
        ("worker", word, *at), ("jobs", "show", word, "--queue", f"no queue {word}", "--url", AWAY), ("queues", f"--url={word}"),
        ("outbox", word), ("lua", word), (word,),
    ]  # fmt: skip


def test_no_argument_makes_a_traceback() -> None:
    for word in HOSTILE:
        for arguments in lines("q q", word):
            done = ironclaim(*arguments)
            assert done.returncode == 2 and done.stderr and "Traceback" not in done.stderr, (arguments[:3], done.returncode)
            assert len(done.stderr.splitlines()[-1]) < 12_000
    told = refused("enqueue", "work", "--payload", HOSTILE[0], "--queue", "q", "--url", AWAY)
    assert "--payload" in told and "JSON" in told
    assert "'a' comes twice" in refused("enqueue", "work", "--payload", '{"a":1,"a":2}', "--queue", "q", "--url", AWAY)


def _leaves(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command with its parser."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # pyright: ignore
    for action in below:
        for word, inner in action.choices.items():
            yield from _leaves(inner, (*words, word))
    if not below:
        yield words, parser


def test_each_number_of_each_command_is_refused_by_its_name_before_the_server_is_asked() -> None:
    """The server is away: whoever asks it first says so, after ten seconds, and not what is wrong."""
    refused = 0
    for words, parser in _leaves(known_parser()):
        given = [*(("--url", AWAY) if "--url" in parser._option_string_actions else ()), "--queue", "q"]
        given = given if "--queue" in parser._option_string_actions else given[:-2]
        needed = [action for action in parser._actions if not action.option_strings and action.nargs not in ("?", "*", 0)]
        places = [next(iter(action.choices or ("engine.testing.none:queue",))) for action in needed]
        for action in parser._actions:
            if action.type in (None, str, Path, _words) or not action.option_strings:
                continue
            flag = action.option_strings[-1]
            # What its bound refuses, where the command asks for it in a place that this process can reach.
            beyond = ["-1", "1" + "0" * 30] if flag in ("--limit", "--offset", "--priority", "--jitter") else []
            beyond += ["0"] if flag in ("--priority", "--attempts", "--crashes-max") else []
            for value in ("NaN", "", "\udcff", "9" * 5_000, *(beyond if words[0] != "queues" else ())):
                done = ironclaim(*words, *places, *given, f"{flag}={value}")
                last = done.stderr.strip().rpartition("\n")[2]
                assert done.returncode == 2 and "Traceback" not in done.stderr, (words, flag, value[:20])
                assert flag.strip("-").replace("-", "_") in last.replace("-", "_"), (words, flag, value[:20], last[:200])
                refused += 1
    assert refused > 200


def test_a_module_that_raises_anything_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for number, raised in enumerate(("GeneratorExit('x')", "type('Odd', (BaseException,), {})('x')", "SystemExit('x')")):
        (tmp_path / f"raising_{number}.py").write_text(f"raise {raised}\n")
        assert f"raising_{number}.py:1: " in refused("worker", f"raising_{number}:queue"), raised


@pytest.mark.slow
def test_terminals_with_few_characters_and_closed_pipes(queue: Queue, ironclaim_url: str) -> None:
    queue.enqueue("work", {"text": "äöü 😀"}, id="a", headers={"h": "é"})
    command = f"{sys.executable} -m engine jobs show a --queue mails --url {ironclaim_url}"
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "COLUMNS": "0"}
    script = "; ".join(f"{command} {of}; echo code $?" for of in ("", "--json", ">&-", "2>&- <&-"))
    script += f"; ({command}; echo code $? >&2) | true; {command} >/dev/full; echo code $?"
    done = subprocess.run(["bash", "-c", script], env=ascii_only, capture_output=True, text=True, timeout=300, check=True)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("code ")] == ["code 0"] * 4 + ["code 2"], done.stderr
    assert "code 0" in done.stderr and "No space left" in done.stderr
    assert r"\xe4\xf6\xfc" in done.stdout or r"\u00e4\u00f6\u00fc" in done.stdout


def test_an_interrupt_is_code_130_and_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, runs in (("top", "queues.run_top"), ("health", "health.run")):
        with monkeypatch.context() as patched:
            patched.setattr(f"engine.command.{runs}", raises(KeyboardInterrupt()))
            assert main([name, "--url", AWAY, "--queue", "q"]) == 130
    assert capsys.readouterr().err == ""


def test_what_commands_raise_is_one_line_and_code_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    odd = type("Odd", (BaseException,), {"__str__": lambda self: 5})
    for raised in (RecursionError("deep"), GeneratorExit(), UnicodeError("\ud800"), MemoryError(), odd(), OverflowError("a\nb")):
        monkeypatch.setattr("engine.command.queues.run_top", raises(raised))
        code, told = main(["top", "--url", AWAY, "--queue", "q"]), capsys.readouterr()
        assert (code, told.out, told.err.count("\n")) == (2, "", 1), (raised.__class__, told)
        assert told.err.startswith("ironclaim: ")
