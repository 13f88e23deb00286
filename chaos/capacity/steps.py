"""One step: the columns of `measurement.json` from what its processes have left. Pure; the shape is declared in
`reports/capacity/measurement.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.arrivals import Arrivals
from bench.capacity_steps import Order, Sent
from chaos.capacity import figures
from chaos.capacity.request import Request
from chaos.capacity.samples import Look, Ran
from chaos.capacity.search import MET, Tried


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a step that is over. `until_ns`: until when its jobs were waited for."""

    order: Order
    sent: Sent
    ran: Mapping[str, Ran]
    looks: Sequence[Look]
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
    latencies_ms, services_ms, finished = list[float](), list[float](), 0
    for arrival in arrivals:
        intended_ns = sent.begin_ns + round(arrival.offset_ms * 1e6)
        if ran := seen.ran.get(arrivals.id_of(arrival.index)):
            latencies_ms.append((ran.end_ns - intended_ns) / 1e6)
            services_ms.append((ran.end_ns - ran.start_ns) / 1e6)
            finished += ran.end_ns <= sent.end_ns
    latencies_ms += unfinished(sent, len(latencies_ms), seen.until_ns)
    latencies_ms.sort()
    inside = [look for look in seen.looks if sent.begin_ns <= look.t_ns <= sent.end_ns]
    lead_ns = sent.begin_ns + round(figures.LEAD_SHARE * (sent.end_ns - sent.begin_ns))
    backlog = [(look.t_ns / 1e9, float(look.waiting)) for look in inside if look.t_ns >= lead_ns]
    void = figures.void_reason(sent.cpu_share, sent.late_p99_ms, request.p99_ms, len(backlog))
    enough = len(backlog) >= figures.SAMPLES_MIN
    slope, (low, high) = figures.slope_interval(backlog) if enough else (0.0, (-order.rate_per_s, order.rate_per_s))
    p99_ms, dropped = figures.percentile(latencies_ms, 0.99), sent.offered - sent.created
    outcome = figures.outcome(void, p99_ms=p99_ms, target_ms=request.p99_ms, slope_low_per_s=low, dropped=dropped)
    columns = {
        "rate": order.rate_per_s,
        "workers": seen.workers,
        "handlers_at_once": request.handlers_at_once,
        "seconds": order.seconds,
        "offered": sent.offered,
        "finished": finished,
        "dropped": dropped,
        "latency_ms": {
            "p50": figures.percentile(latencies_ms, 0.5),
            "p99": p99_ms,
            "histogram": figures.histogram(latencies_ms),
        },
        "service_ms": {"mean": mean(services_ms) or request.handler_ms, "histogram": figures.histogram(services_ms)},
        "waiting": {"mean": mean([value for _, value in backlog]), "slope_per_s": slope, "slope_interval": [low, high]},
        "in_system_mean": mean([look.in_system for look in inside if look.t_ns >= lead_ns]),
        **used(inside, order.rate_per_s, seen.workers),
        "driver": {"cpu_share": sent.cpu_share},
        "void": void,
        "meets": outcome == MET,
    }
    return Step(columns, Tried(order.rate_per_s, order.seconds, outcome), net_bytes_per_job(inside, order.rate_per_s))


def unfinished(sent: Sent, finished: int, until_ns: int) -> list[float]:
    """How long jobs had waited when they were given up: the least that their latency can be. They are taken for the newest, as
    the queue is first in, first out."""
    left, lasted_ms = max(0, sent.created - finished), (sent.end_ns - sent.begin_ns) / 1e6
    return [(until_ns - sent.end_ns) / 1e6 + lasted_ms * place / sent.created for place in range(left)]


def used(looks: Sequence[Look], rate_per_s: float, workers: int) -> dict[str, Any]:
    """What server and workers used between the first and the last look; per job of the offered rate."""
    if len(looks) < 2:
        return {"server": {"us_per_job": 1e-3, "cpu_share": 0.0, "commands": {}}, "worker": {"cpu_share": 0.0}}
    first, last = looks[0], looks[-1]
    seconds = (last.t_ns - first.t_ns) / 1e9
    jobs = seconds * rate_per_s
    server_s = last.server_cpu_s - first.server_cpu_s
    commands = {name: (us - first.commands_us.get(name, 0)) / jobs for name, us in last.commands_us.items()}
    return {
        "server": {
            "us_per_job": max(1e-3, server_s * 1e6 / jobs),
            "cpu_share": server_s / seconds,
            "commands": {name: round(us, 3) for name, us in commands.items() if us > 0},
        },
        "worker": {"cpu_share": (last.workers_cpu_s - first.workers_cpu_s) / seconds / workers},
    }


def net_bytes_per_job(looks: Sequence[Look], rate_per_s: float) -> float:
    """Bytes that the server read and wrote between the first and the last look, per job; 0 of fewer than two."""
    if len(looks) < 2:
        return 0.0
    jobs = (looks[-1].t_ns - looks[0].t_ns) / 1e9 * rate_per_s
    return (looks[-1].net_bytes - looks[0].net_bytes) / jobs


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of none."""
    return sum(values) / len(values) if values else 0.0
