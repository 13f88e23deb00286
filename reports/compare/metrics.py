"""What of a run is compared: one value per metric, read from its verdict and from the samples of its processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.page.words import LATENCY_NAMES
from reports.samples import FILE, samples

#: The phase that stands for all of them, and those in which no fault is in force or being recovered from.
ALL, CALM = "all", ("lead-in", "settle")

RANKS = {"p50": "p50_ms", "p99": "p99_ms"}

#: Metrics that are tested unless others are asked for. Few, because each one more needs more repetitions.
MAIN = ("end_to_end.p50.calm", "end_to_end.p99.calm", "end_to_end.p99.all", "finished_per_s", "recovery_ms", "cpu_ms_per_job")

#: What is tested in runs that have none of these: those of channels.
MAIN_RANK = ".p99.all"

#: Processes whose CPU time is not that of the engine.
NOT_ENGINE = ("harness", "toxiproxy")

SERVER = "server"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name on the command line, its title in tables with its unit, and which direction is better."""

    name: str
    title: str
    more_is_better: bool = False


def values_of(run: Path, verdict: Mapping[str, Any]) -> dict[Metric, float]:
    """Every metric that was measured in a run. A percentile that falls among unfinished jobs, or rests on too few, is absent."""
    measures = verdict["measures"]
    found = {**latencies(measures["percentiles"]), **rates(measures["rates"])}
    slowest = [line["recovery_ms"] for line in measures["recovery"] if line["jobs"]]
    found[Metric("recovery_ms", "slowest recovery, ms")] = max(slowest) if slowest and None not in slowest else None
    found |= cpu(run, measures["finished"])
    return {metric: float(value) for metric, value in found.items() if value is not None}


def latencies(lines: Sequence[Mapping[str, Any]]) -> dict[Metric, float | None]:
    """The percentiles of each series over all phases, and in the calm ones: there the mean of the phases' percentiles, weighted
    by their jobs."""
    found: dict[Metric, float | None] = {}
    for series in dict.fromkeys(line["series"] for line in lines):
        for rank, field in RANKS.items():
            title = f"{LATENCY_NAMES.get(series, series)} {rank}"
            for scope, phases, words in (("calm", CALM, "calm phases"), (ALL, (ALL,), "all phases")):
                parts = [(line["n"], line[field]) for line in lines if line["series"] == series and line["phase"] in phases]
                found[Metric(f"{series}.{rank}.{scope}", f"{title}, {words}, ms")] = weighted(parts)
    return found


def weighted(parts: Sequence[tuple[int, float | None]]) -> float | None:
    """The mean of values by weight; None when there is none, or one is not known."""
    known = [(count, value) for count, value in parts if value is not None]
    total = sum(count for count, _ in known)
    return sum(count * value for count, value in known) / total if total and len(known) == len(parts) else None


def rates(per_s: Mapping[str, float | None]) -> dict[Metric, float | None]:
    """The rates, but for what was offered: that is the load's."""
    return {
        Metric(name, f"{name.removesuffix('_per_s')} a second", more_is_better=True): value
        for name, value in per_s.items()
        if not name.startswith("offered")
    }


def cpu(run: Path, finished: int | None) -> dict[Metric, float | None]:
    """CPU time per finished job: of the processes that load and work, and of the server."""
    used_s = used(samples(run / FILE))
    engine = [seconds for name, seconds in used_s.items() if not name.startswith((*NOT_ENGINE, SERVER))]
    server = [seconds for name, seconds in used_s.items() if name.startswith(SERVER)]
    return {
        Metric("cpu_ms_per_job", "CPU of workers and load a job, ms"): share(engine, finished, 1e3),
        Metric("server_us_per_job", "CPU of the server a job, us"): share(server, finished, 1e6),
    }


def used(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The CPU seconds of each process between its first and its last sample; several processes may follow under one name."""
    first: dict[tuple[str, int], float] = {}
    last: dict[tuple[str, int], float] = {}
    for row in rows:
        try:
            key, used_s = (str(row["proc"]), int(row["pid"])), float(row["cpu_user_s"]) + float(row["cpu_system_s"])
        except (KeyError, TypeError, ValueError):
            continue
        first.setdefault(key, used_s)
        last[key] = used_s
    total: dict[str, float] = {}
    for key, used_s in last.items():
        total[key[0]] = total.get(key[0], 0.0) + used_s - first[key]
    return total


def share(seconds: Sequence[float], finished: int | None, unit: float) -> float | None:
    """CPU time per finished job in a unit of which a second has so many; None when either is not known."""
    return sum(seconds) * unit / finished if seconds and finished else None


def main_metrics(metrics: Sequence[Metric]) -> list[Metric]:
    """Of the metrics that runs have, those that are tested unless others are asked for."""
    return [one for one in metrics if one.name in MAIN] or [one for one in metrics if one.name.endswith(MAIN_RANK)]
