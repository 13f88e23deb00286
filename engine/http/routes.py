"""Which path is answered by which endpoint: the job API below `/api`, that of Bananas below `/api/v1`, DSPS's
channel API, and the page for operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from engine.http.channels import endpoints as channels
from engine.http.channels.guarding import channel_route, route
from engine.http.jobs import bananas, events, jobs, queues
from engine.http.page import endpoints as page
from engine.http.settings import HttpSettings

_QUEUE = "/api/queues/{queue}"
_JOB = f"{_QUEUE}/jobs/{{id}}"
_SCHEDULE = f"{_QUEUE}/schedules/{{schedule}}"

#: Method, path and endpoint of the job API and of that of Bananas. The rest is declared with the endpoint.
_OF_JOBS: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/api/queues", queues.list_queues),
    ("GET", _QUEUE, queues.get_queue),
    ("GET", f"{_QUEUE}/metrics", queues.get_metrics),
    ("GET", f"{_QUEUE}/jobs", jobs.list_jobs),
    ("POST", f"{_QUEUE}/jobs", jobs.enqueue),
    ("POST", f"{_QUEUE}/jobs/batch", jobs.enqueue_batch),
    ("GET", _JOB, jobs.get_job),
    ("GET", f"{_JOB}/why", jobs.get_why),
    ("GET", f"{_JOB}/result", jobs.get_result),
    ("GET", f"{_JOB}/progress", jobs.get_progress),
    ("POST", f"{_JOB}/cancel", jobs.cancel),
    ("POST", f"{_JOB}/run-now", jobs.run_now),
    ("POST", f"{_JOB}/requeue", jobs.requeue),
    ("GET", f"{_JOB}/workflow", jobs.get_workflow),
    ("POST", f"{_JOB}/workflow/cancel", jobs.cancel_workflow),
    ("POST", f"{_JOB}/workflow/retry", jobs.retry_workflow),
    ("POST", f"{_JOB}/discard", jobs.discard),
    ("GET", f"{_QUEUE}/dead/errors", jobs.list_errors),
    ("POST", f"{_QUEUE}/dead/requeue", jobs.requeue_dead),
    ("POST", f"{_QUEUE}/dead/discard", jobs.discard_dead),
    ("GET", f"{_QUEUE}/workers", queues.list_workers),
    ("GET", f"{_QUEUE}/schedules", queues.list_schedules),
    ("POST", f"{_SCHEDULE}/enable", queues.enable_schedule),
    ("POST", f"{_SCHEDULE}/disable", queues.disable_schedule),
    ("POST", f"{_SCHEDULE}/run-now", queues.run_schedule),
    ("POST", f"{_QUEUE}/pause", queues.pause),
    ("POST", f"{_QUEUE}/resume", queues.resume),
    ("PUT", f"{_QUEUE}/limits/{{name}}", queues.set_limit),
    ("DELETE", f"{_QUEUE}/limits/{{name}}", queues.remove_limit),
    ("PUT", f"{_QUEUE}/key-limits/{{key}}", queues.set_key_limit),
    ("DELETE", f"{_QUEUE}/key-limits/{{key}}", queues.remove_key_limit),
    ("GET", f"{_QUEUE}/events", events.stream_events),
    ("PUT", f"{_QUEUE}/events", queues.switch_events_on),
    ("DELETE", f"{_QUEUE}/events", queues.switch_events_off),
    ("GET", f"{_QUEUE}/history", queues.list_history),
    ("PUT", f"{_QUEUE}/history", queues.switch_history_on),
    ("DELETE", f"{_QUEUE}/history", queues.switch_history_off),
    ("POST", "/api/v1/jobs", bananas.submit),
    ("GET", "/api/v1/jobs", bananas.list_jobs),
    ("GET", "/api/v1/jobs/{id}", bananas.get_job),
    ("GET", "/api/v1/metrics", bananas.metrics),
    ("GET", "/api/v1/health", bananas.health),
)


def job_routes() -> list[BaseRoute]:
    """The job API, and that of Bananas."""
    return [Route(path, endpoint, methods=[method]) for method, path, endpoint in _OF_JOBS]


_SUBSCRIBER = "/subscription/polling/{subscriber}"


def channel_routes() -> list[BaseRoute]:
    """The channel API as the DSPS server has it, with its admin API and its probes."""
    return [
        channel_route("/message/{message}", "PUT", channels.publish),
        channel_route(_SUBSCRIBER, "PUT", channels.subscribe),
        channel_route(_SUBSCRIBER, "DELETE", channels.unsubscribe),
        channel_route(_SUBSCRIBER, "GET", channels.fetch),
        channel_route(f"{_SUBSCRIBER}/message", "DELETE", channels.acknowledge),
        # DSPS has this question in its storages, and no path for it.
        channel_route(f"{_SUBSCRIBER}/message/old", "GET", channels.ask_old),
        channels.admin_route("/jwt/revoke", channels.revoke),
        channels.admin_route("/log/level", channels.set_level),
        route("/probe/liveness", "GET", channels.liveness),
        route("/probe/readiness", "GET", channels.readiness),
    ]


STATIC = Path(__file__).parent / "page/static"


def page_routes(settings: HttpSettings) -> list[BaseRoute]:
    """The page: views to look at, and changes that are posted."""
    of_queue, of_job = "/queues/{queue}", "/queues/{queue}/jobs/{id}"
    views = {
        "/": page.home,
        "/queues": page.queues,
        of_queue: page.queue,
        f"{of_queue}/summary": page.queue_summary,
        f"{of_queue}/live": page.live,
        f"{of_queue}/jobs": page.queue_jobs,
        f"{of_queue}/find": page.find_job,
        of_job: page.queue_job,
        f"{of_job}/events": page.job_events,
        f"{of_queue}/dead": page.queue_dead,
        f"{of_queue}/history": page.queue_history,
        f"{of_queue}/bulk": page.bulk_preview,
        f"{of_queue}/bulk/count": page.bulk_count,
        f"{of_queue}/schedules": page.queue_schedules,
        f"{of_queue}/workers": page.queue_workers,
        f"{of_queue}/limits": page.queue_limits,
        **({"/channels": page.channel_lags} if settings.channels is not None else {}),
        "/runs": page.drills,
        "/runs/{run}": page.report,
        "/sign-in": page.sign_in_form,
    }
    changes = {
        f"{of_job}/{{action}}": page.change_job,
        f"{of_queue}/bulk": page.change_many,
        f"{of_queue}/pause": page.pause,
        f"{of_queue}/resume": page.resume,
        f"{of_queue}/limits": page.set_limit,
        f"{of_queue}/limits/remove": page.remove_limit,
        f"{of_queue}/schedules/{{schedule}}/remove": page.remove_schedule,
        f"{of_queue}/schedules/{{schedule}}/{{action}}": page.change_schedule,
        f"{of_queue}/workers/{{worker}}/{{action}}": page.change_worker,
        "/sign-in": page.sign_in,
        "/sign-out": page.sign_out,
    }
    return [
        *(Route(path, endpoint, methods=["GET"]) for path, endpoint in views.items()),
        *(Route(path, endpoint, methods=["POST"]) for path, endpoint in changes.items()),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
