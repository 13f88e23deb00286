"""A measurement with known truths: its steps come from the simulator, its limits from a scalability law."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reports.capacity.answer import answer, as_json
from reports.capacity.measurement import FILE
from reports.command import parser
from reports.simulation.queueing import simulate
from reports.simulation.system import EVEN, Load, Outcome, System

#: Handlers of a worker at once, and its service time: 20 ms of the handler and 1 ms beside it.
HANDLERS, HANDLER_MS, SERVICE_MS = 5, 20.0, 21.0

#: Rates as shares of the limit of so many workers: the last two miss.
SHARES = (0.3, 0.6, 0.8, 0.97, 1.03, 1.2)

Row = dict[str, Any]


def law(workers: float) -> float:
    """The sustainable rate of so many workers."""
    return 220 * workers / (1 + 0.03 * (workers - 1) + 0.002 * workers * (workers - 1))


def saturated(workers: float) -> float:
    """A rate that stops rising at three workers."""
    return min(220 * workers, 640.0)


def histogram(values: np.ndarray) -> list[list[float]]:
    """The bins of values in ms, narrow ones."""
    counts, edges = np.histogram(values, bins=80)
    return [[float(low), float(high), int(count)] for low, high, count in zip(edges, edges[1:], counts, strict=False) if count]


def service(draw: np.random.Generator, count: int) -> np.ndarray:
    """Service times in ms, not constant."""
    return HANDLER_MS + draw.gamma(2, (SERVICE_MS - HANDLER_MS) / 2, count)


def run(rate: float, workers: int, seconds: float) -> Outcome:
    """What the simulated system does at this rate."""
    system = System(service=service, workers=workers, handlers_at_once=HANDLERS)
    return simulate(Load(rate=rate, seconds=seconds, arrivals=EVEN), system, seed=7)


def step(rate: float, workers: int, *, meets: bool, seconds: float = 3.0) -> Row:
    """A step. One that misses has a growing backlog."""
    came = run(min(rate, 0.9 * workers * HANDLERS * 1_000 / SERVICE_MS), workers, seconds)
    times = came.latencies_ms if meets else came.latencies_ms + 400
    spent = service(np.random.default_rng(3), 5_000)
    p50, p99 = (float(np.quantile(times, share)) for share in (0.5, 0.99))
    there = came.waiting + came.running
    return {
        **{"rate": rate, "workers": workers, "handlers_at_once": HANDLERS, "seconds": seconds, "offered": int(rate * seconds)},
        **{"finished": int(rate * seconds), "dropped": 0},
        "latency_ms": {"p50": p50, "p99": p99, "histogram": histogram(times)},
        "service_ms": {"mean": float(spent.mean()), "histogram": histogram(spent)},
        "waiting": {"mean": came.waiting, "slope_per_s": 0.0, "slope_interval": [0.0, 0.2] if meets else [2.0, 4.0]},
        "report_ms": {"mean": 0.5, "histogram": [[0.4, 0.6, int(rate * seconds)]]},
        "in_system": {"counted": there, "certain": 0.98 * there, "possible": 1.02 * there},
        "server": {
            **{"us_per_job": 80.0, "cpu_share": rate * 80e-6, "round_trips": 2.5},
            "sent": {"evalsha": {"calls": 2.0, "us": 60.0}, "blpop": {"calls": 0.5, "us": 12.0}},
            "inside": {"hset": {"calls": 4.0, "us": 25.0}, "zadd": {"calls": 2.0, "us": 15.0}},
        },
        **{"worker": {"cpu_share": 0.3}, "driver": {"cpu_share": 0.3}, "void": None, "meets": meets},
        "arrivals_ms": [(place + 1) / rate * 1_000 for place in range(int(rate * seconds))] if meets else [],
    }


def content(rates: Callable[[float], float] = law, counts: Sequence[int] = (1, 2, 3, 4)) -> Row:
    """The content of a measurement."""
    places = [(workers, share) for workers in counts for share in (SHARES if workers == counts[-1] else SHARES[3:5])]
    steps = [step(share * rates(workers), workers, meets=share < 1) for workers, share in places]
    recovery = {"worker-kill": (4_200.0, "lanes"), "server-kill": (1_500.0, "lanes on aof")}
    source = "drilled in a run of {}, with a lease of 9 s"
    verified = {0.9: 61.0, 1.1: 300.0}
    return {
        **{"schema": 2, "made": "2026-11-27T12:00:00Z", "machine": {"cores": 2, "cpu": "a processor", "server": "valkey 9.1"}},
        "target": {"p99_ms": 100.0, "payload_bytes": 2048, "handler_ms": HANDLER_MS, "model": "lanes", "topology": "embedded"},
        **{"steps": steps, "memory": {"bytes_per_waiting": 2_500.0, "bytes_per_retained": 700.0, "fragmentation": 1.12}},
        "network": {"bytes_per_job": 5_200.0, "round_trip_ms": 0.08},
        "recovery": {loss: {"ms": ms, "source": source.format(of)} for loss, (ms, of) in recovery.items()},
        "verify": [{"rate": 700.0 * at, "times": at, "meets": at < 1, "p99_ms": verified[at]} for at in (0.9, 1.1) * 3],
    }


def write(folder: Path, made: Row) -> Path:
    """The folder, with the measurement in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(made))
    return folder


def asked(run: Path, *arguments: str) -> dict[str, Any]:
    """The content of plan.json for this question. The command writes it beside a page, whose drawing takes longest."""
    return json.loads(json.dumps(as_json(answer(parser().parse_args(["capacity", str(run), *arguments])))))
