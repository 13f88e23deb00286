"""Ids for jobs without one: 72 random bits as 12 characters.

So many bits that no two of the jobs that a queue knows at a time have one id: with a million of them, the next one meets another
with a chance of 1 to 5 * 10^15. So few characters because a waiting job stores its id twice.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Iterator

_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_BYTES, _CHARS = 9, 12


def random_id() -> str:
    """Return one id."""
    return binascii.b2a_base64(os.urandom(_BYTES), newline=False).translate(_URL_SAFE).decode()


def random_ids() -> Iterator[str]:
    """Yield ids for a bulk; randomness is read for 64 ids at a time."""
    while True:
        text = binascii.b2a_base64(os.urandom(64 * _BYTES), newline=False).translate(_URL_SAFE).decode()
        for at in range(0, len(text), _CHARS):
            yield text[at : at + _CHARS]
