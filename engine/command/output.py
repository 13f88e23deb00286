"""The output of commands: a table for people, or JSON for programs."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from engine import errors
from engine.errors import redacted

_CELL_CHARACTERS_MAX = 80
#: How long it takes until progress is shown, and how often then.
_SILENT_S, _EVERY_S = 2.0, 1.0


def show(rows: Sequence[Mapping[str, Any]], *, as_json: bool, nothing: str = "none") -> None:
    """Rows with the same fields: a JSON array, or a table with a line for each; `nothing` where there are
    none."""
    if as_json:
        print(json_text(list(rows)))
    elif rows:
        print(table(rows))
    else:
        print(nothing)


def show_one(fields: Mapping[str, Any], *, as_json: bool) -> None:
    """One thing: a JSON object, or a line for each field."""
    if as_json:
        print(json_text(dict(fields)))
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        lines = _text(value).splitlines() or [""]
        print(f"{name:<{width}}  " + f"\n{'':<{width}}  ".join(lines))


def tell(done: str, what: object, options: argparse.Namespace, **more: object) -> None:
    """What a command has done to a queue: `paused: send, queue: mail`."""
    show_one({done: what, "queue": options.queue, **more}, as_json=options.json)


def renamed(row: Mapping[str, Any], **former: str) -> dict[str, Any]:
    """A row for programs, with the names that fields have over HTTP beside the former ones, which stay for
    one release: `id="job"`."""
    return {name: row[before] for name, before in former.items()} | dict(row)


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
    return errors.utc(ms).isoformat(timespec="milliseconds") if ms else None


def print_error(message: str) -> None:
    """One line on stderr, without passwords."""
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]
        print("ironclaim: " + " ".join(redacted(message).split("\n")).strip(), file=sys.stderr)


class Progress:
    """Shows how far it has come, on stderr, when it takes longer than two seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next_s = time.monotonic() + _SILENT_S

    def __call__(self, keys: int, size: int) -> None:
        """So many keys and bytes are copied."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _EVERY_S
            print(f"{self._what}: {keys:,} keys, {size / (1 << 20):,.1f} MiB", file=sys.stderr, flush=True)


def prepare_output() -> None:
    """Print as escapes what a terminal has no characters for, and what UTF-8 cannot say: neither is a
    failure."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def finish_output() -> None:
    """Print what is buffered now, and have nothing left that the interpreter could fail to print when it
    ends. Raises OSError."""
    out: Any = sys.stdout
    if out is None:
        return
    try:
        out.flush()
    except OSError:
        if isinstance(out, io.TextIOWrapper):
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        raise


def json_text(value: Any) -> str:
    """JSON that this terminal can print: `\\u` escapes where its characters are not those of UTF-8."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = errors.json_text(value, spaced=True)
    if encoding.lower().replace("-", "") == "utf8":
        return text
    # Other characters than those of ASCII stand in texts alone.
    return re.sub("[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text)


def _cell(value: Any) -> str:
    text = " ".join(_text(value).split())
    return text if len(text) <= _CELL_CHARACTERS_MAX else text[: _CELL_CHARACTERS_MAX - 3] + "..."


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return _printable(value if isinstance(value, str) else errors.json_text(value, spaced=True))


def _printable(text: str) -> str:
    """A text without characters that a terminal obeys: names of old keyspaces may hold them."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode() for one in text
    )
