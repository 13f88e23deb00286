"""How fast memory and latency grow: a straight line through the samples of a run, by least squares, with an interval of 95 %.

What is sampled remembers: one sample tells much of the next. So an interval counts only as many samples as are independent of
each other by their lag-1 autocorrelation.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.micro.rounds import quantile

#: What figures of memory are told in.
MB = 1_000_000
MEMORY, LATENCY = "MB", "ms"

#: Fewer samples than this part of what there would be are no measurement.
SAMPLES_SHARE = 0.8

#: The two-sided 95 % point of the normal distribution.
NORMAL_95 = 1.96

#: Percentiles of latency are those of the jobs that were due in such a time.
WINDOW_S = 10.0

#: Of more jobs than this every second or third is looked at, and so on.
JOBS_MAX = 500_000

#: One sample: when (monotonic s) and the value, in the unit of the line.
Sample = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Slope:
    """The line of one figure. `per_minute` is NaN where it could not be measured, and `complaint` says why."""

    what: str
    per_minute: float
    interval: tuple[float, float] = (math.nan, math.nan)
    first: float = math.nan
    last: float = math.nan
    samples: int = 0
    unit: str = MEMORY
    complaint: str = ""

    def __str__(self) -> str:
        if self.complaint:
            return f"{self.what}: not measured, {self.complaint}"
        low, high = self.interval
        line = f"{low:+.3f} to {high:+.3f}; {self.first:.2f} to {self.last:.2f} {self.unit}, {self.samples} samples"
        return f"{self.what}: {self.per_minute:+.3f} {self.unit} a minute ({line})"


def fit(samples: Sequence[Sample]) -> tuple[float, float]:
    """Slope (a second) and mean of the least-squares line; needs two instants at least."""
    middle_s = sum(at_s for at_s, _ in samples) / len(samples)
    middle = sum(value for _, value in samples) / len(samples)
    spread = sum((at_s - middle_s) ** 2 for at_s, _ in samples)
    return sum((at_s - middle_s) * (value - middle) for at_s, value in samples) / spread, middle


def slope_interval(samples: Sequence[Sample]) -> tuple[float, tuple[float, float]]:
    """The slope a second and its interval; of a few samples at least."""
    per_s, middle = fit(samples)
    middle_s = sum(at_s for at_s, _ in samples) / len(samples)
    left = [value - middle - per_s * (at_s - middle_s) for at_s, value in samples]
    squares = sum(one * one for one in left)
    if not squares:
        return per_s, (per_s, per_s)
    alike = max(0.0, sum(one * two for one, two in pairwise(left)) / squares)
    independent = max(3.0, len(samples) * (1 - alike) / (1 + alike))
    spread = sum((at_s - middle_s) ** 2 for at_s, _ in samples) * independent / len(samples)
    half = NORMAL_95 * math.sqrt(squares / len(samples) * independent / (independent - 2) / spread)
    return per_s, (per_s - half, per_s + half)


def slope(what: str, samples: Iterable[Sample], begin_s: float, end_s: float, *, unit: str = MEMORY, every_s: float = 1) -> Slope:
    """The line through the samples of a time, of which there should be one in every so many seconds."""
    inside = [sample for sample in samples if begin_s <= sample[0] <= end_s]
    least = max(3, math.ceil(SAMPLES_SHARE * (end_s - begin_s) / every_s))
    if len(inside) < least:
        return Slope(what, math.nan, unit=unit, complaint=f"{len(inside)} samples, it needs {least}")
    per_s, (low, high) = slope_interval(inside)
    middle = fmean(value for _, value in inside)
    middle_s = sum(at_s for at_s, _ in inside) / len(inside)
    first, last = (middle + per_s * (at_s - middle_s) for at_s in (inside[0][0], inside[-1][0]))
    return Slope(what, per_s * 60, (low * 60, high * 60), first, last, len(inside), unit)


def process_memory(folder: Path, name: str) -> list[Sample]:
    """What a process of the run had resident."""
    return [_sample(row, "rss_bytes") for row in _rows(folder / "processes.jsonl") if row.get("proc") == name]


def server_memory(folder: Path, column: str = "used_memory") -> list[Sample]:
    """A figure of the server's memory; instants at which it did not answer are left out."""
    return [_sample(row, column) for row in _rows(folder / "server.jsonl") if column in row]


def latencies(history: Path, jobs: float) -> list[Sample]:
    """When jobs were due, in that order, and how many ms later their end was accepted, from the history of a run of about so many
    jobs. Those that never ended are left out."""
    every, due_ns, ended_ns = max(1, math.ceil(jobs / JOBS_MAX)), dict[str, int](), dict[str, int]()
    for file in sorted(history.glob("*.jsonl")):
        for row in _operations(file):
            for item in row["items"]:
                if "job" not in item or zlib.crc32(item["job"].encode()) % every:
                    continue
                if row["f"] == "enqueue" and item.get("result") == "created" and "intended_ns" in item:
                    due_ns[item["job"]] = item["intended_ns"] + 1_000_000 * item["delay_ms"]
                elif row["f"] == "finish" and item.get("result") == "ok":
                    ended_ns.setdefault(item["job"], row["done_ns"])
    found = [(at_ns / 1e9, (ended_ns[job] - at_ns) / 1e6) for job, at_ns in due_ns.items() if job in ended_ns]
    return sorted(found)


def percentiles(samples: Sequence[Sample], share: float, begin_s: float) -> list[Sample]:
    """That percentile of the values of each window, in the middle of it; the first begins there."""
    windows: dict[int, list[float]] = {}
    for at_s, value in samples:
        windows.setdefault(math.floor((at_s - begin_s) / WINDOW_S), []).append(value)
    return [(begin_s + (number + 0.5) * WINDOW_S, quantile(values, share)) for number, values in sorted(windows.items())]


def _operations(file: Path) -> Iterator[dict[str, Any]]:
    """The answered enqueues and finishes of a history file. Only their lines are parsed: a long run has millions."""
    with file.open() as lines:
        for line in lines:
            if '"type":"ok"' in line and ('"f":"enqueue"' in line or '"f":"finish"' in line) and line.endswith("}\n"):
                yield json.loads(line)


def _sample(row: Mapping[str, Any], column: str) -> Sample:
    return row["t_ns"] / 1e9, row[column] / MB


def _rows(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of samples."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []
