"""Whole texts in `tests/golden`, each read and found right once: the input stands in a test, what comes of it in the text.

A plugin of the suite. `pytest --write-golden` takes over what is meant to differ; its difference is read like code.
"""

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest

FOLDER = Path(__file__).with_name("golden")
SHOWN = 20
#: One thing that was asked, and what came of it.
Told = Iterable[tuple[str, object]]
_config: list[pytest.Config] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="take over whole texts that are meant to differ")


def pytest_configure(config: pytest.Config) -> None:
    _config[:] = [config]


def same(name: str, text: str) -> None:
    """Fail with the first lines that differ from the kept text."""
    kept = FOLDER / name
    # Lines end with a line feed alone: other ends of lines are a difference.
    before = kept.read_bytes().decode().split("\n") if kept.exists() else []
    found = list(difflib.unified_diff(before, text.split("\n"), n=0, lineterm=""))[2:]
    if found and _config[0].getoption("--write-golden"):
        kept.write_text(text, "utf-8")
        return
    shown = [line[:200] for line in found[:SHOWN]]
    assert not found, "\n".join([f"tests/golden/{name} differs; is it meant to, --write-golden:", *shown])


def tells(name: str, *parts: Callable[[], Told]) -> None:
    """The same for what these parts tell."""
    lines = [f"{part.__name__}, {what}: {pformat(found, 0, 130, sort_dicts=False)}\n" for part in parts for what, found in part()]
    same(name, "".join(lines))


def answers(calls: Iterable[tuple[Callable[..., object], Iterable[Any]]]) -> Told:
    """What comes of functions, each called with these: one argument, or a tuple of them."""
    for call, given in calls:
        for one in given:
            yield f"{call.__name__} {one!r}", outcome(call, *(one if isinstance(one, tuple) else (one,)))


def outcome(call: Callable[..., object], *given: object, **more: object) -> object:
    """What a call returns, or the error that it raises."""
    try:
        return call(*given, **more)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def refusals(name: str, named: dict[str, Any], kind: type[Exception]) -> None:
    """Calls of a kept text, each with the error of this kind that it raises; one that is added is carried out, too."""
    lines = list[str]()
    for line in (FOLDER / name).read_text("utf-8").splitlines():
        if line.startswith(("$ ", "# ")):
            lines.append(line)
        if line.startswith("$ "):
            with pytest.raises(kind) as caught:
                raise AssertionError(f"it was taken: {eval(line.removeprefix('$ '), dict(named))}")
            error: Any = caught.value
            assert error.field and error.bound and str(error).startswith(f"{error.field}: ") and "\n" not in str(error), line
            lines.append(str(error))
    same(name, "\n".join([*lines, ""]))
