"""The shapes of what the job API takes and answers, as JSON schemas. The options of jobs follow from the engine's own table."""

from __future__ import annotations

from typing import Any

from engine.http.describing import Schema
from engine.options import OPTIONS, Choice, Duration, Flag, Whole

NAME_PATTERN = "[A-Za-z0-9_.:-]{1,128}"
KEY_PATTERN = "[A-Za-z0-9_.:-]{1,100}"
KNOWN_ID_PATTERN = "[A-Za-z0-9_.:>-]{1,256}"
#: Jobs of one batch.
BATCH_MAX = 1_000

_TEXT: Schema = {"type": "string"}
_MS: Schema = {"type": "integer", "minimum": 0}
_NAME: Schema = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
#: Options whose checks are functions: their types in JSON.
_CHECKED: dict[str, Schema] = {
    "run_at_ms": {"type": ["integer", "null"], "minimum": 1},
    "backoff_delays_ms": {"type": ["array", "null"], "items": _MS},
    "jitter": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
    "headers": {"type": ["object", "null"], "additionalProperties": _TEXT},
    "needs": {"type": ["array", "null"], "items": _TEXT, "maxItems": 100},
    "skip_on": {"type": ["array", "null"], "items": _TEXT, "maxItems": 50},
    "reroute_on": {"type": ["object", "null"], "additionalProperties": _TEXT},
    "target": {"type": ["object", "null"]},
    "on_success": {"type": ["object", "null"]},
    "on_failure": {"type": ["object", "null"]},
}


def _option(name: str) -> Schema:
    """The schema of an option of jobs."""
    match OPTIONS[name]:
        case Duration(least, most) | Whole(least, most):
            return {"type": "integer", "minimum": least, "maximum": most}
        case Flag():
            return {"type": "boolean"}
        case Choice(words):
            return {"enum": list(words)}
        case _:
            return _CHECKED.get(name, {"type": ["string", "null"]})


def an_object(required: tuple[str, ...] = (), **members: Schema) -> Schema:
    """An object with these members and no others."""
    return {"type": "object", "properties": members, "required": list(required), "additionalProperties": False}


def shown(**members: Schema) -> Schema:
    """An object of an answer, which has these members."""
    return {"type": "object", "properties": members, "required": list(members)}


def list_of(name: str, item: Schema, **more: Schema) -> Schema:
    """An answer with a list, and perhaps where to go on."""
    return shown(**{name: {"type": "array", "items": item}}, **more)


JOB_FIELDS = ("name", "payload", "id", *OPTIONS)
NEW_JOB = an_object(("name",), name=_NAME, payload={}, id=_NAME, **{name: _option(name) for name in OPTIONS})
NEW_JOBS = an_object(("jobs",), jobs={"type": "array", "items": NEW_JOB, "minItems": 1, "maxItems": BATCH_MAX})
ENQUEUED = shown(id=_TEXT, created={"type": "boolean"})
ENQUEUED_MANY = list_of("jobs", {"type": "object"})
NEXT: Schema = {"type": ["string", "null"]}
ALTERED = shown(id=_TEXT, state=_TEXT)
RESULT: Schema = {"type": "object", "properties": {"id": _TEXT, "state": _TEXT}, "required": ["id", "state"]}
EVENT = shown(id=_TEXT, srv_ms=_MS, kind=_TEXT, job=_TEXT, name=_TEXT, detail=_TEXT)
PAUSE = an_object(name={**_NAME, "type": ["string", "null"]}, length_ms=_MS)
RESUME = an_object(name={**_NAME, "type": ["string", "null"]})
LIMIT = an_object(concurrency=_MS, rate=_MS, per_ms=_MS, window={"enum": ["sliding", "fixed"]})
KEEP = an_object(keep={"type": "integer", "minimum": 1, "maximum": 1_000_000})
SELECTION = an_object(
    name=_NAME,
    key={"type": "string", "pattern": f"^{KEY_PATTERN}$"},
    error=_TEXT,
    older_than_ms=_MS,
    newer_than_ms={"type": "integer", "minimum": 1},
    limit={"type": "integer", "minimum": 1, "maximum": 10_000},
)
#: How a job is shown.
JOB: Schema = shown(
    id=_TEXT,
    state=_TEXT,
    name=_TEXT,
    key=_TEXT,
    priority={"type": "integer"},
    **dict.fromkeys(("enqueued_ms", "due_ms", "lease_end_ms", "ended_ms", "claims", "failures", "crashes", "fence"), _MS),
    owner=_TEXT,
    last_error=_TEXT,
    errors={"type": "array", "items": {"type": "object"}},
)


def any_object() -> dict[str, Any]:
    """An object whose members are those of a description in the engine."""
    return {"type": "object"}
