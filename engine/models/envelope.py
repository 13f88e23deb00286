"""The envelope of Lanes: `job:<id>`, one immutable string per job (rule 15).

All integers are big-endian; times are 48 bits, which last for 8,900 years. Every waiting job has one of these, so what most
jobs do not use has no room in it: 42 bytes, the class and the payload. `lua/lanes/modules/envelope.lua` reads the same
layout, the enqueue script writes sequence and times into the middle, and `finish_jobs.lua` overwrites the whole with a
tombstone.

| bytes | job | | bytes | tombstone |
|---|---|---|---|---|
| 1 | version, 1 | | 0 | version, 1 |
| 1 | kind, 'J' | | 1 | kind, 'T' |
| 1 | priority, 1 to 10 | | 2 | outcome: 1 finished, the place in `_OUTCOMES` of envelope_open.lua |
| 1 | flags: 1 LIFO, 2 delayed, 4 timeout, 8 options, 16 goes on without lost parents, 32 cost | | 3-10 | enqueue nonce |
| 6, 6 | sequence, enqueued_ms (by the server) | | 11-18 | fence of the last ended token, 0 where turned away |
| 0 or 6 | due_ms (by the server), where delayed | | 19 | length of its nonce |
| 8 | enqueue nonce | | 20- | its nonce; where turned away the id of that other job |
| 6 | not_after_ms | | | |
| 2 | attempts | | | |
| 1 | kind of back-off: 0 fixed, 1 exponential, 2 linear, 3 geometric, 4 custom | | | |
| 1 | crashes_max | | | |
| 4 | backoff_ms | | | |
| 4 | lengths of class, key, name (0: as the class), unique key | | | |
| | class, key, name, unique key | | | |
| 0 or 4 | timeout_ms, where there is one | | | |
| 0 or 2, n | length, then the options of `_EXTRAS` that are not the default, as JSON, where there are some | | | |
| | the payload, to the end | | | |
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, cast, get_args, get_type_hints

from engine.class_names import class_of
from engine.errors import ScriptFault
from engine.wire.operations import Backoff, Enqueue, Lease, LeasedJob, Options

VERSION = 1
#: Kinds of back-off by their number in the envelope.
_BACKOFFS: tuple[Backoff, ...] = get_args(Backoff)
_LIFO, _DELAYED, _TIMEOUT, _OPTIONS, _ALONE, _COST = 1, 2, 4, 8, 16, 32
_HEAD = struct.Struct(">BBBB")
#: Attempts, back-off, crashes_max, backoff_ms, lengths.
_COMMON = struct.Struct(">HBBIBBBB")
_TIMEOUT_MS = struct.Struct(">I")
#: Where the enqueue nonce begins, unless the job is delayed; and from there to the attempts.
_NONCE_AT = 16
_TO_COMMON = 14
#: Forms that are kept; where each job has its own (unique keys), all of them are new.
_FORMS_MAX = 1000


class Mould(NamedTuple):
    """What the envelopes of all jobs with this name and these options have in common."""

    name: str
    options: Options
    head: bytes
    common: bytes


def encode(operation: Enqueue) -> tuple[bytes, bytes]:
    """The envelope without the fields that the server sets, as the parts before and after them."""
    global _mould
    mould = _mould
    # Most jobs have the options of the one before: those that all jobs without options of their own share.
    if mould is None or operation.options is not mould.options or operation.name != mould.name:
        mould = _mould = _shape(operation.name, operation.options)
    nonce_and_time = operation.nonce + operation.not_after_ms.to_bytes(6, "big")
    return mould.head, nonce_and_time + mould.common + operation.payload


#: The last one: replaced as a whole, so that threads may share it.
_mould: Mould | None = None


def _shape(name: str, options: Options) -> Mould:
    flags = _LIFO * options.lifo + _DELAYED * (options.wait_ms != 0) + _TIMEOUT * (options.timeout_ms > 0)
    flags += _ALONE * (options.on_parent_failure == "ignore") + _COST * (options.cost > 1)
    extras = {
        field: extra.write(value) for field, extra in _EXTRAS.items() if (value := getattr(options, field)) != extra.default
    }
    class_name, key, unique = name.encode(), options.key.encode(), options.unique.encode()
    # A class that is more than the name.
    own_name = b""
    if options.route or options.target:
        own_name, class_name = class_name, class_of(name, options.route, options.target).encode()
    numbers = (options.attempts, _BACKOFFS.index(options.backoff), options.crashes_max, options.backoff_ms)
    parts = [_COMMON.pack(*numbers, len(class_name), len(key), len(own_name), len(unique)), class_name, key, own_name, unique]
    if options.timeout_ms:
        parts.append(_TIMEOUT_MS.pack(options.timeout_ms))
    if extras:
        flags += _OPTIONS
        text = json.dumps(extras, separators=(",", ":")).encode()
        parts += [len(text).to_bytes(2, "big"), text]
    return Mould(name, options, _HEAD.pack(VERSION, ord("J"), options.priority, flags), b"".join(parts))


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
        flags = raw[3]
        common_at = _NONCE_AT + _TO_COMMON + (6 if flags & _DELAYED else 0)
        at = common_at + 12
        end = at + raw[at - 4] + raw[at - 3] + raw[at - 2] + raw[at - 1] + (4 if flags & _TIMEOUT else 0)
        if flags & _OPTIONS:
            end += 2 + (raw[end] << 8 | raw[end + 1])
        # All but the sequence, the times and the nonce. An envelope that is cut off has fewer bytes than its lengths say, so
        # it is never taken for a whole one.
        alike = raw[:4] + raw[common_at:end]
        form = _forms.get(alike)
        if form is None:
            form = _form(alike, end - common_at + 4)
            if len(_forms) >= _FORMS_MAX:
                _forms.clear()
            _forms[alike] = form
        enqueued_ms = int.from_bytes(raw[10:16], "big")
        due_ms = int.from_bytes(raw[16:22], "big") if flags & _DELAYED else 0
    except (struct.error, ValueError, IndexError, RecursionError) as error:
        raise ScriptFault(f"envelope of job {lease.job}: {error}") from error
    name, class_name, lane, options = form
    return LeasedJob(lease, deadline_ms, name, class_name, lane, raw[end:], options, enqueued_ms, due_ms, *counters)


def _form(alike: bytes, length: int) -> Form:
    """What the parts of an envelope say that are alike in many; there should be so many bytes of them. Raises ValueError or
    struct.error."""
    version, kind, priority, flags = _HEAD.unpack_from(alike)
    numbers: tuple[int, ...] = _COMMON.unpack_from(alike, _HEAD.size)
    attempts, backoff, crashes_max, backoff_ms, *lengths = numbers
    if version != VERSION or kind != ord("J") or backoff >= len(_BACKOFFS):
        raise ValueError(f"version {version} kind {kind} back-off {backoff}")
    if len(alike) != length:
        raise ValueError(f"{length - len(alike)} bytes are missing")
    texts: list[str] = []
    at = _HEAD.size + _COMMON.size
    for size in lengths:
        texts.append(alike[at : at + size].decode())
        at += size
    class_name, key, name, unique = texts
    timeout_ms = 0
    if flags & _TIMEOUT:
        (timeout_ms,) = _TIMEOUT_MS.unpack_from(alike, at)
        at += _TIMEOUT_MS.size
    options = Options(
        priority=priority,
        lifo=bool(flags & _LIFO),
        attempts=attempts,
        backoff_ms=backoff_ms,
        timeout_ms=timeout_ms,
        backoff=_BACKOFFS[backoff],
        crashes_max=crashes_max,
        key=key,
        unique=unique,
        on_parent_failure="ignore" if flags & _ALONE else "bury",
        **_read_extras(alike[at + 2 :]),
    )
    if options.backoff == "custom" and not options.backoff_delays_ms:
        raise ValueError("a back-off of its own without waits")
    return Form(name or class_name, class_name, f"{class_name}/{key}" if key else class_name, options)


def _read_pairs(value: Any) -> tuple[tuple[str, str], ...]:
    """Headers and their like, as pairs. Raises ValueError for anything but an object of texts."""
    if not isinstance(value, dict):
        raise ValueError("headers that are no object")
    pairs = tuple(cast("dict[str, Any]", value).items())
    if not all(isinstance(text, str) for _, text in pairs):
        raise ValueError("a header that is no text")
    return pairs


def _read_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in cast("list[Any]", value)):
        raise ValueError("an option that is no list of texts")
    return tuple(cast("list[str]", value))


def _read_whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("an option that is no whole number")
    return value


def _read_wholes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError("an option that is no list of numbers")
    return tuple(map(_read_whole, cast("list[Any]", value)))


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("an option that is no text")
    return value


def _read_share(value: Any) -> float:
    if not isinstance(value, float) or not 0 <= value <= 1:
        raise ValueError("an option that is no number from 0 to 1")
    return value


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class Extra(NamedTuple):
    """How an option that few jobs have stands in the JSON object. `read` raises ValueError for what `write` never makes."""

    default: Any
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


#: By the type of an option: what makes JSON of its value, and what reads it.
_JSON: Mapping[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    int: (int, _read_whole),
    str: (str, _read_text),
    float | None: (float, _read_share),
    tuple[int, ...]: (list, _read_wholes),
    tuple[str, ...]: (list, _read_texts),
    tuple[tuple[str, str], ...]: (dict, _read_pairs),
}
#: Options with a place of their own in the envelope, and those that decide about the enqueue and do not travel.
_FIXED = {
    "priority",
    "lifo",
    "attempts",
    "backoff_ms",
    "timeout_ms",
    "backoff",
    "crashes_max",
    "key",
    "unique",
    "on_parent_failure",
}
_NOT_STORED = {"delay_ms", "run_at_ms", "dedup", "dedup_ms"}
_HINTS = get_type_hints(Options)
#: All other options, by their names. A target is JSON already.
_EXTRAS: dict[str, Extra] = {
    field.name: Extra(field.default, *((json.loads, _compact) if field.name == "target" else _JSON[_HINTS[field.name]]))
    for field in fields(Options)
    if field.name not in _FIXED | _NOT_STORED
}


def _read_extras(text: bytes) -> dict[str, Any]:
    """The options in this JSON; those that only a later engine knows are passed over. Raises ValueError."""
    given: Any = json.loads(text) if text else {}
    if not isinstance(given, dict):
        raise ValueError("options that are no object")
    known = cast("dict[str, Any]", given)
    return {name: _EXTRAS[name].read(value) for name, value in known.items() if name in _EXTRAS}
