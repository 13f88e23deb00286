"""The fields of `run:<id>` of Lanes: what changes while a job runs, as `lua/lanes/modules/run.lua` writes it.

The string begins with the fence, a space, the nonce, a space, the lengths of seal and owner in a byte each, and these two. Behind
them stand the other fields that are not the default, each with its name, a space, its length, a colon and its value.
"""

from __future__ import annotations


def read(raw: bytes) -> dict[str, bytes]:
    """The fields by name. Raises ValueError for other bytes."""
    fence, nonce, rest = raw.split(b" ", 2)
    owner_at = 2 + rest[0] if rest else 2
    at = owner_at + rest[1] if len(rest) > 1 else len(rest) + 1
    fields = {"nonce": nonce, "seal": rest[2:owner_at], "owner": rest[owner_at:at]}
    if fence != b"0":
        fields |= {"fence": fence, "claims": b"1"}
    while at < len(rest):
        name, _, size = rest[at : at + 50].partition(b":")[0].partition(b" ")
        value_at = at + len(name) + len(size) + 2
        # Raises ValueError for what is no number.
        at = value_at + int(size)
        fields[name.decode()] = rest[value_at:at]
    if at > len(rest) or not fence.isdigit():
        raise ValueError(f"no fields of a run: {raw[:50]!r}")
    return {name: value for name, value in fields.items() if value}
