"""Mosquito's hash of a job run and its decoding: parameters as texts, followed by metadata.

A task takes scalars by name; the hash holds only texts, as Crystal prints them. So a handler receives texts, whichever client
has enqueued the job; a task (`engine.tasks`) converts them to the types of its parameters. Options of a job for which the
format has no field are in an additional field, `ironclaim`, as JSON: the original ignores it, and keeps it when it
reschedules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

from engine.class_names import class_of
from engine.errors import Malformed, ScriptFault
from engine.models.names import ANY_TEXT
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Lease, Options
from engine.options import checked
from engine.serializers import TEXTS

#: Fields that the original, one of its versions, or the engine keeps beside the parameters.
METADATA = ("enqueue_time", "type", "retry_count", "started_at", "finished_at", "overseer_id", "ironclaim")
#: `id` is metadata in the document, and none on the wire.
REFUSED = (*METADATA, "id")
#: The field that holds the bytes of a serialiser, which are no parameters.
RAW_FIELD = "payload"
PARAMETERS_MAX = 1000
#: The original's retries: five runs, with waits of 2, 8, 18 and 32 s.
DEFAULTS = Options(attempts=5, backoff="geometric", backoff_ms=2000)
_READ = replace(DEFAULTS, serializer=TEXTS)
#: The options that a job may have. All but the first four are stored in the field `ironclaim`.
OPTIONS = frozenset(
    (
        *("delay_ms", "run_at_ms", "dedup", "dedup_ms"),
        *("attempts", "backoff", "backoff_ms", "backoff_max_ms", "backoff_delays_ms", "jitter", "crashes_max"),
        *("timeout_ms", "headers", "serializer", "timestamp_ms", "skip_on", "key", "cost", "result_ttl_ms", "error_ttl_ms"),
    )
)
_NOT_STORED = frozenset(("delay_ms", "run_at_ms", "dedup", "dedup_ms"))
#: Begins a dedup text that names parameters; `params` alone is all of them.
_BY_PARAMETERS = "params"


def parameters(payload: bytes, options: Options) -> list[tuple[str, bytes]]:
    """The fields of a payload, names and texts in its order. Raises Malformed for one that the wire cannot hold."""
    if options.serializer:
        return [(RAW_FIELD, payload)]
    given: Any = json.loads(payload)
    if given is None:
        return []
    if not isinstance(given, dict):
        raise Malformed("payload", given, "an object: Mosquito's jobs have parameters by name")
    found = cast("dict[str, Any]", given)
    if len(found) > PARAMETERS_MAX:
        raise Malformed("payload", f"{len(found)} parameters", f"at most {PARAMETERS_MAX} parameters")
    for name in found:
        if not name or name in REFUSED:
            raise Malformed(f"payload.{name}", found[name], "another name: Mosquito keeps its own metadata under this one")
    return [(name, _text(name, value)) for name, value in found.items()]


def extra(options: Options) -> str:
    """The options for which the hash has no field, as JSON; '' if all have their defaults."""
    changed = _changed_options(options)
    return json.dumps(changed, separators=(",", ":")) if changed else ""


def unique_text(name: str, given: Sequence[tuple[str, bytes]], dedup: str) -> str:
    """The text after `unique_job:`. For `params` the original's text of all parameters, for `params:a:b` of these two."""
    kind, _, chosen = dedup.partition(":")
    if not dedup or kind != _BY_PARAMETERS:
        return f"{name}:{dedup}" if dedup else ""
    texts = {field: text.decode(errors="replace") for field, text in given}
    names = chosen.split(":") if chosen else [*texts]
    for wanted in names:
        if wanted not in texts:
            raise Malformed("dedup", dedup, f"{_BY_PARAMETERS}, or with parameters of the payload: {', '.join(texts)}")
    return ":".join((name, *(f"{field}={texts[field]}" for field in sorted(names))))


def decode(raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
    """Decode a claimed job from the flat list of its hash. Raises ScriptFault for a hash that Python cannot decode."""
    try:
        stored = dict(zip(raw[::2], raw[1::2], strict=True))
        name = stored[b"type"].decode()
        options = _options(stored.get(b"ironclaim"))
        if options.serializer != TEXTS:
            payload = stored[RAW_FIELD.encode()]
        else:
            hidden = {field.encode() for field in METADATA}
            # The document has the id among the metadata, a Crystal class may have it among its parameters.
            if stored.get(b"id") == lease.job.encode():
                hidden.add(b"id")
            shown = {field.decode(): value.decode() for field, value in stored.items() if field not in hidden}
            payload = json.dumps(shown, separators=(",", ":")).encode()
        enqueued_ms = int(stored[b"enqueue_time"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Malformed) as error:
        raise ScriptFault(f"hash of job run {lease.job}: {error!r}") from error
    lane = f"{name}/{options.key}" if options.key else name
    return LeasedJob(lease, deadline_ms, name, class_of(name, "", ""), lane, payload, options, enqueued_ms, 0, *counters)


def _text(name: str, value: Any) -> bytes:
    """A value as Crystal prints it. Raises Malformed for a value that cannot be a parameter."""
    try:
        if isinstance(value, bool):
            return b"true" if value else b"false"
        if isinstance(value, float):
            return crystal_float(value).encode()
        if isinstance(value, int | str):
            return str(value).encode()
    except ValueError as error:
        raise Malformed(f"payload.{name}", value, f"a text, a number or a boolean ({error})") from None
    raise Malformed(f"payload.{name}", value, "a text, a number or a boolean: a parameter of Mosquito holds nothing else")


def crystal_float(value: float) -> str:
    """A number as Crystal prints it: 1.5, 1.0e+21, 1.0e-5."""
    digits, _, exponent = f"{value!r}".partition("e")
    sign, digits = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
    whole, _, part = digits.partition(".")
    figures = (whole + part).lstrip("0")
    # The position of the decimal point, counted from the first figure.
    point = int(exponent or 0) + (len(whole) if whole.strip("0") else len(figures) - len(part))
    figures = figures.rstrip("0")
    if not figures:
        return f"{sign}0.0"
    if -3 <= point <= 15:
        padded = figures.ljust(point, "0") if point > 0 else "0" * (1 - point) + figures
        before = max(point, 1)
        return f"{sign}{padded[:before]}.{padded[before:] or '0'}"
    return f"{sign}{figures[0]}.{figures[1:] or '0'}e{point - 1:+d}"


def _changed_options(options: Options) -> dict[str, Any]:
    """The stored options that differ from the defaults."""
    if options is DEFAULTS:
        return {}
    differ = [field.name for field in fields(Options) if getattr(options, field.name) != getattr(DEFAULTS, field.name)]
    given: dict[str, Any] = {name: getattr(options, name) for name in differ if name in OPTIONS and name not in _NOT_STORED}
    if "headers" in given:
        given["headers"] = dict(options.headers)
    return given


def _options(raw: bytes | None) -> Options:
    """The options of a job; unknown ones, of a later engine, are ignored. Raises Malformed or ValueError for invalid ones."""
    if raw is None:
        return _READ
    given: Any = json.loads(raw)
    if not isinstance(given, dict):
        raise ValueError("options that are no object")
    known = {name: value for name, value in cast("dict[str, Any]", given).items() if name in OPTIONS}
    made = checked(cast("Mapping[str, object]", known), own=ANY_TEXT.options)
    chosen: dict[str, Any] = {name: getattr(made, name) for name in known}
    return replace(_READ, **chosen)
