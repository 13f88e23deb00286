"""Looks at jobs: one, some of a state, how one has ended."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.errors import ScriptFault, TimedOut
from engine.http.answers import JsonAnswer, Problem
from engine.http.describing import arguments, choice, described, name_of, text, whole
from engine.http.jobs import schemas
from engine.http.opening import queue_of, wait_for, waiting_ms
from engine.http.security.access import access_of, needs, still_admitted
from engine.ops.jobs import Options
from engine.ops.looks import LISTED
from engine.ops.workers import WorkerInfo
from engine.options import PLAIN
from engine.queue.admin import PIECE
from engine.queue.looks import JobInfo, payload_members
from engine.queue.scheduling import Schedule
from engine.routing import read_target

# -- How jobs, schedules and workers are shown as JSON. Payloads are left out unless they may be seen.

#: Options that hold what its producer put into a job, or other jobs.
_CONTENTS = ("headers", "on_success", "on_failure")


def job_view(job: JobInfo, *, payloads: bool) -> dict[str, Any]:
    """A job, with the fields of JobInfo."""
    view: dict[str, Any] = {
        "id": job.id,
        "state": job.state,
        "name": job.name,
        "key": job.key,
        "priority": job.priority,
        "fence": job.fence,
        "enqueued_ms": job.enqueued_ms,
        "due_ms": job.due_ms,
        "lease_end_ms": job.lease_end_ms,
        "ended_ms": job.ended_ms,
        "claims": job.claims,
        "failures": job.failures,
        "crashes": job.crashes,
        "owner": job.owner,
        "last_error": job.last_error,
        "errors": [asdict(error) for error in job.errors],
        "options": _options(job.options, payloads),
    }
    if job.unreadable:
        view["unreadable"] = job.unreadable
    if payloads:
        view |= payload_members(job.payload, job.payload_bytes)
    return view


def schedule_view(schedule: Schedule, *, payloads: bool) -> dict[str, Any]:
    """A schedule, with the fields of Schedule."""
    names = (
        "name",
        "job_name",
        "enabled",
        "next_ms",
        "last_ms",
        "last_job",
        "count",
        "missed",
        "skipped",
        "error",
    )
    view: dict[str, Any] = {name: getattr(schedule, name) for name in names}
    view |= {"timing": asdict(schedule.timing), "policy": asdict(schedule.policy)}
    view["options"] = _options(schedule.options, payloads)
    if payloads:
        view |= payload_members(schedule.payload, schedule.payload_bytes)
    return view


def worker_view(worker: WorkerInfo) -> dict[str, Any]:
    """A worker, with the fields of WorkerInfo."""
    return {**asdict(worker), "attributes": dict(worker.attributes), "routing": dict(worker.routing)}


def _options(options: Options, contents: bool) -> dict[str, Any]:
    """The options of a job that are not the default ones."""
    names = [field.name for field in fields(options) if contents or field.name not in _CONTENTS]
    given = {name: getattr(options, name) for name in names if getattr(options, name) != getattr(PLAIN, name)}
    for name in ("headers", "reroute_on"):
        if name in given:
            given[name] = dict(given[name])
    if given.get("target"):
        given["target"] = read_target(given["target"]) or given["target"]
    for name in ("on_success", "on_failure"):
        if name in given:
            given[name] = {"id": given[name].job, "name": given[name].name}
    return given


#: A listing is made of the first million jobs of a state; what is behind them is found by its id.
_CURSOR = "0|[1-9][0-9]{0,5}"
_CURSORS_END = 1_000_000


@described(
    "Some jobs of a state",
    query=(
        choice("state", "which jobs", LISTED, "waiting"),
        name_of("name", "only those of this name", schemas.NAME_PATTERN),
        name_of("key", "only those with this key", schemas.KEY_PATTERN),
        text("error", "only those whose last error has this as whole words", pattern=r"[\s\S]*\S[\s\S]*"),
        text(
            "text",
            "only those that have this in their id, name, key or last error; in the payload where "
            "that is shown",
        ),
        choice("order", "the oldest or the newest first", ("oldest", "newest"), "oldest"),
        text("cursor", "where the page before has ended", pattern=_CURSOR),
        whole("limit", "how many jobs are looked at", 1, PIECE, 50),
    ),
    answers={200: schemas.list_of("jobs", schemas.JOB, cursor=schemas.NEXT)},
)
@needs("read")
async def list_jobs(request: Request) -> Response:
    """A page is made in two calls, however many jobs there are: those among `limit` that are meant, so it may
    be short or empty; it is the last one where its `cursor` is null."""
    given = arguments(request)
    words: str | None = given.pop("text")
    offset = int(given.pop("cursor") or 0)
    payloads = request.app.state.settings.show_payloads
    newest_first = given.pop("order") == "newest"
    page = await queue_of(request).jobs.page(offset=offset, newest_first=newest_first, **given)
    jobs = [
        job_view(job, payloads=payloads) for job in page.jobs if words is None or _has(job, words, payloads)
    ]
    after = None if page.next is None or page.next >= _CURSORS_END else str(page.next)
    return JsonAnswer({"jobs": jobs, "cursor": after})


@described("A job", answers={200: schemas.JOB})
@needs("read")
async def get_job(request: Request) -> Response:
    """What is known of it."""
    job = await queue_of(request).jobs.get(request.path_params["id"])
    if job is None:
        raise unknown(request)
    return JsonAnswer(job_view(job, payloads=request.app.state.settings.show_payloads))


@described(
    "Why a job does not run, or what else it does",
    answers={200: schemas.shown(id={"type": "string"}, why={"type": "string"})},
)
@needs("read")
async def get_why(request: Request) -> Response:
    """A sentence."""
    id = request.path_params["id"]
    try:
        found = str(await queue_of(request).jobs.why(id))
    except ScriptFault as fault:
        found = f"nobody can say it: {fault}"
    return JsonAnswer({"id": id, "why": found})


@described(
    "How a job has ended, as soon as it has",
    query=(whole("wait_ms", "how long to wait for it", 0, "poll_max_ms", 0),),
    answers={200: schemas.RESULT, 202: schemas.NOT_ENDED},
)
@needs("read")
async def get_result(request: Request) -> Response:
    """200 with the result of a job that has ended, 202 where it has not within `wait_ms`. What a handler
    returned is shown to who may enqueue jobs, and to others where payloads are."""
    id, queue = request.path_params["id"], queue_of(request)
    wait_ms = waiting_ms(request, arguments(request)["wait_ms"])
    try:
        found = await wait_for(request, queue.results.wait(id, wait_ms=wait_ms))
    except TimedOut:
        return JsonAnswer({"id": id, "state": await queue.jobs.state(id)}, 202)
    except ScriptFault as fault:
        return await _unreadable(request, fault)
    if not await still_admitted(request, "read"):
        raise Problem(403, "Who asked is not admitted any more.")
    view: dict[str, Any] = {"id": id, "state": found.outcome, "ended_ms": found.ended_ms}
    if found.unreadable:
        view["unreadable"] = found.unreadable
    if not found.ok:
        return JsonAnswer({**view, "error": found.error})
    view["took_ms"] = found.took_ms
    if request.app.state.settings.show_payloads or access_of(request).may("operate"):
        return JsonAnswer({**view, "result": found.value})
    return JsonAnswer({**view, "hidden": True})


@described("How far the handler of a job has come", answers={200: schemas.PROGRESS, 204: {}})
@needs("read")
async def get_progress(request: Request) -> Response:
    """What it has told last; 204 where it has told nothing, and after its end."""
    queue, id = queue_of(request), request.path_params["id"]
    found = await queue.results.progress(id)
    if found is None:
        if await queue.jobs.state(id) == "gone":
            raise unknown(request)
        return Response(status_code=204)
    view: dict[str, Any] = {"percent": found.percent, "at_ms": found.at_ms}
    if found.unreadable:
        view["unreadable"] = found.unreadable
    if request.app.state.settings.show_payloads or access_of(request).may("operate"):
        view |= {"message": found.message, "data": found.data}
    return JsonAnswer(view)


async def _unreadable(request: Request, fault: ScriptFault) -> Response:
    """What is known of a job whose end nobody can read, because somebody else has written its keys."""
    job = await queue_of(request).jobs.get(request.path_params["id"])
    if job is None:
        raise unknown(request)
    view = {"id": job.id, "state": job.state, "ended_ms": job.ended_ms, "unreadable": str(fault)}
    return JsonAnswer(view, 200 if job.ended_ms else 202)


def unknown(request: Request) -> Problem:
    """The problem of a job that the server does not know."""
    return Problem(404, f"The server knows no job {request.path_params['id']}, or no longer.", field="id")


def _has(job: JobInfo, words: str, payloads: bool) -> bool:
    """Whether a job has these words where a caller may see them."""
    seen = "\n".join((job.id, job.name, job.key, job.last_error, job.owner))
    if payloads:
        seen += "\n" + job.payload_bytes.decode(errors="replace")
    return words.lower() in seen.lower()
