"""A comparison as JSON: comparison.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reports.compare.decide import Comparison, Line
from reports.compare.resample import CONFIDENCE, RESAMPLES
from reports.compare.sides import Repetition
from reports.compare.significance import LEVEL
from reports.compare.words import answer

#: The schema of comparison.json.
SCHEMA = 1


def record(found: Comparison) -> dict[str, Any]:
    """The content of comparison.json."""
    return {
        "schema": SCHEMA,
        "answer": answer(found),
        "too_few": found.too_few or None,
        "interleaved": found.interleaved,
        "warnings": list(found.warnings),
        "counts": found.counts,
        "level": LEVEL,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "seed": found.seed,
        "margin": found.margin,
        "variant": list(found.variant),
        "a": runs(found.a),
        "b": runs(found.b),
        "metrics": [metric(line) for line in found.lines],
    }


def runs(side: Sequence[Repetition]) -> list[dict[str, Any]]:
    """The runs of a side."""
    return [
        {"run": run.name, "verdict": run.verdict, **{name: run.spec.get(name) for name in ("seed", "started_utc", "git_commit")}}
        for run in side
    ]


def metric(line: Line) -> dict[str, Any]:
    """One metric, with the value of each run in the order of the runs."""
    of_a, of_b = line.medians
    numbers = {name: getattr(line, name) for name in ("ratio", "low", "high", "floor", "p", "corrected_p")}
    return {
        "name": line.metric.name,
        "title": line.metric.title,
        "more_is_better": line.metric.more_is_better,
        "outcome": line.outcome,
        "lacks": line.lacks or None,
        **numbers,
        "a": {"median": of_a, "values": list(line.a)},
        "b": {"median": of_b, "values": list(line.b)},
    }
