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
from typing import Any, NamedTuple, cast

from engine.errors import ScriptFault
from engine.operations import Backoff, Enqueue, Lease, LeasedJob, Options

VERSION = 1
#: Kinds of back-off by their number in the envelope.
_BACKOFFS: tuple[Backoff, ...] = ("fixed", "exponential")
_CRASHES_MAX_OLD = 3
_HEAD = struct.Struct(">BBBB")
_TAIL = struct.Struct(">8sQHBBIIBBBB")
_TIMES = struct.Struct(">QQ")
#: Forms that are kept; where each job has its own (unique keys), all of them are new.
_FORMS_MAX = 1000
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


class Form(NamedTuple):
    """What many jobs of a queue have in common, byte for byte: read once, and known again by its bytes."""

    name: str
    class_name: str
    lane: str
    options: Options


_forms: dict[bytes, Form] = {}


def decode(raw: bytes, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
    """A claimed job from its envelope. `counters` are claims, failures, crashes. Raises ScriptFault for
    what the script could read and Python cannot, such as options that are no JSON."""
    try:
        at = _FIXED.size + raw[56] + raw[57] + raw[58] + raw[59]
        end = at + 2 + (raw[at] << 8 | raw[at + 1])
        # All but the sequence, the times and the nonce. An envelope that is cut off has fewer bytes than its lengths say, so
        # it is never taken for a whole one.
        alike = raw[:4] + raw[44:end]
        form = _forms.get(alike)
        if form is None:
            form = _form(raw, at, end)
            if len(_forms) >= _FORMS_MAX:
                _forms.clear()
            _forms[alike] = form
        enqueued_ms, due_ms = _TIMES.unpack_from(raw, 12)
    except (struct.error, ValueError, IndexError, RecursionError) as error:
        raise ScriptFault(f"envelope of job {lease.job}: {error}") from error
    name, class_name, lane, options = form
    return LeasedJob(lease, deadline_ms, name, class_name, lane, raw[end:], options, enqueued_ms, due_ms, *counters)


def _form(raw: bytes, at: int, end: int) -> Form:
    """The parts of an envelope whose options lie between `at` and `end`. Raises ValueError or struct.error."""
    version, kind, priority, flags, _, _, _, _, _, *more = _FIXED.unpack_from(raw)
    numbers: list[int] = more
    attempts, backoff, crashes_max, backoff_ms, timeout_ms, *lengths = numbers
    if version != VERSION or kind != ord("J") or backoff >= len(_BACKOFFS):
        raise ValueError(f"version {version} kind {kind} back-off {backoff}")
    if end > len(raw):
        raise ValueError(f"{len(raw)} bytes, the options end at {end}")
    texts: list[str] = []
    start = _FIXED.size
    for length in lengths:
        texts.append(raw[start : start + length].decode())
        start += length
    class_name, key, name, unique = texts
    options = Options(
        priority=priority,
        lifo=bool(flags & 1),
        attempts=attempts,
        backoff_ms=backoff_ms,
        timeout_ms=timeout_ms,
        headers=_headers(raw[at + 2 : end]),
        backoff=_BACKOFFS[backoff],
        crashes_max=crashes_max or _CRASHES_MAX_OLD,
        key=key,
        unique=unique,
    )
    return Form(name or class_name, class_name, f"{class_name}/{key}" if key else class_name, options)


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
