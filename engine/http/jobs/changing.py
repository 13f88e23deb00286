"""Changes jobs that are there: cancels, lets run, discards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from engine import validate
from engine.errors import EngineError, Malformed, PartlyEnqueued
from engine.http.answers import JsonAnswer, Problem, bad_value, json_object, only, problem_of
from engine.http.describing import Header, described
from engine.http.jobs import schemas
from engine.http.jobs.looking import unknown
from engine.http.opening import queue_of
from engine.http.security.access import access_of, needs, noted, refuse_elsewhere
from engine.ops.admin import Altered
from engine.ops.jobs import Enqueued, reroute_target
from engine.options import nearest
from engine.queue.producing import NewJob

# -- What a job says of other queues, held against the queues of whoever makes it: the job itself is
# carried out by a worker, which knows of no token. So what leads out of the caller's queues is refused
# when the job comes in, and nothing of it is stored.

#: Options that are jobs themselves, with options of their own.
CALLBACKS = ("on_success", "on_failure")


def refuse_reroutes(request: Request, field: str, given: object) -> None:
    """Raise Problem where `reroute_on`, as a caller has sent it, names a queue that the caller does not
    reach. What is no mapping of texts is left to the check of the option."""
    if isinstance(given, Mapping):
        _refuse(request, field, cast("Mapping[Any, Any]", given).items())


def refuse_shared(request: Request, of: str, id: object, options: Mapping[str, Any]) -> None:
    """Raise Problem for an id, or a text of `dedup`, that the format would hold against the jobs of all
    queues, where the caller does not reach all of them: a job of another queue would then count as a
    duplicate."""
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
        raise bad_value("jobs", cast("object", found), f"a list of 1 to {schemas.BATCH_MAX} jobs")
    key = own_key(request)
    if key is not None and len(key) > schemas.BATCH_KEY_CHARACTERS_MAX:
        raise bad_value(KEY_HEADER, key, f"a text of at most {schemas.BATCH_KEY_CHARACTERS_MAX} characters")
    made: list[NewJob] = []
    for at, job in enumerate(jobs):
        if not isinstance(job, dict):
            raise bad_value(f"jobs[{at}]", job, "an object of JSON")
        name, payload, id, options = _fields(request, cast("dict[str, Any]", job), f"jobs[{at}].")
        id = f"{key}.{at}" if id is None and key is not None else id
        refuse_elsewhere(request, id)
        refuse_shared(request, f"jobs[{at}].", id, options)
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
            raise bad_value(f"{of}{name}", value, f"a member of a job{nearest(name, schemas.JOB_FIELDS)}")
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
        raise bad_value(of, found, "an object of JSON: a job")
    name, payload, id, options = _fields(request, cast("dict[str, Any]", found), f"{of}.")
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


@described("Let a dead job run again", answers=_ANSWERS)
@needs("operate", changes=True)
async def requeue(request: Request) -> Response:
    """409 where it is not dead, or another job has its unique key by now."""
    return _answer(request, await queue_of(request).dead.requeue(request.path_params["id"]))


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
