"""Reads fields of raw replies, for the `parse` of each operation. What a contract does not allow is a TypeError or ValueError."""

from __future__ import annotations

from typing import Any


def server_us(raw: Any) -> int:
    """The server's time in microseconds, with which every reply of a script begins."""
    srv_us = raw[0]
    if not isinstance(srv_us, int):
        raise TypeError("it does not begin with the server's time")
    return srv_us


def one_of(raw: bytes, allowed: tuple[str, ...]) -> Any:
    """A word of the reply that has to be one of `allowed`; a caller names the values of a Literal with `get_args`."""
    word = raw.decode()
    if word not in allowed:
        raise ValueError(f"{word} is none of {allowed}")
    return word
