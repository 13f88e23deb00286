"""One step: the columns of `measurement.json` from what its processes have left. Pure; the shape is declared in
`reports/capacity/measurement.py`."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.arrivals import Arrivals
from bench.capacity_steps import Order, Sent
from chaos.capacity import figures
from chaos.capacity.figures import Look, Ran, Used
from chaos.capacity.request import Request
from chaos.capacity.search import MET, Tried
from chaos.slopes import slope_interval


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a step that is over. `until_ns`: until when its jobs were waited for; `look`: what each look cost the
    server."""

    order: Order
    sent: Sent
    ran: Mapping[str, Ran]
    looks: Sequence[Look]
    look: Used
    workers: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Step:
    """A step as it is written, and as the search takes it."""

    columns: dict[str, Any]
    tried: Tried
    #: Of the server, both ways.
    net_bytes_per_job: float

    def words(self) -> str:
        """The line that is shown of it."""
        found, latency = self.columns, self.columns["latency_ms"]
        low, high = found["waiting"]["slope_interval"]
        used = f"driver {found['driver']['cpu_share']:.0%}, server {found['server']['cpu_share']:.0%}"
        line = f"{found['rate']:8.1f} jobs/s for {found['seconds']:g} s, {found['workers']} workers: p50 {latency['p50']:.1f}, "
        line += f"p99 {latency['p99']:.1f} ms, backlog {found['waiting']['mean']:.1f} ({low:+.2f} to {high:+.2f} a second), "
        line += f"{found['dropped']} dropped, {used}: {self.tried.outcome}"
        return line + (f" ({found['void']})" if found["void"] else "")


def measured(seen: Seen, request: Request) -> Step:
    """The figures of a step, and whether it meets."""
    order, sent = seen.order, seen.sent
    arrivals = Arrivals(request.seed, order.step, order.rate_per_s, order.seconds)
    due_ms = due(arrivals, sent)
    ran = {job: one for job, one in seen.ran.items() if job in due_ms}
    latencies_ms = [(one.reported_ns - sent.begin_ns) / 1e6 - due_ms[job] for job, one in ran.items()]
    latencies_ms += unfinished(sent, len(latencies_ms), seen.until_ns)
    latencies_ms.sort()
    services_ms = [(one.end_ns - one.start_ns) / 1e6 for one in ran.values()]
    reports_ms = [(one.reported_ns - one.end_ns) / 1e6 for one in ran.values()]
    inside = [look for look in seen.looks if sent.begin_ns <= look.from_ns and look.until_ns <= sent.end_ns]
    presence = Presence.of(sent, list(ran.values()))
    backlog = [(look.t_ns / 1e9, max(0.0, look.in_system - presence.running(look.t_ns))) for look in inside]
    lead_s = (sent.begin_ns + figures.LEAD_SHARE * (sent.end_ns - sent.begin_ns)) / 1e9
    filled = [sample for sample in backlog if sample[0] >= lead_s]
    void = figures.load_reason(sent.made, sent.made_s, order.seconds)
    void = void or figures.void_reason(sent.cpu_share, sent.late_p99_ms, request.p99_target_ms, len(filled))
    enough = len(filled) >= figures.SAMPLES_MIN
    slope, (low, high) = slope_interval(filled) if enough else (0.0, (-order.rate_per_s, order.rate_per_s))
    p99_ms, dropped = figures.percentile(latencies_ms, 0.99), sent.offered - sent.created
    outcome = figures.outcome(void, p99_ms=p99_ms, target_ms=request.p99_target_ms, slope_low_per_s=low, dropped=dropped)
    spent = spent_per_job(inside, order.rate_per_s, seen.look)
    columns = {
        "rate": order.rate_per_s,
        "workers": seen.workers,
        "handlers_at_once": request.handlers_at_once,
        "seconds": order.seconds,
        "offered": sent.offered,
        "finished": sum(one.reported_ns <= sent.end_ns for one in ran.values()),
        "dropped": dropped,
        "latency_ms": {"p50": figures.percentile(latencies_ms, 0.5), "p99": p99_ms, "histogram": figures.histogram(latencies_ms)},
        "service_ms": {"mean": mean(services_ms) or request.handler_ms, "histogram": figures.histogram(services_ms)},
        "report_ms": {"mean": mean(reports_ms), "histogram": figures.histogram(reports_ms)},
        "waiting": {"mean": mean([value for _, value in backlog]), "slope_per_s": slope, "slope_interval": [low, high]},
        "in_system": {
            "counted": mean([look.in_system for look in inside]),
            "certain": mean([presence.certain(look) for look in inside]),
            "possible": mean([presence.possible(look) for look in inside]),
        },
        "server": of_server(spent, order.rate_per_s),
        "worker": {"cpu_share": workers_cpu_share(inside) / seen.workers},
        "driver": {"cpu_share": sent.cpu_share},
        "void": void,
        "meets": outcome == MET,
    }
    return Step(columns, Tried(order.rate_per_s, order.seconds, outcome), spent.net_bytes)


def due(arrivals: Arrivals, sent: Sent) -> dict[str, float]:
    """When each job of a step is due, in ms from its begin, by id."""
    offsets_ms = {arrival.index: arrival.offset_ms for arrival in arrivals}
    others = {other.id: offsets_ms.pop(other.index) + other.delay_ms for other in sent.others}
    return {arrivals.id_of(index): offset_ms for index, offset_ms in offsets_ms.items()} | others


def unfinished(sent: Sent, finished: int, until_ns: int) -> list[float]:
    """How long jobs had waited when they were given up: the least that their latency can be. They are taken for the newest, as
    the queue is first in, first out."""
    left, lasted_ms = max(0, sent.created - finished), (sent.end_ns - sent.begin_ns) / 1e6
    return [(until_ns - sent.end_ns) / 1e6 + lasted_ms * place / sent.created for place in range(left)]


@dataclass(frozen=True, slots=True)
class Presence:
    """When the jobs of a step came and went, as those who sent and ran them say: sorted instants of each kind."""

    began_ns: Sequence[int]
    answered_ns: Sequence[int]
    start_ns: Sequence[int]
    end_ns: Sequence[int]
    reported_ns: Sequence[int]

    @classmethod
    def of(cls, sent: Sent, ran: Sequence[Ran]) -> Presence:
        """That of the jobs that were created."""
        return cls(
            sorted(sent.begin_ns + round(began_ms * 1e6) for _, began_ms, _ in sent.sends),
            sorted(sent.begin_ns + round(answered_ms * 1e6) for _, _, answered_ms in sent.sends),
            sorted(one.start_ns for one in ran),
            sorted(one.end_ns for one in ran),
            sorted(one.reported_ns for one in ran),
        )

    def running(self, t_ns: int) -> int:
        """How many handlers ran then."""
        return bisect(self.start_ns, t_ns) - bisect(self.end_ns, t_ns)

    def certain(self, look: Look) -> int:
        """Jobs that the server must have counted: their enqueue answered before the look, their handler not ended after it."""
        return max(0, bisect(self.answered_ns, look.from_ns) - bisect(self.end_ns, look.until_ns))

    def possible(self, look: Look) -> int:
        """Jobs that it may have counted: their enqueue was being sent, and their end was not answered yet."""
        return max(0, bisect(self.began_ns, look.until_ns) - bisect(self.reported_ns, look.from_ns))


def spent_per_job(looks: Sequence[Look], rate_per_s: float, look: Used) -> Used:
    """What the server used between the first and the last look, per job of the offered rate, without the looks' own part."""
    if len(looks) < 2:
        return Used()
    first, last = looks[0], looks[-1]
    jobs = (last.t_ns - first.t_ns) / 1e9 * rate_per_s
    return last.server.less(first.server).less(look, len(looks) - 1).shared(jobs)


def of_server(spent: Used, rate_per_s: float) -> dict[str, Any]:
    """The columns of the server, from what it used per job."""
    return {
        "us_per_job": max(1e-3, spent.cpu_s * 1e6),
        "cpu_share": spent.cpu_s * rate_per_s,
        "round_trips": spent.exchanges,
        "sent": commands(spent, sent_by_clients=True),
        "inside": commands(spent, sent_by_clients=False),
    }


def commands(spent: Used, *, sent_by_clients: bool) -> dict[str, dict[str, float]]:
    """Calls and microseconds per job, of the commands that clients send or of those that scripts call."""
    # INFO is what the looks ask; no job does.
    own = [name for name, calls in spent.calls.items() if calls > 0 and name != "info"]
    names = [name for name in own if (name in figures.SENT) == sent_by_clients]
    return {name: {"calls": round(spent.calls[name], 4), "us": round(spent.us[name], 3)} for name in names}


def workers_cpu_share(looks: Sequence[Look]) -> float:
    """Of the worker processes together, between the first and the last look."""
    if len(looks) < 2:
        return 0.0
    return (looks[-1].workers_cpu_s - looks[0].workers_cpu_s) / (looks[-1].t_ns - looks[0].t_ns) * 1e9


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of none."""
    return sum(values) / len(values) if values else 0.0
