"""JSON for who looks at what is stored: whatever stands there, the answer is JSON in UTF-8 that every reader takes.

What JSON cannot say is said as a text: `NaN`, a number beyond a double, a character without UTF-8 as `\\ud800`, a value that is
nested too deep by its type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

#: Lists and objects in each other. Readers of other languages take so many by default.
NESTING_MAX = 100
#: Digits of a whole number: Python writes no more than 4,300, and few readers take as many.
_DIGITS_MAX = 4_000
#: Ends of lines for Unicode, and so for readers of event streams such as `iter_lines` of httpx; for JSON they are any character.
_BREAKS = {at: f"\\u{at:04x}" for at in (0x85, 0x2028, 0x2029)}
_EPOCH = datetime.fromtimestamp(0, UTC)
_FIRST, _LAST = (end.replace(tzinfo=UTC) for end in (datetime.min, datetime.max))
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_to_lines = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_text(value: object, *, spaced: bool = False) -> str:
    """A value as JSON that UTF-8 can encode, in one line whoever reads it by lines; `spaced`: with a space after each comma and
    colon."""
    write = _to_lines if spaced else _to_json
    try:
        text = write(value)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        text = write(_sayable(value, 0))
    return text if text.isascii() else text.translate(_BREAKS)


def utf8(text: str) -> bytes:
    """A text in UTF-8; a lone surrogate, which has none, as `\\ud800`."""
    return text.encode(errors="backslashreplace")


def utc(ms: int) -> datetime:
    """A time of the server as a calendar has it; one beyond the year 9999 or before the year 1 is the end of that calendar."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return _LAST if ms > 0 else _FIRST


def _sayable(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return utf8(value).decode()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 10**_DIGITS_MAX else f"a whole number of {value.bit_length()} bits"
    if isinstance(value, float):
        return value if math.isfinite(value) else {"inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), "NaN")
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if not isinstance(value, Mapping | list | tuple) or depth >= NESTING_MAX:
        return f"a {type(cast('object', value)).__name__} that JSON cannot say"
    if isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        return {str(_sayable(key, NESTING_MAX)): _sayable(member, depth + 1) for key, member in members.items()}
    return [_sayable(item, depth + 1) for item in cast("Sequence[object]", value)]
