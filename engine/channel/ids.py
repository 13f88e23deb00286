"""Ids of channels, subscribers and messages."""

from __future__ import annotations

import re

from engine.errors import Malformed

CHARACTERS_MAX = 63
#: As a regular expression.
PATTERN = f"[0-9a-z][0-9a-z_-]{{0,{CHARACTERS_MAX - 1}}}"
_ID = re.compile(PATTERN)


def check(field: str, value: object) -> str:
    """The id of a channel, a subscriber or a message. Raises Malformed."""
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise Malformed(field, value, f"an id: 1 to {CHARACTERS_MAX} of 0-9 a-z _ -, the first one a digit or a letter")
    return value
