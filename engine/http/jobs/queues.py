"""Queues as a whole: what is in them, who works for them, what holds jobs back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from engine import validate
from engine.errors import UnsupportedFeature
from engine.http.access import access_of, needs
from engine.http.answers import JsonAnswer, Problem, json_object, only
from engine.http.describing import arguments, choice, described, name_of, whole
from engine.http.jobs import schemas
from engine.http.jobs.jobs import past_view, refuse_schedule, schedule_view, worker_view
from engine.http.opening import queue_of
from engine.queue.admin import LIMIT_MAX, PIECE
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.history import OUTCOMES
from engine.validate import DURATION_MS_MAX

_OFFSET = whole("offset", "rank of the first one", 0, 1_000_000, 0)
_NEXT = {"type": ["integer", "null"]}


@described(
    "The queues of the server, last used first",
    query=(whole("limit", "how many", 1, LIMIT_MAX, 1_000),),
    answers={
        200: schemas.list_of("queues", schemas.shown(queue={"type": "string"}, used_ms={"type": "integer"}))
    },
)
@needs("read")
async def list_queues(request: Request) -> Response:
    """Those that the caller reaches."""
    found = await request.app.state.opened.queues(arguments(request)["limit"])
    reaches = access_of(request).reaches
    return JsonAnswer(
        {"queues": [{"queue": info.name, "used_ms": info.used_ms} for info in found if reaches(info.name)]}
    )


@described(
    "A queue: how many jobs are in each state, and what holds them back", answers={200: schemas.any_object()}
)
@needs("read")
async def get_queue(request: Request) -> Response:
    """Two calls, however many jobs and lanes there are: `cut` says that there are more lanes than were looked
    at."""
    queue = queue_of(request)
    found = await queue.counts(one_call=True)
    # `done` and `buried` are the former names of two of them, for one release.
    counts = asdict(found) | {"finished_kept": found.finished_kept, "dead_total": found.dead_total}
    srv_us, cursor = counts.pop("srv_us"), counts.pop("cursor")
    view: dict[str, Any] = {
        "queue": queue.name,
        "model": queue.model.name,
        "srv_ms": srv_us // 1000,
        "counts": counts,
    }
    return JsonAnswer({**view, **await _held(queue), "waiting_is_cut": bool(cursor)})


@described(
    "The numbers of a queue as Prometheus reads them",
    answers={200: {"type": "string"}},
    media_type="text/plain",
)
@needs("read")
async def get_metrics(request: Request) -> Response:
    """All of them, so it takes more calls the more lanes and names of jobs there are."""
    text = await queue_of(request).metrics(scaling=request.app.state.settings.scaling)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


@described(
    "The workers of a queue, those whose heartbeats expire first",
    query=(_OFFSET, whole("limit", "how many", 1, 1_000, 100)),
    answers={200: schemas.list_of("workers", schemas.any_object(), next=_NEXT)},
)
@needs("read")
async def list_workers(request: Request) -> Response:
    """Who works for it, and what each has in hand."""
    given = arguments(request)
    found = await queue_of(request).workers.list(**given)
    after = given["offset"] + given["limit"] if len(found) == given["limit"] else None
    return JsonAnswer({"workers": [worker_view(worker) for worker in found], "next": after})


@described(
    "The schedules of a queue, by next tick",
    query=(_OFFSET, whole("limit", "how many", 1, 100, 100)),
    answers={200: schemas.list_of("schedules", schemas.any_object(), next=_NEXT)},
)
@needs("read")
async def list_schedules(request: Request) -> Response:
    """Jobs that come again and again."""
    given = arguments(request)
    found = await queue_of(request).schedules.list(**given)
    payloads = request.app.state.settings.show_payloads
    after = given["offset"] + given["limit"] if len(found) == given["limit"] else None
    return JsonAnswer(
        {"schedules": [schedule_view(schedule, payloads=payloads) for schedule in found], "next": after}
    )


@described("Let a schedule tick again", answers={200: schemas.any_object()})
@needs("operate", changes=True)
async def enable_schedule(request: Request) -> Response:
    """From its next tick on."""
    await refuse_schedule(request)
    return _of_schedule(request, await queue_of(request).schedules.enable(request.path_params["schedule"]))


@described("Stop the ticks of a schedule until it is enabled", answers={200: schemas.any_object()})
@needs("operate", changes=True)
async def disable_schedule(request: Request) -> Response:
    """Its jobs stay."""
    return _of_schedule(request, await queue_of(request).schedules.disable(request.path_params["schedule"]))


@described("Enqueue one more job of a schedule, beside its ticks", answers={201: schemas.ENQUEUED})
@needs("operate", changes=True)
async def run_schedule(request: Request) -> Response:
    """201 with the job."""
    await refuse_schedule(request)
    found = await queue_of(request).schedules.run_now(request.path_params["schedule"])
    if found is None:
        raise _no_schedule(request)
    return JsonAnswer({"id": found.job, "created": found.created}, 201)


@described(
    "Claim no jobs of a queue, or of a name in it",
    body=schemas.PAUSE,
    needs_body=False,
    answers={200: schemas.any_object()},
)
@needs("operate", changes=True)
async def pause(request: Request) -> Response:
    """Until it is resumed, or for `length_ms`."""
    given = only(await json_object(request, may_be_empty=True), "name", "length_ms")
    await queue_of(request).pause(given.get("name"), length_ms=given.get("length_ms", 0))
    return JsonAnswer({"paused": given.get("name") or "*"})


@described(
    "End the pause of a queue, or of a name in it",
    body=schemas.RESUME,
    needs_body=False,
    answers={200: schemas.any_object()},
)
@needs("operate", changes=True)
async def resume(request: Request) -> Response:
    """`resumed` is false where there was none."""
    given = only(await json_object(request, may_be_empty=True), "name")
    return JsonAnswer({"resumed": await queue_of(request).resume(given.get("name"))})


@described("Set the limit of the jobs of a name", body=schemas.LIMIT, answers={200: schemas.any_object()})
@needs("admin", changes=True)
async def set_limit(request: Request) -> Response:
    """In place of the one that was there."""
    given = only(await json_object(request), *schemas.LIMIT_FIELDS)
    await queue_of(request).set_limit(request.path_params["name"], **given)
    return JsonAnswer({"name": request.path_params["name"], **given})


@described("Remove the limit of the jobs of a name", answers={204: {}})
@needs("admin", changes=True)
async def remove_limit(request: Request) -> Response:
    """Also where there is none."""
    await queue_of(request).remove_limit(request.path_params["name"])
    return Response(status_code=204)


@described(
    "Set the limit of the jobs with a key, * is each key that has none of its own",
    body=schemas.LIMIT,
    answers={200: {}},
)
@needs("admin", changes=True)
async def set_key_limit(request: Request) -> Response:
    """In place of the one that was there."""
    given = only(await json_object(request), *schemas.LIMIT_FIELDS)
    await queue_of(request).set_limit(key=request.path_params["key"], **given)
    return JsonAnswer({"key": request.path_params["key"], **given})


@described("Remove the limit of the jobs with a key", answers={204: {}})
@needs("admin", changes=True)
async def remove_key_limit(request: Request) -> Response:
    """Also where there is none."""
    await queue_of(request).remove_limit(key=request.path_params["key"])
    return Response(status_code=204)


@described("Record the events of a queue from now on", body=schemas.KEEP, needs_body=False, answers={204: {}})
@needs("admin", changes=True)
async def switch_events_on(request: Request) -> Response:
    """The last `keep` stay."""
    given = only(await json_object(request, may_be_empty=True), "keep")
    await queue_of(request).events.on(validate.integer("keep", given.get("keep", 10_000), 1, 1_000_000))
    return Response(status_code=204)


@described("Record no events of a queue any more, and delete those that were", answers={204: {}})
@needs("admin", changes=True)
async def switch_events_off(request: Request) -> Response:
    """Their readers receive nothing any more."""
    await queue_of(request).events.off()
    return Response(status_code=204)


@described(
    "How the jobs of a queue have ended, the latest first",
    query=(
        name_of("key", "only those with this id, key or unique key", schemas.KNOWN_ID_PATTERN),
        name_of("name", "only those of this name", schemas.NAME_PATTERN),
        choice("outcome", "only those that ended like this", ("any", *OUTCOMES), "any"),
        whole(
            "newer_than_ms", "only those that ended not so long ago, 0: at any time", 0, DURATION_MS_MAX, 0
        ),
        whole("older_than_ms", "only those that ended so long ago", 0, DURATION_MS_MAX, 0),
        name_of("cursor", "where the page before has ended", schemas.PLACE_PATTERN),
        whole("limit", "how many", 1, PIECE, 50),
    ),
    answers={200: schemas.list_of("jobs", schemas.PAST_JOB, cursor=schemas.NEXT, history=schemas.OR_NO_RULE)},
)
@needs("read")
async def list_history(request: Request) -> Response:
    """`history` says what is kept, null where nothing is. It looks at the latest 100,000 entries of the time
    that is meant."""
    given, queue = arguments(request), queue_of(request)
    before, limit = given.pop("cursor"), given.pop("limit")
    outcome, newer_than_ms = given.pop("outcome"), given.pop("newer_than_ms") or None
    found = await queue.history.list(
        **given,
        outcome=None if outcome == "any" else outcome,
        newer_than_ms=newer_than_ms,
        before=before,
        limit=limit,
    )
    payloads = request.app.state.settings.show_payloads
    jobs = [past_view(past, payloads=payloads) for past in found]
    cursor = found[-1].place if len(found) == limit else None
    rule = None if found.rule is None else asdict(found.rule)
    return JsonAnswer({"jobs": jobs, "cursor": cursor, "history": rule})


@described("Keep how jobs end from now on", body=schemas.KEEP_HISTORY, needs_body=False, answers={204: {}})
@needs("admin", changes=True)
async def switch_history_on(request: Request) -> Response:
    """In place of the setting that was there; what was kept stays."""
    given = only(await json_object(request, may_be_empty=True), *schemas.KEEP_HISTORY["properties"])
    await queue_of(request).history.on(**given)
    return Response(status_code=204)


@described("Keep no longer how jobs end, and delete what was kept", answers={204: {}})
@needs("admin", changes=True)
async def switch_history_off(request: Request) -> Response:
    """Also where nothing is kept."""
    await queue_of(request).history.off()
    return Response(status_code=204)


async def _held(queue: AsyncQueue) -> dict[str, Any]:
    """What holds its jobs back, in one call; nothing of a format that has no pauses and limits."""
    try:
        held = await queue.obstacles(one_call=True)
    except UnsupportedFeature:
        return {}
    return {
        "oldest_age_ms": held.oldest_age_ms,
        "pauses": [asdict(pause) for pause in held.pauses],
        "limits": [asdict(limit) for limit in held.limits],
        "lanes": [asdict(lane) for lane in held.lanes],
        "cut": held.cut,
    }


def _of_schedule(request: Request, found: bool) -> Response:
    if not found:
        raise _no_schedule(request)
    return JsonAnswer({"schedule": request.path_params["schedule"]})


def _no_schedule(request: Request) -> Problem:
    return Problem(404, f"There is no schedule {request.path_params['schedule']}.", field="schedule")
