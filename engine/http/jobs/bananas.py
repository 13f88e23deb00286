"""The HTTP API of Bananas, as its documentation has it, below `/api/v1`: on the keyspace of Bananas, beside
its own programs.

`POST /jobs`, `GET /jobs/{id}`, `GET /jobs`, `GET /metrics` and `GET /health`. Its words are those of its
format: priorities high, normal and low; statuses pending, scheduled, processing, completed and failed; times
as RFC 3339.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.errors import EPOCH, utc
from engine.http.access import access_of, needs, public
from engine.http.answers import JsonAnswer, bad_value, json_object, only
from engine.http.describing import arguments, choice, described, whole
from engine.http.jobs import schemas
from engine.http.jobs.jobs import own_key, refuse_unreadable, unknown
from engine.http.opening import BANANAS
from engine.models.foreign.bananas import DESCRIPTION, PRIORITIES, updated_ms
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.looks import JobInfo, JobState, payload_members

_STATUSES: dict[JobState, str] = {
    "waiting": "pending",
    "delayed": "scheduled",
    "active": "processing",
    "stuck": "processing",
    "finished": "completed",
    "dead": "failed",
}
_STATES = {
    "pending": "waiting",
    "scheduled": "delayed",
    "processing": "active",
    "completed": "finished",
    "failed": "dead",
}
_MEMBERS = ("id", "name", "payload", "description", "priority", "scheduled_for", "routing_key", "max_retries")
_TEXT = {"type": "string"}
#: A round one of those that the engine has numbers for.
_YEAR_MAX = 5999
#: What of a second is finer than datetimes are, and not 0.
_FINER = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")
_NEW = schemas.an_object(
    ("name",),
    id=schemas.or_null({**schemas.ANY_TEXT, "pattern": f"^{schemas.ANY_ID_PATTERN}$"}),
    name=schemas.ANY_TEXT,
    payload={},
    description=_TEXT,
    priority={"enum": list(PRIORITIES)},
    scheduled_for=schemas.or_null({"type": "string", "format": "date-time", "pattern": "^[0-5]"}),
    routing_key=schemas.or_null({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}),
    max_retries=schemas.or_null({"type": "integer", "minimum": 1, "maximum": 1000}),
)
_SUBMITTED = schemas.shown(id=_TEXT, status=_TEXT, created_at=_TEXT)
_SHOWN = schemas.shown(
    {
        "description": _TEXT,
        "payload": {},
        "payload_base64": _TEXT,
        "payload_unreadable": _TEXT,
        "unreadable": _TEXT,
    },
    id=_TEXT,
    name=_TEXT,
    status=_TEXT,
    priority=_TEXT,
)


@described("Submit a job", body=_NEW, answers={201: _SUBMITTED, 200: _SUBMITTED}, tag="bananas")
@needs("operate", changes=True, queue=BANANAS)
async def submit(request: Request) -> Response:
    """201 with the new job, 200 with the one of this id that is there already."""
    found = only(await json_object(request), *_MEMBERS)
    if "name" not in found:
        raise bad_value("name", None, "given: a job has a name")
    if not isinstance(found.get("description", ""), str):
        raise bad_value("description", found["description"], "a text", private=True)
    options: dict[str, Any] = {"priority": _priority(found.get("priority", "normal"))}
    if found.get("description"):
        options["headers"] = {DESCRIPTION: found["description"]}
    if found.get("routing_key") is not None:
        options["route"] = found["routing_key"]
    if found.get("max_retries") is not None:
        options["attempts"] = found["max_retries"]
    if found.get("scheduled_for") is not None:
        options["run_at_ms"] = _instant_ms(found["scheduled_for"])
    queue, id, key = _queue(request), found.get("id"), own_key(request)
    id = key if id is None else id
    refuse_unreadable(request, queue, "", id)
    enqueued = await queue.enqueue(found["name"], found.get("payload"), id=id, **options)
    stored = None if enqueued.created else await queue.jobs.get(enqueued.job)
    if stored is not None:
        return JsonAnswer({name: _view(stored, request)[name] for name in ("id", "status", "created_at")})
    made_ms = enqueued.srv_us // 1000
    status = "scheduled" if options.get("run_at_ms", 0) > made_ms else "pending"
    return JsonAnswer(
        {"id": enqueued.job, "status": status, "created_at": _time(made_ms)}, 201 if enqueued.created else 200
    )


@described("A job, with its result once it has one", answers={200: _SHOWN}, tag="bananas")
@needs("read", queue=BANANAS)
async def get_job(request: Request) -> Response:
    """What is known of it."""
    queue, id = _queue(request), request.path_params["id"]
    job = await queue.jobs.get(id)
    if job is None:
        raise unknown(request)
    view = _view(job, request)
    ended = await queue.results.get(id) if job.state in ("finished", "dead") else None
    if ended is not None:
        view["completed_at"] = _time(ended.ended_ms or job.ended_ms)
        if ended.unreadable:
            view["unreadable"] = ended.unreadable
        if not ended.ok:
            view["error"] = ended.error
        elif request.app.state.settings.show_payloads or access_of(request).may("operate"):
            view["result"] = ended.value
    return JsonAnswer(view)


@described(
    "Some jobs of a status",
    query=(
        choice("status", "which jobs", tuple(_STATES), "pending"),
        whole("limit", "how many", 1, 100, 100),
    ),
    answers={200: schemas.list_of("jobs", _SHOWN)},
    tag="bananas",
)
@needs("read", queue=BANANAS)
async def list_jobs(request: Request) -> Response:
    """The newest first."""
    given = arguments(request)
    page = await _queue(request).jobs.page(_STATES[given["status"]], limit=given["limit"], newest_first=True)
    return JsonAnswer({"jobs": [_view(job, request) for job in page.jobs]})


@described("How many jobs there are", answers={200: schemas.any_object()}, tag="bananas")
@needs("read", queue=BANANAS)
async def metrics(request: Request) -> Response:
    """The waiting ones of all priorities together: the format counts them by routing key and priority in
    lists of its own."""
    queue = _queue(request)
    counts, workers = await queue.counts(one_call=True), await queue.workers.list(limit=1_000)
    alive = [worker for worker in workers if worker.alive]
    places = sum(worker.concurrency for worker in alive)
    view = {
        "queues": {"all": counts.waiting},
        "processing": counts.active,
        "scheduled": counts.delayed,
        "dead_letter": counts.dead,
        "workers": {
            "active": len(alive),
            "utilization": round(sum(w.in_hand for w in alive) / places, 2) if places else 0.0,
        },
    }
    return JsonAnswer(view)


@described("Whether the server answers", answers={200: schemas.shown(status=_TEXT)}, tag="bananas")
@public
async def health(request: Request) -> Response:
    """503 where it does not."""
    await request.app.state.opened.queues(1)
    return JsonAnswer({"status": "healthy"})


def _queue(request: Request) -> AsyncQueue:
    return request.app.state.opened.bananas()


def _view(job: JobInfo, request: Request) -> dict[str, Any]:
    word = next(word for word, priority in PRIORITIES.items() if job.priority >= priority or word == "low")
    view: dict[str, Any] = {
        "id": job.id,
        "name": job.name,
        "status": _STATUSES.get(job.state, job.state),
        "priority": word,
        "routing_key": job.options.route or "default",
        "attempts": job.failures + job.crashes + (job.state == "finished"),
        "max_retries": job.options.attempts,
        "created_at": _time(job.enqueued_ms),
        "updated_at": _time(updated_ms(job.envelope) or job.enqueued_ms),
    }
    if job.due_ms:
        view["scheduled_for"] = _time(job.due_ms)
    if job.last_error:
        view["error"] = job.last_error
    if job.unreadable:
        view["unreadable"] = job.unreadable
    if request.app.state.settings.show_payloads:
        view |= payload_members(job.payload, job.payload_bytes)
        if DESCRIPTION in job.headers:
            view[DESCRIPTION] = job.headers[DESCRIPTION]
    return view


def _priority(word: object) -> int:
    if not isinstance(word, str) or word not in PRIORITIES:
        raise bad_value("priority", word, f"one of {', '.join(PRIORITIES)}")
    return PRIORITIES[word]


def _instant_ms(text: object) -> int:
    """A time in whole milliseconds, rounded up: no job runs before its time. One before 1970 is as past as
    any other."""
    try:
        when = datetime.fromisoformat(text.upper()) if isinstance(text, str) else None
        if when is None or when.tzinfo is None or when.year > _YEAR_MAX:
            raise ValueError
        finer = timedelta(microseconds=bool(_FINER.search(str(text))))
        return max(1, -((EPOCH - when - finer) // timedelta(milliseconds=1)))
    except (ValueError, OverflowError):
        bound = f"a time of RFC 3339 with a zone, such as 2030-01-15T10:30:00Z, up to the year {_YEAR_MAX}"
        raise bad_value("scheduled_for", text, bound) from None


def _time(ms: int) -> str | None:
    return utc(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z") if ms else None
