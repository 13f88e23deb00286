"""The envelope of Lanes: `job:<id>`, one immutable string per job (rule 15).

All integers are big-endian. `lua/lanes/include/envelope_open.lua` reads the same layout, the enqueue script writes the
three fields in the middle, and `finish_jobs.lua` overwrites the whole with a tombstone.

| bytes | job | | bytes | tombstone |
|---|---|---|---|---|
| 0 | version, 1 | | 0 | version, 1 |
| 1 | kind, 'J' | | 1 | kind, 'T' |
| 2 | priority, 1 to 10 | | 2 | outcome: 1 finished, 2 discarded, 3 rejected: turned away by another job |
| 3 | flags: bit 0 LIFO | | 3-10 | enqueue nonce |
| 4-27 | sequence, enqueued_ms, due_ms (by the server) | | 11-18 | fence of the last ended token, 0 where rejected |
| 28-35 | enqueue nonce | | 19 | length of its nonce |
| 36-43 | not_after_ms | | 20- | its nonce; where rejected the id of that other job |
| 44-45 | attempts | | | |
| 46 | kind of back-off: 0 fixed, 1 exponential | | | |
| 47 | crashes_max, 0 in old ones: 3 | | | |
| 48-51 | backoff_ms | | | |
| 52-55 | timeout_ms | | | |
| 56, 57, 58, 59 | lengths of class, key, name (0: as the class), unique key | | | |
| 60- | class, key, name, unique key | | | |
| | 2 bytes length, then options as JSON (headers; later parent keys) | | | |
| | the payload, to the end | | | |
"""

from __future__ import annotations

import json
import struct
from typing import Any, cast

from engine.errors import ScriptFault
from engine.operations import Backoff, Enqueue, Lease, LeasedJob, Options

VERSION = 1
#: Kinds of back-off by their number in the envelope.
_BACKOFFS: tuple[Backoff, ...] = ("fixed", "exponential")
_CRASHES_MAX_OLD = 3
_HEAD = struct.Struct(">BBBB")
_TAIL = struct.Struct(">8sQHBBIIBBBB")
_FIXED = struct.Struct(">BBBBQQQ8sQHBBIIBBBB")


def encode(operation: Enqueue) -> tuple[bytes, bytes]:
    """The envelope without the fields that the server sets, as the parts before and after them."""
    options = operation.options
    head = _HEAD.pack(VERSION, ord("J"), options.priority, int(options.lifo))
    class_name, key, unique = operation.class_name.encode(), options.key.encode(), options.unique.encode()
    extra = json.dumps({"headers": dict(options.headers)}, separators=(",", ":")).encode() if options.headers else b""
    fixed = _TAIL.pack(
        operation.nonce,
        operation.not_after_ms,
        options.attempts,
        _BACKOFFS.index(options.backoff),
        options.crashes_max,
        options.backoff_ms,
        options.timeout_ms,
        len(class_name),
        len(key),
        0,
        len(unique),
    )
    return head, b"".join((fixed, class_name, key, unique, len(extra).to_bytes(2, "big"), extra, operation.payload))


def decode(raw: bytes, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
    """A claimed job from its envelope. `counters` are claims, failures, crashes. Raises ScriptFault for
    what the script could read and Python cannot, such as options that are no JSON."""
    try:
        version, kind, priority, flags, _, enqueued_ms, due_ms, _, _, *more = _FIXED.unpack_from(raw)
        numbers: list[int] = more
        attempts, backoff, crashes_max, backoff_ms, timeout_ms, *lengths = numbers
        if version != VERSION or kind != ord("J") or backoff >= len(_BACKOFFS):
            raise ValueError(f"version {version} kind {kind} back-off {backoff}")
        at = _FIXED.size
        texts: list[str] = []
        for length in lengths:
            texts.append(raw[at : at + length].decode())
            at += length
        extra_end = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        if extra_end > len(raw):
            raise ValueError(f"{len(raw)} bytes, the options end at {extra_end}")
        headers = _headers(raw[at + 2 : extra_end])
    except (struct.error, ValueError, RecursionError) as error:
        raise ScriptFault(f"envelope of job {lease.job}: {error}") from error
    return LeasedJob(
        lease=lease,
        deadline_ms=deadline_ms,
        class_name=texts[0],
        lane=f"{texts[0]}/{texts[1]}" if texts[1] else texts[0],
        name=texts[2] or texts[0],
        payload=raw[extra_end:],
        options=Options(
            priority=priority,
            lifo=bool(flags & 1),
            attempts=attempts,
            backoff_ms=backoff_ms,
            timeout_ms=timeout_ms,
            headers=headers,
            backoff=_BACKOFFS[backoff],
            crashes_max=crashes_max or _CRASHES_MAX_OLD,
            key=texts[1],
            unique=texts[3],
        ),
        enqueued_ms=enqueued_ms,
        due_ms=due_ms,
        claims=counters[0],
        failures=counters[1],
        crashes=counters[2],
    )


def _headers(extra: bytes) -> tuple[tuple[str, str], ...]:
    """The headers in the options. Raises ValueError for anything but an object of texts."""
    options: Any = json.loads(extra) if extra else {}
    headers: Any = cast("dict[str, Any]", options).get("headers", {}) if isinstance(options, dict) else None
    if not isinstance(headers, dict):
        raise ValueError("options without headers that are an object")
    pairs = tuple(cast("dict[str, Any]", headers).items())
    if not all(isinstance(value, str) for _, value in pairs):
        raise ValueError("a header that is no text")
    return pairs
