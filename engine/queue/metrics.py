"""A queue's numbers as Prometheus reads them (text exposition format 0.0.4): the name of each metric and what
it counts are in `exposition`. Before it, how many workers a queue wants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine import validate
from engine.errors import Malformed, utf8
from engine.ops.base import frozen
from engine.ops.looks import Counts
from engine.ops.workers import Durations, HandlerTimes, WorkerInfo
from engine.queue.why import Obstacles
from engine.sizing import worker_rate_per_s, workers_needed
from engine.validate import settle

# -- How many workers a queue wants: the signal that an autoscaler follows, from what the metrics have
# read already.
#
# The workers are those of the capacity plan, arrival rate x service time / target utilisation, and those that
# take the backlog away in time. A scaler that follows the number ends with workers that are as busy as was
# planned.

WORKERS_MAX = 10_000
#: Of a share that is next to nothing the arithmetic makes 0.
UTILISATION_LEAST = 0.01
DRAIN_MS_LEAST, DRAIN_MS_MAX = 1_000, 86_400_000
#: A backlog that has waited for long is asked away this many times sooner at most.
URGENCY_MAX = 4
#: Handlers shorter than a microsecond are told as 0.
SERVICE_MS_LEAST = 0.001

#: Over which time arrivals are counted. Workers tell how long handlers took every 10 s, so it holds one or
#: two reports of each.
WINDOW_US = 20_000_000
#: Looks nearer to each other tell no rate.
APART_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What `ironclaim_wanted_workers` aims at, and its bounds.

    `target_utilisation`: how busy the handlers of workers may be (0.01 to 1), and `spare_workers`: how many
    workers more. `plan.utilisation` and `plan.spare` of a capacity plan are meant for them. `drain_ms`: in
    which time a backlog is to be gone. `service_ms`: how long a job takes a handler, until workers have told
    how long theirs took; 0: not known. `concurrency`: handlers of a worker while none is alive. Raises
    Malformed.
    """

    workers_min: int = 1
    workers_max: int = 100
    target_utilisation: float = 0.8
    spare_workers: int = 0
    drain_ms: int = 60_000
    service_ms: float = 0.0
    concurrency: int = 8

    def __post_init__(self) -> None:
        settle(
            self,
            workers_min=(0, WORKERS_MAX),
            workers_max=(1, WORKERS_MAX),
            target_utilisation=(UTILISATION_LEAST, 1),
            spare_workers=(0, WORKERS_MAX),
            drain_ms=(DRAIN_MS_LEAST, DRAIN_MS_MAX),
            service_ms=(0, DRAIN_MS_MAX),
            concurrency=(1, validate.CONCURRENCY_MAX),
        )
        if self.workers_min > self.workers_max:
            raise Malformed(
                "workers_min", self.workers_min, f"at most workers_max, which is {self.workers_max}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a queue asks of its workers. `service_ms`: time of all runs of a job that finished, 0: not known
    yet. `backlog`: waiting jobs that no pause and no limit holds back, `oldest_age_ms`: how long the first of
    them has waited. `running`: jobs that handlers have in hand, of which each worker has
    `handlers_at_once`."""

    arrivals_per_s: float
    service_ms: float
    backlog: int
    oldest_age_ms: int
    running: int
    handlers_at_once: int


def wanted_workers(demand: Demand, scaling: Scaling) -> int:
    """How many workers there should be, within the bounds."""
    # Who runs now is not taken away from under its jobs, however few come.
    least = workers_needed(demand.running, demand.handlers_at_once)
    if demand.service_ms:
        left_ms = max(scaling.drain_ms - demand.oldest_age_ms, scaling.drain_ms / URGENCY_MAX)
        rate_per_s = demand.arrivals_per_s + demand.backlog * 1_000 / left_ms
        each_per_s = (
            worker_rate_per_s(demand.service_ms, demand.handlers_at_once) * scaling.target_utilisation
        )
        # Cut off before it is rounded: a rate may be far above what all workers do.
        needed = workers_needed(min(rate_per_s, scaling.workers_max * each_per_s), each_per_s)
        wanted = max(least, needed + scaling.spare_workers if needed else 0)
    else:
        # One tells how long the handlers take.
        wanted = max(least, 1 if demand.backlog or demand.arrivals_per_s else 0)
    return min(max(wanted, scaling.workers_min), scaling.workers_max)


@frozen
class _Look:
    """What the server had counted at a time of its clock. `arrived`: jobs that waited, ran or had ended: a
    delayed job counts from when it is due, and one that runs again once."""

    srv_us: int
    arrived: int
    run_us: int
    runs: int
    succeeded: int


class DemandWatch:
    """The demand of a queue from one look at its numbers to the next."""

    def __init__(self) -> None:
        #: The looks of the window that are some way apart, and one before it.
        self.looks: tuple[_Look, ...] = ()

    def note(
        self,
        counts: Counts,
        times: Iterable[HandlerTimes],
        workers: Iterable[WorkerInfo],
        held: Obstacles | None,
        scaling: Scaling,
    ) -> Demand:
        """Note a look, and return the demand. Of a model that has no obstacles all waiting jobs may be
        claimed."""
        ends = [durations for found in times for durations in (found.succeeded, found.failed)]
        ended = counts.finished + counts.buried + counts.expired + counts.skipped
        look = _Look(
            srv_us=counts.srv_us,
            arrived=ended + counts.waiting + counts.active,
            run_us=sum(durations.total_us for durations in ends),
            runs=sum(durations.count for durations in ends),
            succeeded=sum(durations.count for durations in ends[::2]),
        )
        base = self._since(look)
        places = [worker.concurrency for worker in workers if worker.alive]
        free = None if held is None else [lane for lane in held.lanes if not lane.waits_for]
        since_ms = min((lane.oldest_ms for lane in free or () if lane.oldest_ms), default=0)
        running = min(counts.active, sum(places))
        service_ms = _service_ms(look, base) or scaling.service_ms
        return Demand(
            arrivals_per_s=_arrivals_per_s(look, base, running, service_ms),
            service_ms=service_ms,
            backlog=counts.waiting if free is None else sum(lane.waiting for lane in free),
            oldest_age_ms=max(0, counts.srv_us // 1_000 - since_ms) if since_ms else 0,
            running=running,
            handlers_at_once=max(1, round(sum(places) / len(places))) if places else scaling.concurrency,
        )

    def _since(self, look: _Look) -> _Look | None:
        """The look that this one is held against: the last one that is older than the window, or the oldest;
        None without one. A server whose clock or counters went back begins anew."""
        looks = [
            one
            for one in self.looks
            if one.srv_us < look.srv_us and one.runs <= look.runs and one.succeeded <= look.succeeded
        ]
        while len(looks) > 1 and look.srv_us - looks[1].srv_us >= WINDOW_US:
            del looks[0]
        apart = not looks or look.srv_us - looks[-1].srv_us >= APART_US
        # One assignment: threads may share a queue, and at worst a look is not kept.
        self.looks = (*looks, look) if apart else tuple(looks)
        return looks[0] if looks and look.srv_us - looks[0].srv_us >= APART_US else None


def _arrivals_per_s(look: _Look, base: _Look | None, running: int, service_ms: float) -> float:
    """Since the base; without one, what the running jobs let expect of a queue in balance (Little's law)."""
    if base is None:
        return running * 1_000 / service_ms if service_ms else 0.0
    return max(0, look.arrived - base.arrived) * 1e6 / (look.srv_us - base.srv_us)


def _service_ms(look: _Look, base: _Look | None) -> float:
    """Time of handlers for each run that succeeded, so that failed runs count as work of the job: of the runs
    since the base if there were some, else of all; 0 without any."""
    for before in (base, _Look(0, 0, 0, 0, 0)):
        if before is not None and look.runs > before.runs:
            jobs = look.succeeded - before.succeeded or look.runs - before.runs
            return max(SERVICE_MS_LEAST, (look.run_us - before.run_us) / 1_000 / jobs)
    return 0.0


#: States of jobs, with the member of Counts that has their number.
_STATES = {state: state for state in ("waiting", "delayed", "blocked", "active", "dead")}
_STATES["finished"] = "finished_kept"
#: Every second bucket from 66 us to 73 minutes, so that each bound is twice the one before. What is shorter
#: is in the first one. The same for every name: Prometheus adds histograms with equal bounds only.
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
        _family(
            "jobs", "gauge", "Jobs in each state, of the finished ones those kept.", *_states(of, counts)
        ),
        _family(
            "jobs_finished_total", "counter", "Jobs that have ever finished.", f"{{{of}}} {counts.finished}"
        ),
        _family("jobs_dead_total", "counter", "Times that a job died.", f"{{{of}}} {counts.dead_total}"),
        _family(
            "jobs_buried_total",
            "counter",
            "The former name of jobs_dead_total, for one release.",
            f"{{{of}}} {counts.dead_total}",
        ),
        _family(
            "jobs_expired_total",
            "counter",
            "Jobs that expired before anybody had started them.",
            f"{{{of}}} {counts.expired}",
        ),
        _family(
            "jobs_skipped_total",
            "counter",
            "Jobs that their skip_on has ended after an error.",
            f"{{{of}}} {counts.skipped}",
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
    families.append(
        _family("run_seconds", "histogram", "How long handlers took, as workers have told it.", *runs)
    )
    return "".join(families)


def join_metrics(*texts: str) -> str:
    """The metrics of several queues as one page: `HELP` and `TYPE` of each metric stand once, as Prometheus
    asks for.

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
    for state, member in _STATES.items():
        yield f'{{{of},state="{state}"}} {getattr(counts, member)}'


def _histogram(labels: str, durations: Durations) -> Iterator[str]:
    for bound in _LE_BUCKETS:
        count = sum(runs for bucket, runs in durations.buckets if bucket <= bound)
        # An even bucket ends at a power of two: nine decimals are exact.
        le = f"{2 ** (bound // 2) / 1e9:.9f}".rstrip("0")
        yield f'_bucket{{{labels},le="{le}"}} {count}'
    yield f'_bucket{{{labels},le="+Inf"}} {durations.count}'
    yield f"_sum{{{labels}}} {durations.total_us / 1e6:.6f}"
    yield f"_count{{{labels}}} {durations.count}"
