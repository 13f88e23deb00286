"""The shapes of what the job API takes and answers, as JSON schemas. The options of jobs follow from the engine's own table."""

from __future__ import annotations

from typing import Any

from engine.http.describing import Schema
from engine.options import OPTIONS, Choice, Duration, Flag, Whole
from engine.validate import DEAD_MAX, DURATION_MS_MAX, RATE_MAX

NAME_PATTERN = "[A-Za-z0-9_.:-]{1,128}"
KEY_PATTERN = "[A-Za-z0-9_.:-]{1,100}"
ID_PATTERN = f"(?!cron:){NAME_PATTERN}"
#: The number of a job in its batch stands behind the key of the batch.
BATCH_KEY_CHARACTERS_MAX = 120
BATCH_KEY_PATTERN = f"(?!cron:)[A-Za-z0-9_.:-]{{1,{BATCH_KEY_CHARACTERS_MAX}}}"
KNOWN_ID_PATTERN = "[A-Za-z0-9_.:>-]{1,256}"
#: Jobs of one batch.
BATCH_MAX = 1_000

_TEXT: Schema = {"type": "string"}
_MS: Schema = {"type": "integer", "minimum": 0}
_NAME: Schema = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
_WINDOW: Schema = {"enum": ["sliding", "fixed"]}
_ID: Schema = {"type": ["string", "null"], "pattern": f"^{ID_PATTERN}$"}
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


def _whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _option(name: str) -> Schema:
    """The schema of an option of jobs."""
    match OPTIONS[name]:
        case Duration(least, most) | Whole(least, most):
            return _whole(least, most)
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
NEW_JOB = an_object(("name",), name=_NAME, payload={}, id=_ID, **{name: _option(name) for name in OPTIONS})
NEW_JOBS = an_object(("jobs",), jobs={"type": "array", "items": NEW_JOB, "minItems": 1, "maxItems": BATCH_MAX})
ENQUEUED = shown(id=_TEXT, created={"type": "boolean"}, srv_ms=_MS)
ENQUEUED_MANY = list_of("jobs", {"type": "object"})
NEXT: Schema = {"type": ["string", "null"]}
ALTERED = shown(id=_TEXT, state=_TEXT)
RESULT: Schema = {"type": "object", "properties": {"id": _TEXT, "state": _TEXT}, "required": ["id", "state"]}
EVENT = shown(id=_TEXT, srv_ms=_MS, kind=_TEXT, job=_TEXT, name=_TEXT, detail=_TEXT)
PAUSE = an_object(name={**_NAME, "type": ["string", "null"]}, length_ms=_whole(0, DURATION_MS_MAX))
RESUME = an_object(name={**_NAME, "type": ["string", "null"]})
LIMIT_FIELDS = ("concurrency", "rate", "per_ms", "window")
#: Either of concurrency alone, or of a rate in so long, and perhaps of both.
LIMIT: Schema = {
    "anyOf": [
        an_object(("concurrency",), concurrency=_whole(1, RATE_MAX), rate=_whole(0, 0), per_ms=_whole(0, 0), window=_WINDOW),
        an_object(
            ("rate", "per_ms"),
            concurrency=_whole(0, RATE_MAX),
            rate=_whole(1, RATE_MAX),
            per_ms=_whole(1, DURATION_MS_MAX),
            window=_WINDOW,
        ),
    ]
}
KEEP = an_object(keep=_whole(1, 1_000_000))
SELECTION = an_object(
    name=_NAME,
    key={"type": "string", "pattern": f"^{KEY_PATTERN}$"},
    error={"type": "string", "pattern": r"\S", "maxLength": 200},
    older_than_ms=_whole(0, DURATION_MS_MAX),
    newer_than_ms=_whole(1, DURATION_MS_MAX),
    limit=_whole(1, DEAD_MAX),
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
