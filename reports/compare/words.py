"""A comparison in words, as plain text, whose last line counts the outcomes, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reports.compare.decide import FASTER, NOT_INTERLEAVED, NOT_TESTED, OUTCOMES, SAME, SLOWER, Comparison, Line
from reports.compare.sides import Repetition
from reports.statistics import CONFIDENCE, LEVEL, RESAMPLES
from reports.table import grid

NO_DIFFERENCE = "no difference that this can show"

HEADS = ("metric", "A", "B", "B / A", "95% interval", "noise of A", "p", "corrected", "outcome")


def answer(found: Comparison) -> str:
    """The answer in one line."""
    counts = found.counts
    if found.too_few:
        return "it cannot be decided"
    if counts[FASTER] and counts[SLOWER]:
        text = f"B is faster than A in {counts[FASTER]} and slower in {counts[SLOWER]} of {len(found.tested)} metrics"
    elif counts[FASTER] or counts[SLOWER]:
        word = FASTER if counts[FASTER] else SLOWER
        text = f"B is {word} than A in {counts[word]} of {len(found.tested)} metrics"
    elif counts[SAME] == len(found.tested):
        return f"B is as fast as A: no metric differs by more than {found.margin * 100:g}%"
    else:
        return NO_DIFFERENCE
    return text if found.interleaved else f"{text} ({NOT_INTERLEAVED})"


def claim(line: Line, found: Comparison) -> str:
    """What can be said of one metric."""
    if line.outcome in (FASTER, SLOWER):
        direction = "more" if (line.ratio or 1) > 1 else "less"
        text = f"{line.outcome}: {percent(line.ratio).lstrip('+-')} {direction}"
        return text if found.interleaved else f"{text}; {NOT_INTERLEAVED}"
    if line.outcome == SAME:
        return f"same: at most {found.margin * 100:g}% apart"
    if line.lacks:
        return line.lacks
    if line.outcome == NOT_TESTED:
        return "not tested"
    if found.too_few:
        return "too few repetitions"
    return f"{NO_DIFFERENCE}: {percent(line.low)} to {percent(line.high)} is possible"


def render(found: Comparison) -> str:
    """The whole comparison as plain text."""
    tested = [row(line, found) for line in found.tested]
    others = [row(line, found) for line in found.lines if not line.tested]
    right = range(1, len(HEADS) - 1)
    sections = [
        sides(found),
        grid("metrics", HEADS, tested, right=right),
        grid("beside them, not tested: no claim rests on these", HEADS, others, right=right),
        ["warnings", *(f"  {warning}" for warning in found.warnings)] if found.warnings else [],
        [": ".join(filter(None, (answer(found), found.too_few))), last_line(found)],
    ]
    return "\n\n".join("\n".join(section) for section in sections if section)


def sides(found: Comparison) -> list[str]:
    """The runs of each side, and what makes B another variant."""
    lines = [f"{name}: {', '.join(run.name for run in side)}" for name, side in (("A", found.a), ("B", found.b))]
    return [*lines, *(f"A / B  {text}" for text in found.variant or ["no difference between the variants is recorded"])]


def row(line: Line, found: Comparison) -> list[str]:
    """The cells of a metric."""
    of_a, of_b = map(quantity, line.medians)
    return [
        line.metric.name,
        of_a,
        of_b,
        percent(line.ratio),
        spread(line),
        noise(line),
        chance(line.p),
        chance(line.corrected_p),
        claim(line, found),
    ]


def last_line(found: Comparison) -> str:
    """The line for scripts."""
    counts = " ".join(f"{name}={found.counts[name]}" for name in OUTCOMES)
    turns = "" if found.interleaved else " interleaved=no"
    return f"compare: A={len(found.a)} B={len(found.b)} {counts}{turns}"


def spread(line: Line) -> str:
    """The interval of the ratio, as changes."""
    return "?" if line.low is None else f"{percent(line.low)} .. {percent(line.high)}"


def noise(line: Line) -> str:
    """The noise floor, as the changes that it reaches from and to."""
    return "?" if line.floor is None else f"{percent(1 / line.floor)} .. {percent(line.floor)}"


def percent(value: float | None) -> str:
    """A ratio as the change that it is."""
    return "?" if value is None else f"{value - 1:+.1%}"


def quantity(value: float | None) -> str:
    """A value with as many digits as tell something."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def chance(value: float | None) -> str:
    """A p-value; a dash for what was not tested."""
    return "-" if value is None else f"{value:.2g}"


def method(found: Comparison) -> Sequence[str]:
    """How it was decided, in a few sentences."""
    return (
        "Each repetition gives one value per metric; medians are compared. The interval is a bootstrap over repetitions.",
        "p is the exact Mann-Whitney test; corrected, by Holm's method for all tested metrics.",
        "The noise of A is how far apart two halves of A's own repetitions lie: of all ways to split them, 95% lie within.",
        f"Faster or slower needs a corrected p of at most {LEVEL:g}, an interval without 0%, and more than the noise of A.",
        f"The same needs an interval within {found.margin * 100:g}%. All else is no difference that this can show.",
        "In calm phases no fault is in force or recovered from; there a percentile is the mean of the phases', by their jobs.",
    )


# A comparison as JSON: comparison.json.


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
