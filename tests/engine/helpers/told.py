"""What is compared with a text that was read and found right once: inputs stand in the test, what comes of them in the text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from pprint import pformat
from typing import Any

#: One thing that was asked, and what came of it.
Told = Iterable[tuple[str, object]]


def of(call: Callable[..., object], *given: Any, **more: Any) -> object:
    """What a call returns, or the error that it raises."""
    try:
        return call(*given, **more)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def same(file: Path, *parts: Callable[[], Told]) -> None:
    """Fails where what these parts tell is not the text of the file. A change that is meant is written by GOLDEN=1."""
    lines = [f"{part.__name__}, {what}: {pformat(found, 0, 130, sort_dicts=False)}\n" for part in parts for what, found in part()]
    same_text(file, "".join(lines))


def same_text(file: Path, text: str) -> None:
    """The same for a text."""
    if os.environ.get("GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{file.name}: a change that is meant is written by GOLDEN=1"
