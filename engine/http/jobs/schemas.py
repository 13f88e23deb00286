"""The shapes of what the job API takes and answers, as JSON schemas. The options of jobs follow from the
engine's own table."""

from __future__ import annotations

from typing import Any, cast, get_args

from engine import validate
from engine.http.describing import Schema
from engine.http.shield import SEGMENT_PATTERN
from engine.options import OPTIONS, Checked, Choice, Duration, Flag, Whole
from engine.queue.history import KEPT_MAX, NAMES_MAX, OUTCOMES, PAYLOAD_BYTES_MAX
from engine.queue.looks import ERROR_CHARACTERS_MAX, JobState
from engine.queue.results import Outcome
from engine.routing import VALUES_MAX, Mode, route_text, target_text
from engine.validate import DEAD_MAX, DURATION_MS_MAX, RATE_MAX

NAME_PATTERN = validate.NAME.pattern
KEY_PATTERN = validate.KEY.pattern
#: Two dots, or one, are no segment of a path; the quote is that of a header.
ID_PATTERN = rf'(?!cron:|\.\.?"?$){NAME_PATTERN}'
#: The same in old keyspaces.
ANY_ID_PATTERN = f"(?!cron:){SEGMENT_PATTERN}"
#: The number of a job in its batch stands behind the key of the batch.
BATCH_KEY_CHARACTERS_MAX = 120
BATCH_KEY_PATTERN = f"(?!cron:)[A-Za-z0-9_.:-]{{1,{BATCH_KEY_CHARACTERS_MAX}}}"
KNOWN_ID_PATTERN = validate.KNOWN_ID.pattern
#: Jobs of one batch.
BATCH_MAX = 1_000

_TEXT: Schema = {"type": "string"}
_MS: Schema = {"type": "integer", "minimum": 0}
_STATE: Schema = {"enum": sorted(word for part in get_args(JobState) for word in (get_args(part) or (part,)))}
#: A name or an id of an old keyspace.
ANY_TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": validate.TEXT_CHARS_MAX}
NAME: Schema = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
_WINDOW: Schema = {"enum": ["sliding", "fixed"]}
ID: Schema = {"type": ["string", "null"], "pattern": f"^{ID_PATTERN}$"}
_ERROR_NAME: Schema = {"type": "string", "pattern": f"^{validate.ERROR_NAME.pattern}$"}
#: A name, or a name of another queue.
_REROUTE: Schema = {"type": "string", "pattern": f"^[A-Za-z0-9_.-]{{1,128}}(:{NAME_PATTERN})?$"}


def header_pattern(pattern: str) -> str:
    """A text of a header, bare or as a string of structured fields (RFC 9651)."""
    return f'({pattern}|"{pattern}")'


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
        case Checked(function) if function in _CHECKED:
            return or_null(_CHECKED[function])
        case _:
            raise TypeError(f"option {name}: say in `_CHECKED` how OpenAPI shows what its check takes")


def an_object(required: tuple[str, ...] = (), **members: Schema) -> Schema:
    """An object with these members and no others."""
    return {
        "type": "object",
        "properties": members,
        "required": list(required),
        "additionalProperties": False,
    }


def shown(perhaps: dict[str, Schema] | None = None, /, **members: Schema) -> Schema:
    """An object of an answer, which has these members, and perhaps others."""
    return {"type": "object", "properties": {**members, **(perhaps or {})}, "required": list(members)}


def list_of(name: str, item: Schema, **more: Schema) -> Schema:
    """An answer with a list, and perhaps where to go on."""
    return shown(**{name: {"type": "array", "items": item}}, **more)


def or_null(schema: Schema) -> Schema:
    """The same, or null, which stands for the default."""
    return {**schema, "type": [schema["type"], "null"]}


def _different(item: Schema, most: int) -> Schema:
    """A list without repetitions."""
    return {"type": "array", "items": item, "maxItems": most, "uniqueItems": True}


_VALUES: Schema = {"type": "array", "items": NAME, "maxItems": VALUES_MAX}
#: What options look like whose checks are functions; None stands for the default. A callback, which is a
#: job, follows.
_CHECKED: dict[Any, Schema] = {
    validate.text: NAME,
    validate.limit_key: {"type": "string", "pattern": f"^{KEY_PATTERN}$"},
    route_text: {"type": "string", "pattern": f"^{validate.ROUTE.pattern}$"},
    validate.instant_ms: _whole(1, validate.INSTANT_MS_MAX),
    validate.delays: {
        "type": "array",
        "items": _whole(0, DURATION_MS_MAX),
        "minItems": 1,
        "maxItems": validate.DELAYS_MAX,
    },
    validate.share: {"type": "number", "minimum": 0, "maximum": 1},
    validate.headers: {"type": "object", "additionalProperties": _TEXT},
    validate.parents: _different(
        {"type": "string", "pattern": f"^{validate.PARENT.pattern}$"}, validate.PARENTS_MAX
    ),
    validate.error_names: _different(_ERROR_NAME, validate.ERROR_NAMES_MAX),
    validate.reroutes: {
        "type": "object",
        "propertyNames": _ERROR_NAME,
        "additionalProperties": _REROUTE,
        "maxProperties": validate.ERROR_NAMES_MAX,
    },
    target_text: an_object(
        server=or_null(NAME),
        mode={"enum": list(get_args(Mode))},
        stack=_VALUES,
        capabilities=_VALUES,
        region=_VALUES,
    ),
}
JOB_FIELDS = ("name", "payload", "id", *OPTIONS)
_OF_CALLBACKS = {name: _option(name) for name in OPTIONS if name not in validate.NOT_OF_CALLBACKS}
_CHECKED[validate.callback] = an_object(("name",), name=NAME, payload={}, id=ID, **_OF_CALLBACKS)
#: What names and ids look like in Lanes, and any text in old keyspaces.
_NARROW = frozenset(
    f"^{pattern}$" for pattern in (NAME_PATTERN, ID_PATTERN, KEY_PATTERN, validate.PARENT.pattern)
) | {_REROUTE["pattern"]}
NEW_JOB = an_object(("name",), name=NAME, payload={}, id=ID, **{name: _option(name) for name in OPTIONS})
NEW_JOBS = an_object(
    ("jobs",), jobs={"type": "array", "items": NEW_JOB, "minItems": 1, "maxItems": BATCH_MAX}
)
ENQUEUED = shown(id=_TEXT, created={"type": "boolean"}, srv_ms=_MS)
ENQUEUED_MANY = list_of("jobs", {"type": "object"})
NEXT: Schema = {"type": ["string", "null"]}
ALTERED = shown({"children": _MS, "left": _MS}, id=_TEXT, state=_TEXT)
#: Jobs that need each other, and what came of a change of all of them.
WORKFLOW = shown(
    job=_TEXT,
    counts={"type": "object", "additionalProperties": _MS},
    jobs={
        "type": "array",
        "items": shown(id=_TEXT, name=_TEXT, state=_TEXT, needs={"type": "array", "items": _TEXT}),
    },
    more={"type": "boolean"},
)
WORKFLOW_CHANGE = shown(changed=_MS, left=_MS, more={"type": "boolean"})
#: How a job has ended: with what its handler has returned, or `hidden` where the caller may not see that, or
#: with an error.
RESULT = shown(
    {
        "result": {},
        "took_ms": or_null(_MS),
        "hidden": {"type": "boolean"},
        "error": _TEXT,
        "unreadable": _TEXT,
    },
    id=_TEXT,
    state={"enum": list(get_args(Outcome))},
    ended_ms=_MS,
)
NOT_ENDED = shown(id=_TEXT, state=_STATE)
PROGRESS = shown(
    {"message": or_null(_TEXT), "data": {}, "unreadable": _TEXT}, percent={"type": "number"}, at_ms=_MS
)
EVENT = shown(id=_TEXT, srv_ms=_MS, kind=_TEXT, job=_TEXT, name=_TEXT, detail=_TEXT)
PAUSE = an_object(name=or_null(NAME), length_ms=_whole(0, DURATION_MS_MAX))
RESUME = an_object(name=or_null(NAME))
LIMIT_FIELDS = ("concurrency", "rate", "per_ms", "window")
#: Either of concurrency alone, or of a rate in so long, and perhaps of both.
LIMIT: Schema = {
    "anyOf": [
        an_object(
            ("concurrency",),
            concurrency=_whole(1, RATE_MAX),
            rate=_whole(0, 0),
            per_ms=_whole(0, 0),
            window=_WINDOW,
        ),
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
KEEP_HISTORY = an_object(
    keep=_whole(1, KEPT_MAX),
    age_ms=or_null(_whole(1, DURATION_MS_MAX)),
    names=or_null({"type": "array", "items": NAME, "minItems": 1, "maxItems": NAMES_MAX}),
    payload_bytes=_whole(0, PAYLOAD_BYTES_MAX),
)
OR_NO_RULE = or_null(shown(keep=_MS, age_ms=_MS, payload_bytes=_MS, names={"type": "array", "items": _TEXT}))
#: A time of more digits may be later than any that the engine takes.
PLACE_PATTERN = rf"[0-9]{{1,14}}:[0-9]{{1,16}}:({'|'.join(OUTCOMES)}):{KNOWN_ID_PATTERN}"
#: How a job has ended, as PastJob has it.
PAST_JOB: Schema = shown(
    {"payload": {}, "payload_base64": _TEXT, "payload_unreadable": _TEXT},
    **dict.fromkeys(("place", "id", "name", "key", "unique", "worker", "error"), _TEXT),
    outcome={"enum": list(OUTCOMES)},
    **dict.fromkeys(
        ("enqueued_ms", "due_ms", "started_ms", "ended_ms", "claims", "failures", "crashes"), _MS
    ),
    payload_bytes=_MS,
    waited_ms=or_null(_MS),
    ran_ms=or_null(_MS),
)
WITH_CHILDREN = an_object(with_children={"type": "boolean"})
SELECTION = an_object(
    name=or_null(NAME),
    key=or_null(_CHECKED[validate.limit_key]),
    error=or_null({"type": "string", "pattern": r"\S", "maxLength": 200}),
    older_than_ms=_whole(0, DURATION_MS_MAX),
    newer_than_ms=or_null(_whole(1, DURATION_MS_MAX)),
    error_like=or_null({"type": "string", "minLength": 1, "maxLength": ERROR_CHARACTERS_MAX}),
    limit=_whole(1, DEAD_MAX),
)
COUNT: Schema = {"type": "integer", "minimum": 0}
TRUTH: Schema = {"type": "boolean"}
ERROR_GROUP = shown(name=_TEXT, kind=_TEXT, count=COUNT, first_ms=_MS, last_ms=_MS, job=_TEXT, example=_TEXT)
#: How a job is shown: with those of its options that are not the default ones, and with its payload where
#: payloads are shown, in base64 where it is no JSON or nobody here can read it, which `payload_unreadable`
#: says. `unreadable`: why the whole job is not.
JOB: Schema = shown(
    {"payload": {}, "payload_base64": _TEXT, "payload_unreadable": _TEXT, "unreadable": _TEXT},
    id=_TEXT,
    state=_STATE,
    name=_TEXT,
    key=_TEXT,
    priority={"type": "integer"},
    **dict.fromkeys(
        ("enqueued_ms", "due_ms", "lease_end_ms", "ended_ms", "claims", "failures", "crashes", "fence"), _MS
    ),
    requeued_ms=_MS,
    attempts=_TEXT,
    owner=_TEXT,
    last_error=_TEXT,
    errors={
        "type": "array",
        "items": shown(at_ms=_MS, fence=_MS, kind=_TEXT, error=_TEXT, trace=_TEXT, number=_MS),
    },
    options={"type": "object"},
)


def any_object() -> dict[str, Any]:
    """An object whose members are those of a description in the engine."""
    return {"type": "object"}


def widened(schema: Any) -> Any:
    """The same schema for a queue of an old keyspace, whose names and ids are any texts."""
    if isinstance(schema, dict):
        given = cast("Schema", schema)
        members = {
            name: widened(value) for name, value in given.items() if name != "pattern" or value not in _NARROW
        }
        if given.get("pattern") == ID["pattern"]:
            return {**members, "pattern": f"^{ANY_ID_PATTERN}$"}
        return members if len(members) == len(given) else {**members, "minLength": 1}
    return [widened(item) for item in cast("list[Any]", schema)] if isinstance(schema, list) else schema
