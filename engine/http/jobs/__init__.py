"""The job API, below `/api`, and that of Bananas, below `/api/v1`."""

from __future__ import annotations

from typing import Any

from starlette.routing import BaseRoute, Route

from engine.http.jobs import bananas, events, jobs, queues

_QUEUE = "/api/queues/{queue}"
_JOB = f"{_QUEUE}/jobs/{{id}}"
_SCHEDULE = f"{_QUEUE}/schedules/{{schedule}}"

#: Method, path and endpoint of each; everything else is declared with the endpoint.
_ROUTES: tuple[tuple[str, str, Any], ...] = (
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
    ("POST", f"{_JOB}/discard", jobs.discard),
    ("POST", f"{_QUEUE}/dead/requeue", jobs.requeue_dead),
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
    ("POST", "/api/v1/jobs", bananas.submit),
    ("GET", "/api/v1/jobs", bananas.list_jobs),
    ("GET", "/api/v1/jobs/{id}", bananas.get_job),
    ("GET", "/api/v1/metrics", bananas.metrics),
    ("GET", "/api/v1/health", bananas.health),
)


def routes() -> list[BaseRoute]:
    """Its routes."""
    return [Route(path, endpoint, methods=[method]) for method, path, endpoint in _ROUTES]
