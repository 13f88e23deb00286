"""Fields of bytes packed into one string, for script arguments whose parts only the model knows.

For each field its length (4 bytes, big-endian) and its bytes. `lua/foreign/modules/format.lua` unpacks them.
"""

from __future__ import annotations


def pack(*fields: bytes | str | int) -> bytes:
    """Return the fields as one string; texts as UTF-8, numbers as decimals."""
    parts: list[bytes] = []
    for given in fields:
        field = given if isinstance(given, bytes) else str(given).encode()
        parts += (len(field).to_bytes(4, "big"), field)
    return b"".join(parts)


def unpack(packed: bytes) -> list[bytes]:
    """Return the fields of a packed string. Raises ValueError for a truncated one."""
    found: list[bytes] = []
    at = 0
    while at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        if end > len(packed):
            raise ValueError(f"{end - len(packed)} bytes are missing")
        found.append(packed[at + 4 : end])
        at = end
    return found
