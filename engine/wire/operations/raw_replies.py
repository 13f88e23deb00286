"""Reads fields of raw replies, for the `parse` of each operation. What a contract does not allow is a TypeError or ValueError."""

from __future__ import annotations

from typing import Any

_WHOLE_MAX = 2**63


def server_us(raw: Any) -> int:
    """The server's time in microseconds, with which every reply of a script begins."""
    srv_us = raw[0]
    if not isinstance(srv_us, int):
        raise TypeError("it does not begin with the server's time")
    return srv_us


def text(raw: bytes) -> str:
    """A name of the reply, such as an id. What is no UTF-8 is shown as `\\xff`: one bad entry must not hide the others."""
    return raw.decode(errors="backslashreplace")


def whole(raw: bytes | str | int) -> int:
    """A score, or a number of a state, of which other programs may have made anything; 0 for what is no number of the server's
    own 64 bits: no page, metric or sum of ours reckons with more."""
    try:
        number = int(raw)
    except ValueError:
        try:
            number = int(float(raw))
        except (ValueError, OverflowError):
            return 0
    return number if -_WHOLE_MAX <= number < _WHOLE_MAX else 0


def one_of(raw: bytes, allowed: tuple[str, ...]) -> Any:
    """A word of the reply that has to be one of `allowed`; a caller names the values of a Literal with `get_args`."""
    word = raw.decode()
    if word not in allowed:
        raise ValueError(f"{word} is none of {allowed}")
    return word
