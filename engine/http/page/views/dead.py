"""Dead jobs, grouped by name and error."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.http.page.words import last_line
from engine.queue.looks import JobInfo, JobPage

#: The class of an exception at the start of an error's last line: `ValueError`, `module.Error`.
_CLASS = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}")


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Jobs of one name that died of the same kind of error: how many of those looked at, when the last one died, its error and
    its id. `error` are words that a filter finds them by, '' where there are none."""

    name: str
    error: str
    count: int
    last_ms: int
    example: str
    job: str


@dataclass(frozen=True, slots=True)
class DeadJobs:
    """The groups among the `seen` jobs that died last; `more`: there are others."""

    groups: tuple[DeadGroup, ...]
    seen: int
    more: bool
    now_ms: int


def dead_jobs(found: JobPage) -> DeadJobs:
    """Group the dead jobs of one look, the largest group first."""
    groups: dict[tuple[str, str], DeadGroup] = {}
    for job in found.jobs:
        kind = error_class(job)
        known = groups.get((job.name, kind))
        if known is None or job.ended_ms > known.last_ms:
            example = job.unreadable or last_line(job.last_error)
            newest = DeadGroup(job.name, kind, 0, job.ended_ms, example, job.id)
        else:
            newest = known
        count = 1 + (known.count if known is not None else 0)
        groups[job.name, kind] = DeadGroup(job.name, kind, count, newest.last_ms, newest.example, newest.job)
    ordered = sorted(groups.values(), key=lambda group: (-group.count, -group.last_ms, group.name))
    return DeadJobs(tuple(ordered), found.looked, found.next is not None, found.srv_us // 1000)


def error_class(job: JobInfo) -> str:
    """The class of a job's last error, '' where its last line begins with none."""
    match = _CLASS.match(last_line(job.last_error))
    return match[0].rstrip(".") if match else ""
