"""A queue's numbers as Prometheus reads them (text exposition format 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.queue.durations import Durations, HandlerTimes
from engine.wire.operations import Counts

#: States of jobs, each a field of Counts.
_STATES = ("waiting", "delayed", "blocked", "active", "dead", "done")
#: Every second bucket from 66 us to 73 minutes, so that each bound is twice the one before; what is shorter is in the
#: first one. The same for every name: Prometheus adds histograms with equal bounds only.
_LE_BUCKETS = tuple(range(32, 85, 2))


def exposition(queue: str, counts: Counts, times: Iterable[HandlerTimes] = ()) -> str:
    """The numbers of one queue. A queue's name and those of jobs need no escape."""
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
        "# HELP ironclaim_run_seconds How long handlers took, as workers have told it.",
        "# TYPE ironclaim_run_seconds histogram",
    ]
    for found in times:
        for outcome, durations in (("succeeded", found.succeeded), ("failed", found.failed)):
            if durations.count:
                lines += _histogram(f'queue="{queue}",name="{found.name}",outcome="{outcome}"', durations)
    return "\n".join(lines) + "\n"


def _histogram(labels: str, durations: Durations) -> Iterator[str]:
    for bound in _LE_BUCKETS:
        count = sum(runs for bucket, runs in durations.buckets if bucket <= bound)
        # An even bucket ends at a power of two: nine decimals are exact.
        le = f"{2 ** (bound // 2) / 1e9:.9f}".rstrip("0")
        yield f'ironclaim_run_seconds_bucket{{{labels},le="{le}"}} {count}'
    yield f'ironclaim_run_seconds_bucket{{{labels},le="+Inf"}} {durations.count}'
    yield f"ironclaim_run_seconds_sum{{{labels}}} {durations.total_us / 1e6:.6f}"
    yield f"ironclaim_run_seconds_count{{{labels}}} {durations.count}"
