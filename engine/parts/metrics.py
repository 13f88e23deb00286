"""A queue's numbers as Prometheus reads them (text exposition format 0.0.4)."""

from __future__ import annotations

from engine.operations import Counts

#: States of jobs, each a field of Counts.
_STATES = ("waiting", "delayed", "blocked", "active", "dead", "done")


def exposition(queue: str, counts: Counts) -> str:
    """The numbers of one queue. A queue's name needs no escape."""
    lines = [
        "# HELP ironclaim_jobs Jobs in each state; done keeps the last 1,000 only.",
        "# TYPE ironclaim_jobs gauge",
        *(f'ironclaim_jobs{{queue="{queue}",state="{state}"}} {getattr(counts, state)}' for state in _STATES),
        "# HELP ironclaim_jobs_finished_total Jobs that have ever finished.",
        "# TYPE ironclaim_jobs_finished_total counter",
        f'ironclaim_jobs_finished_total{{queue="{queue}"}} {counts.finished}',
        "# HELP ironclaim_jobs_buried_total Times that a job was buried.",
        "# TYPE ironclaim_jobs_buried_total counter",
        f'ironclaim_jobs_buried_total{{queue="{queue}"}} {counts.buried}',
    ]
    return "\n".join(lines) + "\n"
