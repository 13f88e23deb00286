"""A queue's numbers as Prometheus reads them (text exposition format 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.ops.looks import Counts
from engine.queue.durations import Durations, HandlerTimes
from engine.queue.obstacles import Obstacles
from engine.queue.scaling import Demand, Scaling, wanted_workers
from engine.queue.workers import WorkerInfo
from engine.sayable import utf8

#: States of jobs, each a field of Counts.
_STATES = ("waiting", "delayed", "blocked", "active", "dead", "done")
#: Every second bucket from 66 us to 73 minutes, so that each bound is twice the one before; what is shorter is in the
#: first one. The same for every name: Prometheus adds histograms with equal bounds only.
_LE_BUCKETS = tuple(range(32, 85, 2))
#: The format knows one line end; readers that split at others would see half a sample.
_LINE_ENDS = {"\n": "\\n"} | {end: f"\\\\u{ord(end):04x}" for end in "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"}


def exposition(
    queue: str,
    counts: Counts,
    times: Iterable[HandlerTimes] = (),
    workers: Iterable[WorkerInfo] = (),
    held: Obstacles | None = None,
    *,
    demand: Demand,
    scaling: Scaling,
) -> str:
    """The numbers of one queue; without `held` no names, ages and pauses."""
    of = f'queue="{_label(queue)}"'
    alive = [worker for worker in workers if worker.alive]
    places = sum(worker.concurrency for worker in alive)
    families = [
        _family("jobs", "gauge", "Jobs in each state; done keeps the last 1,000 only.", *_states(of, counts)),
        _family("jobs_finished_total", "counter", "Jobs that have ever finished.", f"{{{of}}} {counts.finished}"),
        _family("jobs_buried_total", "counter", "Times that a job was buried.", f"{{{of}}} {counts.buried}"),
        _family(
            "jobs_expired_total", "counter", "Jobs that expired before anybody had started them.", f"{{{of}}} {counts.expired}"
        ),
        _family(
            "data_losses_total",
            "counter",
            "Times that a process found that the server has less than it was told.",
            f"{{{of}}} {counts.data_losses}",
        ),
        _family("workers", "gauge", "Workers that are alive.", f"{{{of}}} {len(alive)}"),
        _family("worker_places", "gauge", "Handlers that they run at once.", f"{{{of}}} {places}"),
        _family(
            "worker_utilisation_ratio",
            "gauge",
            "Handlers of live workers that have a job, as a share of all; none without workers.",
            *([f"{{{of}}} {demand.running / places:.4f}"] if places else ()),
        ),
        _family(
            "arrivals_per_second",
            "gauge",
            "Jobs that have come to be claimed, over some 20 s.",
            f"{{{of}}} {demand.arrivals_per_s:.3f}",
        ),
        _family(
            "wanted_workers",
            "gauge",
            "How many workers there should be, by the formula of the capacity plan.",
            f"{{{of}}} {wanted_workers(demand, scaling)}",
        ),
    ]
    if held is not None:
        names = [f'{{{of},name="{_label(name)}"}} {count}' for name, count in held.waiting_by_name.items()]
        paused = {pause.name for pause in held.pauses}
        pauses = [f'{{{of},name="{_label(name)}"}} 1' for name in sorted(filter(None, paused))]
        families += [
            _family("jobs_waiting", "gauge", "Waiting jobs of each name.", *names),
            _family(
                "oldest_waiting_seconds",
                "gauge",
                "How long the job has waited that has waited longest.",
                f"{{{of}}} {held.oldest_age_ms / 1000}",
            ),
            _family(
                "paused",
                "gauge",
                "1 while a name is paused, or the queue (*).",
                f'{{{of},name="*"}} {int(None in paused)}',
                *pauses,
            ),
        ]
    runs: list[str] = []
    for found in times:
        for outcome, durations in (("succeeded", found.succeeded), ("failed", found.failed)):
            if durations.count:
                runs += _histogram(f'{of},name="{_label(found.name)}",outcome="{outcome}"', durations)
    families.append(_family("run_seconds", "histogram", "How long handlers took, as workers have told it.", *runs))
    return "".join(families)


def join_metrics(*texts: str) -> str:
    """The metrics of several queues as one page: `HELP` and `TYPE` of each metric stand once, as Prometheus asks for.

    page = join_metrics(mails.metrics(), bills.metrics())
    """
    families: dict[str, tuple[list[str], list[str]]] = {}
    for text in texts:
        comments, samples = [], []
        # Labels may hold what else parts lines.
        for line in text.removesuffix("\n").split("\n"):
            words = line.split(" ", 3)
            if words[:2] == ["#", "HELP"]:
                comments, samples = families.setdefault(words[2], ([], []))
            if not line.startswith("#"):
                samples.append(line)
            elif line not in comments:
                comments.append(line)
    return "".join(f"{line}\n" for comments, samples in families.values() for line in comments + samples)


def _label(value: str) -> str:
    """A label's value. Foreign programs name their jobs as they like."""
    text = utf8(value).decode().replace("\\", "\\\\").replace('"', '\\"')
    return "".join(_LINE_ENDS.get(character, character) for character in text)


def _family(name: str, kind: str, help: str, *samples: str) -> str:
    """One metric: what it is, its type, and its samples, each without the name at its start."""
    full = f"ironclaim_{name}"
    lines = [f"# HELP {full} {help}", f"# TYPE {full} {kind}", *(f"{full}{sample}" for sample in samples)]
    return "\n".join(lines) + "\n"


def _states(of: str, counts: Counts) -> Iterator[str]:
    for state in _STATES:
        yield f'{{{of},state="{state}"}} {getattr(counts, state)}'


def _histogram(labels: str, durations: Durations) -> Iterator[str]:
    for bound in _LE_BUCKETS:
        count = sum(runs for bucket, runs in durations.buckets if bucket <= bound)
        # An even bucket ends at a power of two: nine decimals are exact.
        le = f"{2 ** (bound // 2) / 1e9:.9f}".rstrip("0")
        yield f'_bucket{{{labels},le="{le}"}} {count}'
    yield f'_bucket{{{labels},le="+Inf"}} {durations.count}'
    yield f"_sum{{{labels}}} {durations.total_us / 1e6:.6f}"
    yield f"_count{{{labels}}} {durations.count}"
