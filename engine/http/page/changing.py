"""The changes: forms that are posted, each with the token of the browser, and then the view that shows the
new state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from engine.http.answers import Problem
from engine.http.jobs.changing import refuse_schedule
from engine.http.opening import queue_of
from engine.http.page import rendering
from engine.http.page.reading import settings_of
from engine.http.page.rendering import view, word_of
from engine.http.page.views import jobs
from engine.http.security.access import form_of, public, refuse_foreign
from engine.http.security.access import sign_in as begin_session
from engine.http.security.access import sign_out as end_session
from engine.ops.admin import Altered, Window
from engine.queue.asynchronous.queue import AsyncQueue

_ON_A_JOB: dict[str, Callable[[AsyncQueue, str], Awaitable[Altered]]] = {
    "cancel": lambda queue, id: queue.jobs.cancel(id),
    "run_now": lambda queue, id: queue.jobs.run_now(id),
    "remove": lambda queue, id: queue.jobs.remove(id),
    "requeue": lambda queue, id: queue.dead.requeue(id),
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
    wanted = jobs.filter_of({**form, "cursor": "0"})
    action = jobs.action_of(form.get("action", ""), wanted.state)
    most = min(jobs.CHANGED_MAX, jobs.checked_limit(form.get("limit", "")))
    payloads = settings_of(request).show_payloads
    done = await jobs.change(queue_of(request), action, wanted, most, payloads=payloads)
    return back(request, *(("dead",) if wanted.state == "dead" else ("jobs",)), did="bulk", count=done)


@view("operate", changes=True)
async def pause(request: Request) -> Response:
    """Pause the queue, or a name."""
    form = await form_of(request)
    await queue_of(request).pause(form.get("name") or None, length_ms=1_000 * _form_number(form, "length_s"))
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
        per_ms=1_000 * _form_number(form, "per_s"),
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
            await workers.pause(name, length_ms=1_000 * _form_number(form, "length_s"))
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
    if not value.isascii() or not value.isdigit() or len(value) > 12:
        raise Problem(
            422, f"{field} is a number of at most 12 digits.", field=field, value=value[:80], bound="a number"
        )
    return int(value)
