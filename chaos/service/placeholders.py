"""What a file says in braces: `{run}`, the folder of the run; `{name}`, that of the process; `{port}`, that of an app.

A text that has braces of its own doubles them: `{{message}}` is told to a process as `{message}`. Braces of a shell's variable,
such as `${HOME}`, and what is no name, such as `{}` or `{"a": 1}`, stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

RUN, PROCESS, PORT = "run", "name", "port"

_BRACES = re.compile(r"(?<!\$)\{(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))\}")


def filled(text: str, known: Mapping[str, str]) -> str:
    """The text with these values in it, and with doubled braces as single ones."""

    def value(found: re.Match[str]) -> str:
        return f"{{{found[1]}}}" if found[1] else known.get(found[2], found[0])

    return _BRACES.sub(value, text)


def unknown(text: str, known: Iterable[str]) -> str:
    """The first name in braces that is none of these; empty where there is none."""
    return next((found[2] for found in _BRACES.finditer(text) if found[2] and found[2] not in known), "")


def between(text: str) -> Iterator[str]:
    """What a text says beside its placeholders."""
    # No variable of a process and no word of a command has a NUL.
    yield from filled(text, dict.fromkeys((RUN, PROCESS, PORT), "\0")).split("\0")
