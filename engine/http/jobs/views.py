"""How jobs, schedules and workers are shown as JSON. Payloads are left out unless they may be seen."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from engine.ops.jobs import Options
from engine.ops.workers import WorkerInfo
from engine.options import PLAIN
from engine.queue.looks import JobInfo, payload_members
from engine.queue.scheduling import Schedule
from engine.routing import read_target

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
    names = ("name", "job_name", "enabled", "next_ms", "last_ms", "last_job", "count", "missed", "skipped", "error")
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
