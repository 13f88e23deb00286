"""The envelope of Lanes: `job:<id>`, one immutable string per job (rule 15).

All integers are big-endian. Every waiting job has one of these, so what most jobs do not use has no field in
it: a job without options of its own takes 11 bytes, the class and the payload.
`lua/core/modules/envelope.lua` reads and writes the same layout. The enqueue script puts sequence and times
into the middle, and the scripts that end a job overwrite it with a tombstone.

| bytes | job |
|---|---|
| 1 | 160, or 176 where flags follow, plus the priority, 1 to 10 |
| 0 or 1 | flags: 1 LIFO, 2 delayed, 4 settings, 8 options, 16 lost parents, 32 cost, 64 nonce, 128 wide |
| 9 | not wide: the sequence in 30 bits and enqueued_ms in 42 (by the server) |
| 18 | wide: sequence, enqueued_ms and not_after_ms (by the server) |
| 0 or 6 | due_ms (by the server), where delayed |
| 0 or 8 | enqueue nonce; an id that was drawn for its enqueue needs none (rule 3) |
| 0 or 15 | unless all are defaults: the settings; lengths of key, name (0: as the class), unique key |
| 1 | length of the class |
| | class, key, name, unique key |
| 0 or 2, n | length, then the options of `_EXTRAS` that are not the default, as JSON, where there are some |
| | the payload, to the end |

| bytes | tombstone |
|---|---|
| 1 | 160 |
| 1 | outcome: 1 finished, by `names` of tombstone_open; plus 16 with a nonce, 32 with text last |
| 0 or 8 | enqueue nonce |
| 7 | fence of the last ended token, 0 where the enqueue was turned away |
| | its nonce: the incarnation in 8 bytes, then the counter; what is no nonce of a claim is text |
| | where the enqueue was turned away: the id of that other job, as text |

An envelope is wide when its sequence or its time no longer fits the 9 bytes (2^30 jobs, the year 2109), or
when its enqueue may arrive later than 10 s from now. Otherwise `not_after_ms` counts as 10 s after the
enqueue, which is never too early (rule 3)."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple, cast, get_args, get_type_hints

from engine.errors import ScriptFault
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Backoff, Enqueue, Lease, Options, Parent, class_of
from engine.options import PLAIN

#: The first byte of a job, before the priority is added: without and with a byte of flags behind it.
_PLAIN, _FLAGGED = 160, 176
_PRIORITIES = range(1, 11)
#: Kinds of back-off by their number in the envelope: 0 fixed and so on.
_BACKOFFS: tuple[Backoff, ...] = get_args(Backoff)
_LIFO, _DELAYED, _SETTINGS, _OPTIONS, _ALONE, _COST, _NONCE, _WIDE = (1 << bit for bit in range(8))
#: Sequence and enqueued_ms, unless the envelope is wide.
NUMBERS_BYTES = 9
_TIME_MASK = (1 << 42) - 1
#: The settings that are numbers, in their order; behind them the lengths of key, name and unique key.
_NUMBERS = ("attempts", "backoff", "crashes_max", "backoff_ms", "timeout_ms")
_numbers_of = attrgetter(*_NUMBERS)
_SETTINGS_FIELDS = struct.Struct(">HBBIIBBB")
#: A byte holds the length of a seal, which is the unique key and up to 15 bytes more
#: (`lua/core/modules/run.lua`).
_UNIQUE_BYTES_MAX = 240
#: Forms that are kept; where each job has its own (unique keys), all of them are new.
_FORMS_MAX = 1000


class HeaderTemplate(NamedTuple):
    """What the envelopes of all jobs with this name and these options have in common."""

    name: str
    options: Options
    has_nonce: bool
    head: bytes
    common: bytes


def encode(operation: Enqueue) -> tuple[bytes, bytes]:
    """The envelope without the fields that the server sets, as the parts before and after them."""
    global _header_template
    template, nonce = _header_template, operation.nonce
    # Most jobs have the options of the one before: those that all jobs without options of their own share.
    same_as_last = (
        template is not None and operation.options is template.options and operation.name == template.name
    )
    if template is None or not same_as_last or template.has_nonce != (nonce != b""):
        template = _header_template = _shape(operation.name, operation.options, nonce != b"")
    return template.head, nonce + template.common + operation.payload


#: The last one: replaced as a whole, so that threads may share it.
_header_template: HeaderTemplate | None = None


def _shape(name: str, options: Options, has_nonce: bool) -> HeaderTemplate:
    flags = _LIFO * options.lifo + _DELAYED * (options.wait_ms != 0) + _NONCE * has_nonce
    flags += _ALONE * (options.on_parent_failure == "ignore") + _COST * (options.cost > 1)
    extras = {
        field: extra.write(value)
        for field, extra in _EXTRAS.items()
        if (value := getattr(options, field)) != extra.default
    }
    names = [getattr(parent, "name", "") for parent in options.needs]
    if any(names):
        extras["parent_names"] = names
    class_name, key, unique = name.encode(), options.key.encode(), options.unique.encode()
    # A class that is more than the name.
    own_name = b""
    if options.route or options.target:
        own_name, class_name = class_name, class_of(name, options.route, options.target).encode()
    numbers = _numbers(options)
    parts = [bytes((len(class_name),)), class_name, key, own_name, unique]
    if numbers != _numbers(PLAIN) or key or own_name or unique:
        flags += _SETTINGS
        parts.insert(0, _SETTINGS_FIELDS.pack(*numbers, len(key), len(own_name), len(unique)))
    if extras:
        flags += _OPTIONS
        text = json.dumps(extras, separators=(",", ":")).encode()
        parts += [len(text).to_bytes(2, "big"), text]
    head = bytes((_FLAGGED + options.priority, flags)) if flags else bytes((_PLAIN + options.priority,))
    return HeaderTemplate(name, options, has_nonce, head, b"".join(parts))


def _numbers(options: Options) -> tuple[int, ...]:
    """The settings as numbers, in their order: a kind of back-off by its place."""
    attempts, backoff, *others = _numbers_of(options)
    return attempts, _BACKOFFS.index(backoff), *others


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
        if raw[0] < _FLAGGED:
            # What most jobs have: no flags, no settings.
            due_ms, at = 0, 1 + NUMBERS_BYTES
            end = at + 1 + raw[at]
            form_bytes = raw[:1] + raw[at:end]
            enqueued_ms = int.from_bytes(raw[1:at], "big") & _TIME_MASK
        else:
            flags = raw[1]
            at, due_ms = 2 + NUMBERS_BYTES, 0
            enqueued_ms = int.from_bytes(raw[2:at], "big") & _TIME_MASK
            if flags & _WIDE:
                at, enqueued_ms = 20, int.from_bytes(raw[8:14], "big")
            if flags & _DELAYED:
                at, due_ms = at + 6, int.from_bytes(raw[at : at + 6], "big")
            if flags & _NONCE:
                at += 8
            end = at + 1 + raw[at]
            if flags & _SETTINGS:
                end = at + 16 + raw[at + 12] + raw[at + 13] + raw[at + 14] + raw[at + 15]
            if flags & _OPTIONS:
                end += 2 + (raw[end] << 8 | raw[end + 1])
            form_bytes = raw[:2] + raw[at:end]
        # All but the sequence, the times and the nonce. An envelope that is cut off has fewer bytes than its
        # lengths say, so it is never taken for a whole one.
        form = _forms.get(form_bytes)
        if form is None:
            if len(raw) < end:
                raise ValueError(f"{end - len(raw)} bytes are missing")
            form = _form(form_bytes)
            if len(_forms) >= _FORMS_MAX:
                _forms.clear()
            _forms[form_bytes] = form
    except (struct.error, ValueError, IndexError, RecursionError) as error:
        raise ScriptFault(f"envelope of job {lease.job}: {error}") from error
    name, class_name, lane, options = form
    return LeasedJob(
        lease, deadline_ms, name, class_name, lane, raw[end:], options, enqueued_ms, due_ms, *counters
    )


def _form(form_bytes: bytes) -> Form:
    """What the parts of an envelope say that are alike in many. Raises ValueError or struct.error."""
    flagged = form_bytes[0] >= _FLAGGED
    priority = form_bytes[0] - (_FLAGGED if flagged else _PLAIN)
    if priority not in _PRIORITIES:
        raise ValueError(f"{form_bytes[0]} is no first byte of a job")
    flags, at = (form_bytes[1], 2) if flagged else (0, 1)
    numbers, lengths = _numbers(PLAIN), [0, 0, 0]
    if flags & _SETTINGS:
        *found, key_bytes, name_bytes, unique_bytes = cast(
            "tuple[int, ...]", _SETTINGS_FIELDS.unpack_from(form_bytes, at)
        )
        numbers, lengths = tuple(found), [key_bytes, name_bytes, unique_bytes]
        at += _SETTINGS_FIELDS.size
    if lengths[2] > _UNIQUE_BYTES_MAX:
        raise ValueError(f"a unique key of {lengths[2]} bytes")
    settings: dict[str, Any] = dict(zip(_NUMBERS, numbers, strict=True))
    if settings["backoff"] >= len(_BACKOFFS):
        raise ValueError(f"back-off {settings['backoff']}")
    settings["backoff"] = _BACKOFFS[settings["backoff"]]
    texts: list[str] = []
    lengths.insert(0, form_bytes[at])
    at += 1
    for size in lengths:
        texts.append(form_bytes[at : at + size].decode())
        at += size
    class_name, key, name, unique = texts
    options = Options(
        priority=priority,
        lifo=bool(flags & _LIFO),
        key=key,
        unique=unique,
        on_parent_failure="ignore" if flags & _ALONE else "bury",
        **settings,
        **_read_extras(form_bytes[at + 2 :]),
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
    """How an option that few jobs have stands in the JSON object. `read` raises ValueError for what `write`
    never makes."""

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
#: Options with a place of their own in the envelope, and those that decide about the enqueue and do not
#: travel.
_FIXED = {*_NUMBERS, "priority", "lifo", "key", "unique", "on_parent_failure"}
_NOT_STORED = {"delay_ms", "run_at_ms", "dedup", "dedup_ms", "on_success", "on_failure"}
_HINTS = get_type_hints(Options)
#: All other options, by their names. A target is JSON already.
_EXTRAS: dict[str, Extra] = {
    field.name: Extra(
        field.default, *((json.loads, _compact) if field.name == "target" else _JSON[_HINTS[field.name]])
    )
    for field in fields(Options)
    if field.name not in _FIXED | _NOT_STORED
}


def _read_extras(text: bytes) -> dict[str, Any]:
    """The options in this JSON; those that only a later engine knows are passed over. Raises ValueError."""
    given: Any = json.loads(text) if text else {}
    if not isinstance(given, dict):
        raise ValueError("options that are no object")
    known = cast("dict[str, Any]", given)
    found = {name: _EXTRAS[name].read(value) for name, value in known.items() if name in _EXTRAS}
    if "parent_names" in known:
        pairs = zip(found.get("needs", ()), _read_texts(known["parent_names"]), strict=True)
        found["needs"] = tuple(Parent.named(id, name) if name else id for id, name in pairs)
    return found


def sealed(job: Enqueue) -> bytes:
    """The envelope of a schedule's jobs: a tick fills in sequence and time, as an enqueue does."""
    head, tail = encode(job)
    return head + bytes(NUMBERS_BYTES) + tail


# -- The fields of `run:<id>` of Lanes: what changes while a job runs, as `lua/core/modules/run.lua`
# writes it.
#
# The string begins with the fence, a space, the nonce, a space, the lengths of seal and owner in a byte each,
# and these two. Behind them stand the other fields that are not the default, each with its name, a space, its
# length, a colon and its value.


def read_run_fields(raw: bytes) -> dict[str, bytes]:
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
