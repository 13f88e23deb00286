"""The page for operators: queues, jobs, workers, schedules and limits, to look at and, where that is allowed,
to change.

`looks` reads, at most two calls a view; `views` makes of it what the templates show; `reading` and `changing`
are the endpoints; `live` samples a queue for all who look at it.
"""

from __future__ import annotations

from pathlib import Path

from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from engine.http.page import endpoints
from engine.http.settings import HttpSettings

STATIC = Path(__file__).with_name("static")


def routes(settings: HttpSettings) -> list[BaseRoute]:
    """Its routes: views to look at, and changes that are posted."""
    of_queue, of_job = "/queues/{queue}", "/queues/{queue}/jobs/{id}"
    views = {
        "/": endpoints.home,
        "/queues": endpoints.queues,
        of_queue: endpoints.queue,
        f"{of_queue}/summary": endpoints.queue_summary,
        f"{of_queue}/live": endpoints.live,
        f"{of_queue}/jobs": endpoints.queue_jobs,
        f"{of_queue}/find": endpoints.find_job,
        of_job: endpoints.queue_job,
        f"{of_job}/events": endpoints.job_events,
        f"{of_queue}/dead": endpoints.queue_dead,
        f"{of_queue}/bulk": endpoints.bulk_preview,
        f"{of_queue}/bulk/count": endpoints.bulk_count,
        f"{of_queue}/schedules": endpoints.queue_schedules,
        f"{of_queue}/workers": endpoints.queue_workers,
        f"{of_queue}/limits": endpoints.queue_limits,
        **({"/channels": endpoints.channel_lags} if settings.channels is not None else {}),
        "/runs": endpoints.drills,
        "/runs/{run}": endpoints.report,
        "/sign-in": endpoints.sign_in_form,
    }
    changes = {
        f"{of_job}/{{action}}": endpoints.change_job,
        f"{of_queue}/bulk": endpoints.change_many,
        f"{of_queue}/pause": endpoints.pause,
        f"{of_queue}/resume": endpoints.resume,
        f"{of_queue}/limits": endpoints.set_limit,
        f"{of_queue}/limits/remove": endpoints.remove_limit,
        f"{of_queue}/schedules/{{schedule}}/remove": endpoints.remove_schedule,
        f"{of_queue}/schedules/{{schedule}}/{{action}}": endpoints.change_schedule,
        f"{of_queue}/workers/{{worker}}/{{action}}": endpoints.change_worker,
        "/sign-in": endpoints.sign_in,
        "/sign-out": endpoints.sign_out,
    }
    return [
        *(Route(path, endpoint, methods=["GET"]) for path, endpoint in views.items()),
        *(Route(path, endpoint, methods=["POST"]) for path, endpoint in changes.items()),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
