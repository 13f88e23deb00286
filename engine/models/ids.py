"""Ids for jobs without one: 120 random bits as 20 characters."""

from __future__ import annotations

import binascii
import os
from collections.abc import Iterator

_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def random_id() -> str:
    """Return one id."""
    return binascii.b2a_base64(os.urandom(15), newline=False).translate(_URL_SAFE).decode()


def random_ids() -> Iterator[str]:
    """Yield ids for a bulk; randomness is read for 64 ids at a time."""
    while True:
        text = binascii.b2a_base64(os.urandom(64 * 15), newline=False).translate(_URL_SAFE).decode()
        for at in range(0, len(text), 20):
            yield text[at : at + 20]
