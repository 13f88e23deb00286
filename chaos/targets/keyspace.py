"""Which jobs stand in the keys of a server, whatever the format of the queue: the payload of each job carries a mark.

Values are looked through as they are, unpacked where they are compressed with zlib, and with their Base64 texts decoded.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from typing import Any

import redis

MARK = re.compile(rb"job-mark:(\d+):")

#: Compressed data begins with one of these; a text of Base64 is at least 24 characters long.
ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
BASE64 = re.compile(rb"[A-Za-z0-9+/]{24,}={0,2}")


def held(url: str) -> set[str]:
    """The jobs whose payload stands in some key."""
    with redis.Redis.from_url(url) as client:
        return {job for key in client.scan_iter(count=1_000) for value in values(client, key) for job in marked(value)}


def marked(value: bytes) -> set[str]:
    """The jobs whose marks are in a value."""
    found = {mark.decode() for mark in MARK.findall(value)}
    for place in (place for start in ZLIB for place in (value.find(start),) if place >= 0):
        try:
            found |= {mark.decode() for mark in MARK.findall(zlib.decompressobj().decompress(value[place:]))}
        except zlib.error:
            continue
    for text in BASE64.findall(value):
        try:
            found |= {mark.decode() for mark in MARK.findall(base64.b64decode(text[: len(text) // 4 * 4]))}
        except binascii.Error:
            continue
    return found


def values(client: Any, key: bytes) -> Iterator[bytes]:
    """All values that a key holds; none where it is gone meanwhile."""
    kind = client.type(key)
    if kind == b"string":
        yield client.get(key) or b""
    elif kind == b"hash":
        yield from client.hvals(key)
    elif kind == b"list":
        yield from client.lrange(key, 0, -1)
    elif kind == b"set":
        yield from client.sscan_iter(key)
    elif kind == b"zset":
        yield from (member for member, _ in client.zscan_iter(key))
    elif kind == b"stream":
        for _, fields in client.xrange(key):
            yield from fields.values()
