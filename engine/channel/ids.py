"""Ids of channels, subscribers and messages."""

from __future__ import annotations

import re

from engine import validate
from engine.errors import Malformed

CHARACTERS_MAX = 63
#: As a regular expression.
PATTERN = f"[0-9a-z][0-9a-z_-]{{0,{CHARACTERS_MAX - 1}}}"
_ID = re.compile(PATTERN)


def check(field: str, value: object) -> str:
    """The id of a channel, a subscriber or a message. Raises Malformed."""
    text = validate.plain_text(value)
    if text is None or _ID.fullmatch(text) is None:
        raise Malformed(field, value, f"an id: 1 to {CHARACTERS_MAX} of 0-9 a-z _ -, the first one a digit or a letter")
    return text
