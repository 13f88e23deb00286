"""The output of commands: a table for people, or JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from engine.sayable import json_text

_CELL_CHARACTERS_MAX = 80


def show(rows: Sequence[Mapping[str, Any]], *, as_json: bool, nothing: str = "none") -> None:
    """Rows with the same fields: a JSON array, or a table with a line for each; `nothing` where there are none."""
    if as_json:
        say(json_text(list(rows), spaced=True))
    elif rows:
        say(table(rows))
    else:
        print(nothing)


def show_one(fields: Mapping[str, Any], *, as_json: bool) -> None:
    """One thing: a JSON object, or a line for each field."""
    if as_json:
        say(json_text(dict(fields), spaced=True))
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        lines = _text(value).splitlines() or [""]
        say(f"{name:<{width}}  " + f"\n{'':<{width}}  ".join(lines))


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Columns as wide as their widest cell, numbers to the right."""
    names = list(rows[0])
    cells = [[_cell(row[name]) for name in names] for row in rows]
    widths = [max(len(name), *(len(row[at]) for row in cells)) for at, name in enumerate(names)]
    right = [all(isinstance(row[name], int | float) for row in rows) for name in names]

    def line(texts: Sequence[str]) -> str:
        padded = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(texts, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join(map(line, [names, *cells]))


def instant(ms: int) -> str | None:
    """A server time as ISO 8601 in UTC; None for 0, which is none."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds") if ms else None


def say(text: str) -> None:
    """Text on stdout; a character that its encoding lacks is escaped: what is stored must not end a command."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def print_error(message: str) -> None:
    """One line on stderr."""
    print(f"ironclaim: {message}", file=sys.stderr)


def _cell(value: Any) -> str:
    text = " ".join(_text(value).split())
    return text if len(text) <= _CELL_CHARACTERS_MAX else text[: _CELL_CHARACTERS_MAX - 3] + "..."


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json_text(value, spaced=True) if isinstance(value, dict | list) else str(value)
