"""How fast memory grows: a straight line through the samples of a run, by least squares."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What the figures are told in.
MB = 1_000_000

#: Fewer samples than this part of what one a second would be are no measurement.
SAMPLES_SHARE = 0.8

#: One sample: when (monotonic s) and how many bytes.
Sample = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Slope:
    """The line of one figure. `mb_per_minute` is NaN where it could not be measured, and `complaint` says why."""

    what: str
    mb_per_minute: float
    first_mb: float = math.nan
    last_mb: float = math.nan
    samples: int = 0
    complaint: str = ""

    def __str__(self) -> str:
        if self.complaint:
            return f"{self.what}: not measured, {self.complaint}"
        line = f"{self.first_mb:.2f} to {self.last_mb:.2f} MB, {self.samples} samples"
        return f"{self.what}: {self.mb_per_minute:+.3f} MB a minute ({line})"


def fit(samples: Sequence[Sample]) -> tuple[float, float]:
    """Slope (bytes a second) and mean of the least-squares line; needs two instants at least."""
    middle_s = sum(at_s for at_s, _ in samples) / len(samples)
    middle = sum(value for _, value in samples) / len(samples)
    spread = sum((at_s - middle_s) ** 2 for at_s, _ in samples)
    return sum((at_s - middle_s) * (value - middle) for at_s, value in samples) / spread, middle


def slope(what: str, samples: Iterable[Sample], begin_s: float, end_s: float) -> Slope:
    """The line through the samples of a time."""
    inside = [sample for sample in samples if begin_s <= sample[0] <= end_s]
    least = max(3, math.ceil(SAMPLES_SHARE * (end_s - begin_s)))
    if len(inside) < least:
        return Slope(what, math.nan, complaint=f"{len(inside)} samples, it needs {least}")
    per_s, middle = fit(inside)
    middle_s = sum(at_s for at_s, _ in inside) / len(inside)
    first, last = (middle + per_s * (at_s - middle_s) for at_s in (inside[0][0], inside[-1][0]))
    return Slope(what, per_s * 60 / MB, first / MB, last / MB, len(inside))


def process_memory(folder: Path, name: str) -> list[Sample]:
    """What a process of the run had resident."""
    return [_sample(row, "rss_bytes") for row in _rows(folder / "processes.jsonl") if row.get("proc") == name]


def server_memory(folder: Path) -> list[Sample]:
    """The server's `used_memory`; instants at which it did not answer are left out."""
    return [_sample(row, "used_memory") for row in _rows(folder / "server.jsonl") if "used_memory" in row]


def _sample(row: Mapping[str, Any], column: str) -> Sample:
    return row["t_ns"] / 1e9, float(row[column])


def _rows(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of samples."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []
