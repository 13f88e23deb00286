"""Checks of arguments, before anything is sent. What only the server can know, it checks."""

from __future__ import annotations

import json
from datetime import timedelta
from urllib.parse import quote, urlsplit

from ironclaim_client.errors import InvalidArgument

#: The longest that one request may wait on the server, and that a caller may wait in all: 60 s and 24 hours.
POLL_MS_MAX = 60_000
WAIT_MS_MAX = 86_400_000


def address(url: object) -> str:
    """The address of the server without a slash at its end."""
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument("url", url, "an address that begins with http:// or https://")
    if parts.query or parts.fragment or parts.username is not None:
        raise InvalidArgument("url", url, "an address without user, query and fragment")
    return parts.geturl().rstrip("/")


def named(field: str, value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InvalidArgument(field, value, "a text that is not empty")
    return value


def segment(field: str, value: object) -> str:
    """A name as one segment of a path. `.` and `..` would lead to another path, however they are written."""
    if named(field, value) in (".", ".."):
        raise InvalidArgument(field, value, "a text that is not . or ..")
    return quote(named(field, value), safe="")


def header(field: str, value: object) -> str:
    """A text that a header can carry."""
    if (
        not isinstance(value, str)
        or not value.isascii()
        or not value.isprintable()
        or value != value.strip()
        or not value
    ):
        raise InvalidArgument(field, value, "printable ASCII without spaces at its ends")
    return value


def whole(field: str, value: object, least: int, most: int) -> int:
    """A whole number in [least, most]."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(field, value, f"a whole number from {least} to {most}")
    return value


def duration_ms(field: str, value: object, most: int) -> int:
    """A length of time in ms, also as a timedelta, which is rounded up."""
    if isinstance(value, timedelta):
        value = -(-value // timedelta(milliseconds=1))
    return whole(field, value, 0, most)


def json_bytes(field: str, value: object) -> bytes:
    """A value as JSON."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(field, value, f"a JSON value ({error})") from error
