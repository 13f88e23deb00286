"""The page for operators: queues, jobs, workers, schedules and limits, to look at and, where that is allowed,
to change.

`looks` reads, at most two calls a view; `views` makes of it what the templates show; `reading` and `changing`
are the endpoints; `live` samples a queue for all who look at it.
"""

from __future__ import annotations

from pathlib import Path

from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from engine.http.page import changing, reading
from engine.http.settings import HttpSettings

STATIC = Path(__file__).with_name("static")


def routes(settings: HttpSettings) -> list[BaseRoute]:
    """Its routes: views to look at, and changes that are posted."""
    of_queue, of_job = "/queues/{queue}", "/queues/{queue}/jobs/{id}"
    views = {
        "/": reading.home,
        "/queues": reading.queues,
        of_queue: reading.queue,
        f"{of_queue}/summary": reading.queue_summary,
        f"{of_queue}/live": reading.live,
        f"{of_queue}/jobs": reading.queue_jobs,
        f"{of_queue}/find": reading.find_job,
        of_job: reading.queue_job,
        f"{of_job}/events": reading.job_events,
        f"{of_queue}/dead": reading.queue_dead,
        f"{of_queue}/bulk": reading.bulk_preview,
        f"{of_queue}/bulk/count": reading.bulk_count,
        f"{of_queue}/schedules": reading.queue_schedules,
        f"{of_queue}/workers": reading.queue_workers,
        f"{of_queue}/limits": reading.queue_limits,
        **({"/channels": reading.channel_lags} if settings.channels is not None else {}),
        "/runs": reading.drills,
        "/runs/{run}": reading.report,
        "/sign-in": changing.sign_in_form,
    }
    changes = {
        f"{of_job}/{{action}}": changing.change_job,
        f"{of_queue}/bulk": changing.change_many,
        f"{of_queue}/pause": changing.pause,
        f"{of_queue}/resume": changing.resume,
        f"{of_queue}/limits": changing.set_limit,
        f"{of_queue}/limits/remove": changing.remove_limit,
        f"{of_queue}/schedules/{{schedule}}/remove": changing.remove_schedule,
        f"{of_queue}/schedules/{{schedule}}/{{action}}": changing.change_schedule,
        f"{of_queue}/workers/{{worker}}/{{action}}": changing.change_worker,
        "/sign-in": changing.sign_in,
        "/sign-out": changing.sign_out,
    }
    return [
        *(Route(path, endpoint, methods=["GET"]) for path, endpoint in views.items()),
        *(Route(path, endpoint, methods=["POST"]) for path, endpoint in changes.items()),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
