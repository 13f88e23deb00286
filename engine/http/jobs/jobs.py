"""The endpoints of jobs: list and read them, enqueue, cancel, run now, requeue and discard; workflows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from engine import validate
from engine.errors import EngineError, Malformed, PartlyEnqueued, ScriptFault, TimedOut, nearest
from engine.http.access import access_of, needs, noted, refuse_elsewhere, still_admitted
from engine.http.answers import JsonAnswer, Problem, bad_value, json_object, only, problem_of
from engine.http.describing import Header, arguments, choice, described, name_of, text, whole
from engine.http.jobs import schemas
from engine.http.opening import queue_of, wait_for, waiting_ms
from engine.http.shield import PATH_BYTES_MAX, carries
from engine.ops.admin import Altered
from engine.ops.jobs import Enqueued, reroute_target
from engine.ops.looks import LISTED
from engine.ops.workers import WorkerInfo
from engine.queue.admin import PIECE
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.history import PastJob
from engine.queue.looks import ERROR_CHARACTERS_MAX, PLACES_MAX, JobInfo, options_told, payload_members
from engine.queue.producing import NewJob
from engine.queue.scheduling import Schedule
from engine.queue.workflows import SHOWN

# -- How jobs, schedules and workers are shown as JSON. Payloads are left out unless they may be seen.


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
        "attempts": job.attempts,
        "requeued_ms": job.requeued_ms,
        "owner": job.owner,
        "last_error": job.last_error,
        "errors": [asdict(error) for error in job.errors],
        "options": options_told(job.options, contents=payloads),
    }
    if job.unreadable:
        view["unreadable"] = job.unreadable
    if payloads:
        view |= payload_members(job.payload, job.payload_bytes)
    return view


def past_view(past: PastJob, *, payloads: bool) -> dict[str, Any]:
    """How a job has ended, with the fields of PastJob."""
    view = past.told
    if payloads and past.stored is not None:
        view |= payload_members(past.payload, past.stored)
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
    view["options"] = options_told(schedule.options, contents=payloads)
    if payloads:
        view |= payload_members(schedule.payload, schedule.payload_bytes)
    return view


def worker_view(worker: WorkerInfo) -> dict[str, Any]:
    """A worker, with the fields of WorkerInfo."""
    return {**asdict(worker), "attributes": dict(worker.attributes), "routing": dict(worker.routing)}


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
            "error_like",
            "only those whose last error is of the kind of this one: ids, numbers, addresses and quoted "
            "values do not count",
            most=ERROR_CHARACTERS_MAX,
        ),
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


# -- Changes jobs that are there: cancels, lets run, discards.

# -- What a job says of other queues, held against the queues of whoever makes it. The job itself is
# carried out by a worker, which knows of no token. So what leads out of the caller's queues is refused
# when the job comes in, and nothing of it is stored.

#: The longest that stands behind the id of a job in a path.
_LONGEST = "/workflow/cancel"
#: Options that are jobs themselves, with options of their own.
CALLBACKS = ("on_success", "on_failure")


def refuse_reroutes(request: Request, field: str, given: object) -> None:
    """Raise Problem where `reroute_on`, as a caller has sent it, names a queue that the caller does not
    reach. What is no mapping of texts is left to the check of the option."""
    if isinstance(given, Mapping):
        _refuse(request, field, cast("Mapping[Any, Any]", given).items())


def refuse_shared(request: Request, of: str, id: object, options: Mapping[str, Any]) -> None:
    """Raise Problem for an id, or a text of `dedup`, where all queues share ids and the caller reaches some
    queues alone. A job of another queue would count as a duplicate."""
    access = access_of(request)
    if access.queues and request.app.state.settings.shares_ids:
        for field, value in (("id", id), ("dedup", options.get("dedup"))):
            if value not in (None, ""):
                noted(request, refused=f"{of}{field} is of all queues in this format")
                own = ", ".join(access.queues)
                detail = (
                    f"{of}{field}: in this format it is of all queues, and {access.name} is for {own} alone."
                )
                bound = f"left out by who is for some queues alone: {own}"
                raise Problem(403, detail, field=f"{of}{field}", value=str(value)[:80], bound=bound)


def refuse_unreadable(request: Request, queue: AsyncQueue, of: str, id: object) -> None:
    """Raise Problem for an id that its queue takes and no path can carry, as nobody could ask for the job. A
    request to enqueue has the path below which its jobs are."""
    if not isinstance(id, str) or carries(quote(request.scope["path"]) + _LONGEST, id):
        return
    try:
        queue.model.check_id(id)
    except Malformed:
        # The enqueue refuses it, and says what the format has against it.
        return
    raise bad_value(
        f"{of}id",
        id,
        "a text for a path: without slashes, backslashes and control characters, not . or .., and so long "
        f"that the path has at most {PATH_BYTES_MAX} bytes",
    )


async def refuse_schedule(request: Request) -> None:
    """Raise Problem where the jobs of the schedule that the path names lead to a queue that the caller does
    not reach."""
    if access_of(request).queues:
        name = request.path_params["schedule"]
        found = await queue_of(request).schedules.get(name)
        if found is not None:
            # A schedule stores no callbacks.
            _refuse(request, f"schedule {name}: reroute_on", found.options.reroute_on)


def _refuse(request: Request, field: str, reroutes: Iterable[tuple[Any, Any]]) -> None:
    access = access_of(request)
    for _, target in reroutes:
        queue = reroute_target(target)[0] if isinstance(target, str) else ""
        if queue and not access.reaches(queue):
            noted(request, refused=f"{field} leads to the queue {queue[:128]}")
            own = ", ".join(access.queues)
            detail = (
                f"{field}: {target[:80]} leads to the queue {queue[:80]}, and {access.name} is "
                f"for {own} alone."
            )
            raise Problem(
                403, detail, field=field, value=target[:80], bound=f"a queue that {access.name} is for: {own}"
            )


# -- Puts jobs into queues. An `Idempotency-Key` becomes the id of a job that has none, so that a repeat
# finds it there.

KEY_HEADER = "Idempotency-Key"
_QUOTED = re.compile(r'"(?:[ !#-\[\]-~]|\\["\\])*"')
_ESCAPED = re.compile(r'\\(["\\])')


@described(
    "Put a job into a queue",
    body=schemas.NEW_JOB,
    answers={201: schemas.ENQUEUED, 200: schemas.ENQUEUED},
    headers=(
        Header(
            KEY_HEADER,
            "the id of a job that has none, bare or in quotes: a repeat is answered with the same job",
            schemas.header_pattern(schemas.ID_PATTERN),
        ),
    ),
)
@needs("operate", changes=True)
async def enqueue(request: Request) -> Response:
    """201 with the new job, 200 with the one that is there already."""
    found = await json_object(request)
    name, payload, id, options = _fields(request, found, "")
    key = own_key(request)
    id = key if id is None else id  # anchor: key-becomes-the-id
    refuse_elsewhere(request, id)
    refuse_shared(request, "", id, options)
    refuse_unreadable(request, queue_of(request), "", id)
    enqueued = await queue_of(request).enqueue(name, payload, id=id, **options)
    segments = ("api", "queues", request.path_params["queue"], "jobs", enqueued.job)
    where = {
        "Location": request.scope.get("root_path", "")
        + "".join(f"/{quote(part, safe='')}" for part in segments)
    }
    return JsonAnswer(_view(enqueued), 201 if enqueued.created else 200, where)


@described(
    "Put many jobs into a queue, in this order",
    body=schemas.NEW_JOBS,
    answers={201: schemas.ENQUEUED_MANY},
    headers=(
        Header(
            KEY_HEADER,
            "with the number of each, the ids of jobs that have none; bare or in quotes",
            schemas.header_pattern(schemas.BATCH_KEY_PATTERN),
        ),
    ),
)
@needs("operate", changes=True)
async def enqueue_batch(request: Request) -> Response:
    """201 with what came of each; 422 for all where one of them is malformed."""
    found = only(await json_object(request), "jobs").get("jobs")
    jobs = cast("list[Any]", found) if isinstance(found, list) else []
    if not 1 <= len(jobs) <= schemas.BATCH_MAX:
        bound = f"a list of 1 to {schemas.BATCH_MAX} jobs"
        raise bad_value("jobs", cast("object", found), bound, private=True)
    key = own_key(request)
    if key is not None and len(key) > schemas.BATCH_KEY_CHARACTERS_MAX:
        raise bad_value(KEY_HEADER, key, f"a text of at most {schemas.BATCH_KEY_CHARACTERS_MAX} characters")
    made: list[NewJob] = []
    for at, job in enumerate(jobs):
        if not isinstance(job, dict):
            raise bad_value(f"jobs[{at}]", job, "an object of JSON", private=True)
        name, payload, id, options = _fields(request, cast("dict[str, Any]", job), f"jobs[{at}].")
        id = f"{key}.{at}" if id is None and key is not None else id
        refuse_elsewhere(request, id)
        refuse_shared(request, f"jobs[{at}].", id, options)
        refuse_unreadable(request, queue_of(request), f"jobs[{at}].", id)
        made.append(NewJob(name, payload, id=id, **options))
    try:
        results: Any = await queue_of(request).enqueue_many(made)
    except PartlyEnqueued as partly:
        results = partly.results
    return JsonAnswer({"jobs": [_outcome(result) for result in results]}, 201)


def _fields(request: Request, found: dict[str, Any], of: str) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Name, payload, id and options of a job. Raises Problem."""
    for name, value in found.items():
        if name not in schemas.JOB_FIELDS:
            bound = f"a member of a job{nearest(name, schemas.JOB_FIELDS)}"
            raise bad_value(f"{of}{name}", value, bound, private=True)
    options = {name: value for name, value in found.items() if name not in ("name", "payload", "id")}
    refuse_reroutes(request, f"{of}reroute_on", options.get("reroute_on"))
    for name in CALLBACKS:
        if options.get(name) is not None:
            options[name] = _callback(request, options[name], f"{of}{name}")
    if "name" not in found:
        raise bad_value(f"{of}name", None, "given: a job has a name")
    return found["name"], found.get("payload"), found.get("id"), options


def _callback(request: Request, found: Any, of: str) -> NewJob:
    if not isinstance(found, dict):
        raise bad_value(of, found, "an object of JSON: a job", private=True)
    name, payload, id, options = _fields(request, cast("dict[str, Any]", found), f"{of}.")
    refuse_unreadable(request, queue_of(request), f"{of}.", id)
    return NewJob(name, payload, id=id, **cast("Any", options))


def own_key(request: Request) -> str | None:
    """The idempotency key of a request. Raises Problem."""
    given = request.headers.get(KEY_HEADER)
    if given is None:
        return None
    key = given.strip(" \t")
    if key.startswith('"'):
        # The draft of the IETF has a string of structured fields (RFC 9651): the key is what stands in the
        # quotes.
        if _QUOTED.fullmatch(key) is None:
            raise Problem(
                400,
                f"{KEY_HEADER} begins with a quote and is no string of RFC 9651.",
                field=KEY_HEADER,
                value=key[:80],
            )
        key = _ESCAPED.sub(r"\1", key[1:-1])
    try:
        return validate.job_id(key)
    except Malformed as error:
        raise bad_value(KEY_HEADER, error.value, error.bound) from None


def _view(enqueued: Enqueued) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": enqueued.job,
        "created": enqueued.created,
        "srv_ms": enqueued.srv_us // 1_000,
    }
    return view if enqueued.created else {**view, "state": enqueued.state}


def _outcome(result: Enqueued | EngineError) -> dict[str, Any]:
    return {"problem": problem_of(result).members()} if isinstance(result, EngineError) else _view(result)


_ANSWERS = {200: schemas.ALTERED}


@described("End a job that waits, is delayed or runs", answers=_ANSWERS)
@needs("operate", changes=True)
async def cancel(request: Request) -> Response:
    """409 where it is in another state."""
    return _answer(request, await queue_of(request).jobs.cancel(request.path_params["id"]))


@described("End the delay of a job", answers=_ANSWERS)
@needs("operate", changes=True)
async def run_now(request: Request) -> Response:
    """409 where it is not delayed."""
    return _answer(request, await queue_of(request).jobs.run_now(request.path_params["id"]))


@described(
    "Let a dead job run again, perhaps with the jobs that died with it",
    body=schemas.WITH_CHILDREN,
    needs_body=False,
    answers=_ANSWERS,
)
@needs("operate", changes=True)
async def requeue(request: Request) -> Response:
    """409 where it is not dead, or another job has its unique key by now. With children also where it was
    requeued before, and some went back to wait for it."""
    given = only(await json_object(request, may_be_empty=True), *schemas.WITH_CHILDREN["properties"])
    altered = await queue_of(request).dead.requeue(request.path_params["id"], **given)
    if not given.get("with_children") or not (altered.done or altered.children):
        return _answer(request, altered)
    counts = {"children": altered.children, "left": altered.left}
    return JsonAnswer({"id": altered.job, "state": altered.state, **counts})


@described(
    "The jobs that need each other, of which this is one",
    query=(whole("limit", "how many to show", 1, SHOWN, SHOWN),),
    answers={200: schemas.WORKFLOW},
)
@needs("read")
async def get_workflow(request: Request) -> Response:
    """Those that are still known, parents first, and how many are in each state."""
    found = await queue_of(request).workflows.get(
        request.path_params["id"], limit=arguments(request)["limit"]
    )
    if found is None:
        raise unknown(request)
    return JsonAnswer({"counts": found.counts, **asdict(found)})


@described("Cancel all jobs of a workflow that have not ended", answers={200: schemas.WORKFLOW_CHANGE})
@needs("operate", changes=True)
async def cancel_workflow(request: Request) -> Response:
    """How many there were, and how many have not ended all the same."""
    return JsonAnswer(asdict(await queue_of(request).workflows.cancel(request.path_params["id"])))


@described("Let all dead jobs of a workflow run again", answers={200: schemas.WORKFLOW_CHANGE})
@needs("operate", changes=True)
async def retry_workflow(request: Request) -> Response:
    """How many there were, and how many stay dead."""
    return JsonAnswer(asdict(await queue_of(request).workflows.retry(request.path_params["id"])))


@described("End a dead job for good", answers=_ANSWERS)
@needs("operate", changes=True)
async def discard(request: Request) -> Response:
    """409 where it is not dead."""
    return _answer(request, await queue_of(request).dead.discard(request.path_params["id"]))


@described(
    "Let dead jobs run again: all, or those that are meant",
    body=schemas.SELECTION,
    needs_body=False,
    answers={200: schemas.shown(requeued={"type": "integer"})},
)
@needs("operate", changes=True)
async def requeue_dead(request: Request) -> Response:
    """How many there were."""
    given = only(await json_object(request, may_be_empty=True), *schemas.SELECTION["properties"])
    return JsonAnswer({"requeued": await queue_of(request).dead.requeue_all(**given)})


@described(
    "End dead jobs for good: all, or those that are meant",
    body=schemas.SELECTION,
    needs_body=False,
    answers={200: schemas.shown(discarded={"type": "integer"})},
)
@needs("operate", changes=True)
async def discard_dead(request: Request) -> Response:
    """How many there were."""
    given = only(await json_object(request, may_be_empty=True), *schemas.SELECTION["properties"])
    return JsonAnswer({"discarded": await queue_of(request).dead.discard_all(**given)})


@described(
    "The jobs that died last, by name and kind of error",
    query=(whole("limit", "how many jobs are looked at", 1, PLACES_MAX, PLACES_MAX),),
    answers={200: schemas.list_of("groups", schemas.ERROR_GROUP, looked=schemas.COUNT, more=schemas.TRUTH)},
)
@needs("read")
async def list_errors(request: Request) -> Response:
    """Errors are of one `kind` that differ in ids, numbers, addresses, lengths of time and quoted values
    alone. A group is found, requeued and discarded with its `name` and its `kind` as `error_like`. `more`:
    others died before those that were looked at, in two calls."""
    found = await queue_of(request).dead.by_error(limit=arguments(request)["limit"])
    groups = [asdict(group) for group in found.groups]
    return JsonAnswer({"groups": groups, "looked": found.looked, "more": found.more})


def _answer(request: Request, altered: Altered) -> Response:
    """The answer to a change of one job. Raises Problem where it was not made."""
    if altered.done:
        return JsonAnswer({"id": altered.job, "state": altered.state})
    if altered.state == "gone":
        raise unknown(request)
    more: dict[str, Any] = {"state": altered.state} if altered.holder is None else {"holder": altered.holder}
    words = {
        "changed": f"The job is {altered.state}.",
        "held": f"The job {altered.holder} has its unique key by now.",
        "corrupt": "Nobody can read this job.",
    }
    raise Problem(409, words[altered.result], **more)
