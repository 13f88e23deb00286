"""Receipts: what a subscriber gets with its messages and hands in to acknowledge them and all before them. Two layers, byte for
byte as the original has them (wire-models 2.1 and 6.1).

Inside, one storage's: `{"clk":1,"xs":"2Ymqbw"}`, the clock of the last message and a checksum that binds it to channel and
subscriber. Outside, what users see: base64 of `{"<storage>":"<inside>"}`, also with one storage. The checksum is no signature: it
finds what was cut, changed or mixed up, not what was forged.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, cast

from engine.channel import clock
from engine.errors import Malformed

#: Longer than a receipt of ten storages.
_CHARS_MAX = 4_096
_BOUND = "a receipt that a fetch of this channel and subscriber gave"


def checksum(channel: str, subscriber: str, at: int) -> str:
    """The checksum of a clock: unpadded base64 of a big-endian crc32."""
    text = b"dsps.storage.redis\0" + channel.encode() + b"\0" + subscriber.encode() + b"\0" + struct.pack(">q", at)
    return base64.b64encode(struct.pack(">I", zlib.crc32(text))).decode().rstrip("=")


def inner(channel: str, subscriber: str, at: int) -> str:
    """One storage's receipt of a clock."""
    return f'{{"clk":{at},"xs":"{checksum(channel, subscriber, at)}"}}'


def read_inner(channel: str, subscriber: str, text: object) -> int:
    """The clock of one storage's receipt. Raises Malformed for what is none, or another channel's or subscriber's."""
    found = _json(text, text)
    at, given = found.get("clk"), found.get("xs")
    if isinstance(at, bool) or not isinstance(at, int) or not clock.CLOCK_MIN <= at <= clock.CLOCK_MAX:
        raise Malformed("receipt", text, f"{_BOUND}, whose clk is a whole number from {clock.CLOCK_MIN} to {clock.CLOCK_MAX}")
    if given != checksum(channel, subscriber, at):
        raise Malformed("receipt", text, f"{_BOUND}: its checksum is of something else")
    return at


def outer(parts: Mapping[str, str]) -> str:
    """What users see: storage -> its receipt, in the order of the storages' names."""
    text = json.dumps(dict(sorted(parts.items())), separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(text.encode()).decode()


def read_outer(value: object) -> dict[str, str]:
    """Storage -> its receipt. Raises Malformed."""
    if not isinstance(value, str) or not 0 < len(value) <= _CHARS_MAX:
        raise Malformed("receipt", value, f"{_BOUND}: text of 1 to {_CHARS_MAX} characters")
    try:
        text = base64.b64decode(value.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise Malformed("receipt", value, f"{_BOUND}: base64 ({error})") from error
    found = _json(text, value)
    if not all(isinstance(part, str) for part in found.values()):
        raise Malformed("receipt", value, f"{_BOUND}: texts by storage")
    return cast("dict[str, str]", found)


def _json(text: object, shown: object) -> dict[str, Any]:
    try:
        found: object = json.loads(text) if isinstance(text, str | bytes) else None
    except (ValueError, RecursionError) as error:
        raise Malformed("receipt", shown, f"{_BOUND}: JSON ({error})") from error
    if not isinstance(found, dict):
        raise Malformed("receipt", shown, f"{_BOUND}: a JSON object")
    return cast("dict[str, Any]", found)
