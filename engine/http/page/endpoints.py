"""The endpoints of the page. A view asks the server at most twice; a change is a form that is posted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from engine import validate
from engine.channel import settings
from engine.errors import UnsupportedFeature, json_text
from engine.http.access import access_of, form_of, public, refuse_foreign, still_admitted
from engine.http.access import sign_in as begin_session
from engine.http.access import sign_out as end_session
from engine.http.answers import Problem
from engine.http.describing import DIGITS_MAX, digits
from engine.http.jobs.events import EventStream
from engine.http.jobs.jobs import refuse_schedule
from engine.http.opening import Waits, queue_of
from engine.http.page import job_views, queue_views, rendering
from engine.http.page.live import Sampler, Samplers
from engine.http.page.looks import alive, held, looks_at
from engine.http.page.rendering import notice_of, view, word_of
from engine.http.settings import HttpSettings
from engine.models import dsps
from engine.ops.admin import Altered, Window
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.looks import PLACES_MAX
from engine.redis.endpoint import Endpoint

#: Queues of one view: their numbers are asked for when they come into sight, each by a request of its own.
QUEUES_MAX = 500
_OFFSET_MAX = 100_000
#: Jobs of a list that shows all of them; a filtered one looks at more.
_JOBS_SHOWN = 50

#: What a report may do: it is a file of its own, with its styles inline, and from other runs than ours.
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors "
    "'none'; base-uri 'none'; sandbox"
)


def settings_of(request: Request) -> HttpSettings:
    """The settings of the application."""
    return request.app.state.settings


def samplers_of(request: Request) -> Samplers:
    """The samplers of the application."""
    state = request.app.state
    if not hasattr(state, "samplers"):
        state.samplers = Samplers()
    return state.samplers


def queue_page(request: Request, template: str, tab: str, **shown: Any) -> Response:
    """A page of one queue."""
    name = request.path_params["queue"]
    return rendering.page(
        request, template, queue=name, tab=tab, notice=notice_of(request.query_params), **shown
    )


@view("read")
async def home(request: Request) -> Response:
    """The first page is that of the queues."""
    return RedirectResponse(rendering.address(request, "queues"), 303)


@view("read")
async def queues(request: Request) -> Response:
    """The queues of the server, last used first."""
    found = await request.app.state.opened.queues(QUEUES_MAX)
    access = access_of(request)
    reached = [info for info in found if access.reaches(info.name)]
    return rendering.page(request, "queues.html", queues=reached, cut=len(found) == QUEUES_MAX)


@view("read")
async def queue_summary(request: Request) -> Response:
    """The numbers of one queue, as a row of the list."""
    opened = queue_of(request)
    counts, found = await opened.counts(one_call=True), await held(opened)
    living = await alive(opened) if counts.waiting else None
    shown = queue_views.held(found, counts.srv_us // 1000, idle=not counts.waiting, alive=living)
    tiles = queue_views.tiles(counts, counts.waiting, least=bool(counts.cursor))
    return rendering.page(
        request, "queue_summary.html", queue=request.path_params["queue"], tiles=tiles, held=shown
    )


@view("read")
async def queue(request: Request) -> Response:
    """One queue at a glance, with charts that go on by themselves."""
    opened = queue_of(request)
    sampler = samplers_of(request).of(opened)
    counts, found = await opened.counts(one_call=True), await held(opened)
    now_ms = counts.srv_us // 1000
    # A sampler that is at work may have been through all lanes.
    known = sampler.watched and not sampler.waiting.least
    waiting, least = (sampler.waiting.waiting, False) if known else (counts.waiting, bool(counts.cursor))
    tiles = queue_views.tiles(counts, waiting, least=least)
    living = await alive(opened) if waiting else None
    shown = queue_views.held(found, now_ms, idle=not waiting, alive=living)
    return queue_page(request, "queue.html", "overview", tiles=tiles, held=shown, counts=counts)


@view("read")
async def live(request: Request) -> Response:
    """The samples of a queue as they are taken: server-sent events."""
    sampler, waits = samplers_of(request).of(queue_of(request)), request.app.state.waits
    stack = AsyncExitStack()
    stack.enter_context(waits.one_more())
    stack.enter_context(sampler.watching())
    return EventStream(_samples(request, sampler, waits), stack)


async def _samples(request: Request, sampler: Sampler, waits: Waits) -> AsyncGenerator[bytes]:
    yield _event("samples", [sample.fields() for sample in sampler.samples])
    shown = None
    # Who comes back asks the queue as it is by then.
    while not (waits.ending.is_set() or await request.app.state.opened.is_outdated(sampler.queue)):
        sample = await sampler.next()
        if not await still_admitted(request, "read"):
            return
        yield _event("samples", [sample.fields()])
        found = sampler.obstacles.whole
        # Until the workers are known, what the page came with knows more.
        if found is not None and found is not shown and sampler.workers is not None:
            shown = found
            living = sampler.workers.alive
            reasons = queue_views.held(found, sample.at_ms, idle=not sample.waiting, alive=living)
            yield _event(
                "held", rendering.text(request, "held.html", queue=request.path_params["queue"], held=reasons)
            )


def _event(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {json_text(data, spaced=True)}\n\n".encode()


@view("read")
async def queue_jobs(request: Request) -> Response:
    """The jobs of a state, filtered, one look at a time."""
    wanted = job_views.filter_of(request.query_params)
    payloads = settings_of(request).show_payloads
    most = PLACES_MAX if wanted.narrow else _JOBS_SHOWN
    found = await queue_of(request).jobs.page(
        wanted.state, offset=wanted.cursor, newest_first=wanted.newest, limit=most
    )
    listed = job_views.job_list(found, wanted, payloads=payloads)
    actions = job_views.BULK_ACTIONS.get(wanted.state, ())
    return queue_page(request, "jobs.html", "jobs", wanted=wanted, listed=listed, actions=actions)


@view("read")
async def find_job(request: Request) -> Response:
    """The job whose id was typed in."""
    id = queue_of(request).model.names.known_id(request.query_params.get("id", "").strip())
    return RedirectResponse(
        rendering.address(request, "queues", request.path_params["queue"], "jobs", id), 303
    )


@view("read")
async def queue_job(request: Request) -> Response:
    """One job."""
    id = queue_of(request).model.names.known_id(request.path_params["id"])
    found = await looks_at(queue_of(request)).job(id)
    if found is None:
        raise Problem(404, f"Queue {request.path_params['queue']} knows no job {id}, or no longer.")
    shown = job_views.job_view(found, payloads=settings_of(request).show_payloads)
    return queue_page(request, "job.html", "jobs", view=shown)


@view("read")
async def job_events(request: Request) -> Response:
    """What the queue has recorded of a job, as a part of its page."""
    id, since = queue_of(request).model.names.known_id(request.path_params["id"]), _number(request, "since")
    found, more = await looks_at(queue_of(request)).events_of(id, since)
    return rendering.page(request, "job_events.html", moments=job_views.recorded(found), more=more)


@view("read")
async def queue_dead(request: Request) -> Response:
    """The dead jobs by error."""
    found = await queue_of(request).dead.by_error(limit=PLACES_MAX)
    return queue_page(request, "dead.html", "dead", found=found, now_ms=found.srv_us // 1000)


@view("read")
async def queue_history(request: Request) -> Response:
    """How jobs have ended: what became of order 7."""
    asked, opened = queue_views.history_asked(request.query_params), queue_of(request)
    try:
        found = await opened.history.list(**asked.options)
    except UnsupportedFeature:
        return queue_page(request, "history.html", "history", listed=None, wanted=asked)
    now_ms = await opened.driver.server_now_ms()
    listed = queue_views.history_list(found, now_ms, payloads=settings_of(request).show_payloads)
    return queue_page(request, "history.html", "history", listed=listed, wanted=asked)


@view("read")
async def bulk_preview(request: Request) -> Response:
    """How many jobs an action on many would change."""
    wanted, counted, action = await _counted(request)
    return queue_page(
        request,
        "bulk.html",
        "jobs",
        wanted=wanted,
        counted=counted,
        action=action,
        most=job_views.CHANGED_MAX,
    )


@view("read")
async def bulk_count(request: Request) -> Response:
    """The same, some jobs further, as a part of its page."""
    wanted, counted, action = await _counted(request)
    name = request.path_params["queue"]
    return rendering.page(
        request, "bulk_count.html", queue=name, wanted=wanted, counted=counted, action=action
    )


async def _counted(request: Request) -> tuple[job_views.Filter, job_views.Count, str]:
    wanted = job_views.filter_of(request.query_params)
    action = job_views.action_of(request.query_params.get("action", ""), wanted.state)
    before = job_views.Count(_number(request, "matched"), _number(request, "seen"), wanted.cursor, False)
    counted = await job_views.count(
        queue_of(request), wanted, before, payloads=settings_of(request).show_payloads
    )
    return wanted, counted, action


@view("read")
async def queue_schedules(request: Request) -> Response:
    """The schedules, by next tick."""
    offset, opened = _number(request, "offset"), queue_of(request)
    found = await opened.schedules.list(offset=offset, limit=queue_views.ROWS_MAX + 1)
    listed = queue_views.schedule_list(found, offset, await opened.driver.server_now_ms())
    return queue_page(request, "schedules.html", "schedules", listed=listed)


@view("read")
async def queue_workers(request: Request) -> Response:
    """The workers with what each has in hand."""
    offset = _number(request, "offset")
    found = await looks_at(queue_of(request)).workers(offset)
    return queue_page(request, "workers.html", "workers", listed=queue_views.worker_list(found, offset))


@view("read")
async def queue_limits(request: Request) -> Response:
    """Pauses and limits."""
    found = await held(queue_of(request))
    return queue_page(request, "limits.html", "limits", listed=queue_views.limit_list(found))


@view("read")
async def channel_lags(request: Request) -> Response:
    """The subscribers of channels, and how far each is behind: some keys of the server a look."""
    if Endpoint(settings_of(request).url).is_cluster:
        raise UnsupportedFeature("On a cluster the subscribers of channels are not looked for.")
    opened, access = request.app.state.opened, access_of(request)
    wanted = request.query_params.get("channel", "").strip()
    found = await opened.run(
        dsps.subscribers(_number(request, "cursor"), settings.check_id("channel", wanted) if wanted else None)
    )
    reached = [pair for pair in found.found if access.reaches(pair[0])]
    known = await opened.run(dsps.lags(reached)) if reached else ()
    return rendering.page(
        request, "channels.html", listed=queue_views.channel_list(known, found.cursor), wanted=wanted
    )


@view("read")
async def drills(request: Request) -> Response:
    """The runs of drills."""
    return rendering.page(
        request, "runs.html", listed=await run_in_threadpool(queue_views.run_list, _folder(request))
    )


@view("read")
async def report(request: Request) -> Response:
    """The report of a run, as the judge has written it."""
    path = await run_in_threadpool(queue_views.report_of, _folder(request), request.path_params["run"])
    if path is None:
        raise Problem(404, "There is no report of this run.")
    headers = {"Content-Security-Policy": REPORT_POLICY}
    return Response(await run_in_threadpool(path.read_bytes), media_type="text/html", headers=headers)


def _folder(request: Request) -> Path:
    folder = settings_of(request).runs
    if folder is None:
        raise Problem(404, "No folder of runs is served here: --runs names one.")
    # Runs are of the harness, and not of a queue that a token may be bound to.
    access = access_of(request)
    if access.queues:
        raise Problem(403, f"{access.name} is for {', '.join(access.queues)} alone.")
    return folder


def _number(request: Request, field: str) -> int:
    """A number of an address, 0 where there is none. Raises Malformed."""
    value = request.query_params.get(field, "0")
    number = digits(value)
    if number is None:
        raise _no_number(field, value)
    most = {"since": validate.INSTANT_MS_MAX, "cursor": 2**64 - 1}.get(field, _OFFSET_MAX)
    return validate.integer(field, number, 0, most)


def _no_number(field: str, value: str) -> Problem:
    bound = f"a whole number of at most {DIGITS_MAX} digits"
    return Problem(422, f"{field} is {bound}.", field=field, value=value, bound=bound)


# -- The changes: forms that are posted, each with the token of the browser, and then the view that shows
# the new state.

_ON_A_JOB: dict[str, Callable[[AsyncQueue, str], Awaitable[Altered]]] = {
    "cancel": lambda queue, id: queue.jobs.cancel(id),
    "run_now": lambda queue, id: queue.jobs.run_now(id),
    "remove": lambda queue, id: queue.jobs.remove(id),
    "requeue": lambda queue, id: queue.dead.requeue(id),
    "requeue_with_children": lambda queue, id: queue.dead.requeue(id, with_children=True),
    "discard": lambda queue, id: queue.dead.discard(id),
}


def back(request: Request, *segments: str, did: str, count: int = 0) -> Response:
    """The view that shows what was changed."""
    query = f"did={did}" + (f"&count={count}" if count else "")
    return RedirectResponse(
        rendering.address(request, "queues", request.path_params["queue"], *segments, query=query), 303
    )


@view("operate", changes=True)
async def change_job(request: Request) -> Response:
    """Do something to one job."""
    id, action = request.path_params["id"], request.path_params["action"]
    act = _ON_A_JOB.get(action)
    if act is None:
        raise Problem(404, "There is no such action.")
    return back(request, "jobs", id, did=word_of(action, await act(queue_of(request), id)))


@view("operate", changes=True)
async def change_many(request: Request) -> Response:
    """Do something to the jobs that a filter means."""
    form = await form_of(request)
    wanted = job_views.filter_of({**form, "cursor": "0"})
    action = job_views.action_of(form.get("action", ""), wanted.state)
    most = min(job_views.CHANGED_MAX, job_views.checked_limit(form.get("limit", "")))
    payloads = settings_of(request).show_payloads
    done = await job_views.change(queue_of(request), action, wanted, most, payloads=payloads)
    return back(request, *(("dead",) if wanted.state == "dead" else ("jobs",)), did="bulk", count=done)


@view("operate", changes=True)
async def pause(request: Request) -> Response:
    """Pause the queue, or a name."""
    form = await form_of(request)
    await queue_of(request).pause(form.get("name") or None, length_ms=_form_seconds(form, "length_s"))
    return back(request, *_from(form), did="paused")


@view("operate", changes=True)
async def resume(request: Request) -> Response:
    """End the pause of the queue, or of a name."""
    form = await form_of(request)
    was_paused = await queue_of(request).resume(form.get("name") or None)
    return back(request, *_from(form), did="resumed" if was_paused else "not-paused")


@view("admin", changes=True)
async def set_limit(request: Request) -> Response:
    """Define or replace a limit."""
    form = await form_of(request)
    name, key = _of(form)
    await queue_of(request).set_limit(
        name,
        key=key,
        concurrency=_form_number(form, "concurrency"),
        rate=_form_number(form, "rate"),
        per_ms=_form_seconds(form, "per_s"),
        window=cast("Window", form.get("window", "sliding")),
    )
    return back(request, "limits", did="limit")


@view("admin", changes=True)
async def remove_limit(request: Request) -> Response:
    """Remove a limit."""
    name, key = _of(await form_of(request))
    await queue_of(request).remove_limit(name, key=key)
    return back(request, "limits", did="no-limit")


@view("operate", changes=True)
async def change_schedule(request: Request) -> Response:
    """Enable, disable or run a schedule."""
    schedules, name = queue_of(request).schedules, request.path_params["schedule"]
    match request.path_params["action"]:
        case "enable":
            await refuse_schedule(request)
            did = "schedule" if await schedules.enable(name) else "no-schedule"
        case "disable":
            did = "schedule" if await schedules.disable(name) else "no-schedule"
        case "run-now":
            await refuse_schedule(request)
            did = "ran" if await schedules.run_now(name) is not None else "no-schedule"
        case _:
            raise Problem(404, "There is no such action.")
    return back(request, "schedules", did=did)


@view("admin", changes=True)
async def remove_schedule(request: Request) -> Response:
    """Remove a schedule; its jobs stay."""
    removed = await queue_of(request).schedules.remove(request.path_params["schedule"])
    return back(request, "schedules", did="schedule" if removed else "no-schedule")


@view("operate", changes=True)
async def change_worker(request: Request) -> Response:
    """Pause or resume a worker, or set how many handlers it runs at once."""
    workers, name = queue_of(request).workers, request.path_params["worker"]
    form = await form_of(request)
    match request.path_params["action"]:
        case "pause":
            await workers.pause(name, length_ms=_form_seconds(form, "length_s"))
        case "resume":
            await workers.resume(name)
        case "concurrency":
            await workers.set_concurrency(name, _form_number(form, "concurrency") or None)
        case _:
            raise Problem(404, "There is no such action.")
    return back(request, "workers", did="worker")


@public
async def sign_in_form(request: Request) -> Response:
    """Where a token is shown for a session."""
    return rendering.page(request, "sign_in.html", refused=False)


@public
async def sign_in(request: Request) -> Response:
    """Begin a session."""
    await refuse_foreign(request)
    answer: Response = RedirectResponse(rendering.address(request, "queues"), 303)
    if begin_session(request, answer, (await form_of(request)).get("token", "")) is None:
        return rendering.page(request, "sign_in.html", 401, refused=True)
    return answer


@public
async def sign_out(request: Request) -> Response:
    """End a session."""
    await refuse_foreign(request)
    answer = RedirectResponse(rendering.address(request, "sign-in"), 303)
    end_session(request, answer)
    return answer


def _of(form: dict[str, str]) -> tuple[str | None, str | None]:
    """What a limit is of: a name, or a key."""
    target = form.get("target", "")
    return (target, None) if form.get("of") == "name" else (None, target)


def _from(form: dict[str, str]) -> tuple[str, ...]:
    """The view that a form stood on."""
    return ("limits",) if form.get("view") == "limits" else ()


def _form_number(form: dict[str, str], field: str) -> int:
    """A number of a form; an empty field is 0. Raises Problem."""
    value = form.get(field, "").strip() or "0"
    number = digits(value)
    if number is None:
        raise _no_number(field, value)
    return number


def _form_seconds(form: dict[str, str], field: str) -> int:
    """A length of a form, which has it in seconds, in ms. Raises Problem and Malformed."""
    return 1_000 * validate.integer(field, _form_number(form, field), 0, validate.DURATION_MS_MAX // 1_000)
