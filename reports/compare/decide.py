"""What of each metric can be claimed: faster, slower, the same, or no difference that this can show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import log
from statistics import median

from reports.compare.metrics import Metric, main_metrics
from reports.compare.sides import Repetition, interleaved, variant
from reports.errors import JudgeError
from reports.statistics import LEVEL, holm, interval, mann_whitney, noise_floor, ratio, repetitions_needed, smallest_p

FASTER, SLOWER, SAME, CANNOT_SHOW, NOT_TESTED = "faster", "slower", "same", "cannot_show", "not_tested"
OUTCOMES = (FASTER, SLOWER, SAME, CANNOT_SHOW)

NOT_INTERLEAVED = "not interleaved: drift of the machine may explain it"


@dataclass(frozen=True)
class Line:
    """One metric. `ratio`: the median of B as a multiple of that of A, and `low` and `high` its interval; `floor`: the factor up
    to which halves of A differ by themselves; `corrected_p`: by Holm's method. None: it could not be computed."""

    metric: Metric
    a: tuple[float | None, ...]
    b: tuple[float | None, ...]
    tested: bool
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    p: float | None = None
    corrected_p: float | None = None
    outcome: str = NOT_TESTED
    #: Why there is no ratio.
    lacks: str = ""

    @property
    def medians(self) -> tuple[float | None, float | None]:
        """The median of each side; None where nothing was measured."""
        known = ([value for value in side if value is not None] for side in (self.a, self.b))
        of_a, of_b = (median(values) if values else None for values in known)
        return of_a, of_b


@dataclass(frozen=True)
class Comparison:
    """The whole comparison. `too_few`: why no difference could have been shown whatever the values; empty when one could."""

    a: Sequence[Repetition]
    b: Sequence[Repetition]
    lines: Sequence[Line]
    margin: float
    seed: int
    interleaved: bool
    too_few: str = ""
    warnings: Sequence[str] = ()
    variant: Sequence[str] = field(default_factory=list)

    @property
    def tested(self) -> list[Line]:
        return [line for line in self.lines if line.tested]

    @property
    def counts(self) -> dict[str, int]:
        """The number of tested metrics by outcome."""
        return {name: Counter(line.outcome for line in self.tested)[name] for name in OUTCOMES}


def decide(
    a: Sequence[Repetition],
    b: Sequence[Repetition],
    names: Sequence[str] = (),
    *,
    margin: float = 0.05,
    seed: int = 1,
    overridden: Sequence[str] = (),
) -> Comparison:
    """Compare the repetitions of B with those of A.

    `names`: the metrics to test, `all` for every one; none for the main ones. `margin`: two sides are the same when their ratio
    certainly lies within 1 / (1 + margin) and 1 + margin. `overridden`: what forbids the comparison, which is made
    nevertheless. Raises JudgeError for a metric that no run has.
    """
    metrics = list(dict.fromkeys(metric for run in (*a, *b) for metric in run.values))
    tested = chosen(metrics, names)
    lines = [measured(metric, a, b, metric in tested, seed) for metric in metrics]
    comparable = [line for line in lines if line.tested and line.p is not None]
    corrected = dict(zip([line.metric for line in comparable], holm([line.p or 0.0 for line in comparable]), strict=True))
    lines = [decided(replace(line, corrected_p=corrected.get(line.metric)), margin) for line in lines]
    in_turns = interleaved(a, b)
    warnings = [*(f"compared although {text}" for text in overridden), *([] if in_turns else [NOT_INTERLEAVED])]
    too_few = shortage(len(a), len(b), len(comparable))
    if too_few:
        lines = [replace(line, outcome=CANNOT_SHOW if line.tested else NOT_TESTED) for line in lines]
    return Comparison(a, b, lines, margin, seed, in_turns, too_few, warnings, variant(a, b))


def chosen(metrics: Sequence[Metric], names: Sequence[str]) -> list[Metric]:
    """The metrics to test. Raises JudgeError for a name that no run has."""
    if not names:
        return main_metrics(metrics)
    known = [metric.name for metric in metrics]
    if unknown := [name for name in names if name not in (*known, "all")]:
        raise JudgeError(f"no run has the metric {unknown[0]!r}; choose from all, {', '.join(known)}")
    return [metric for metric in metrics if metric.name in names or "all" in names]


def measured(metric: Metric, a: Sequence[Repetition], b: Sequence[Repetition], tested: bool, seed: int) -> Line:
    """The numbers of a metric, or why there are none."""
    values_a, values_b = (tuple(run.values.get(metric) for run in side) for side in (a, b))
    line = Line(metric, values_a, values_b, tested)
    for run in (*a, *b):
        value = run.values.get(metric)
        if value is None:
            return replace(line, lacks=f"not measured in {run.name}")
        if value <= 0:
            return replace(line, lacks=f"it is {value:g} in {run.name}, and a ratio needs values above 0")
    of_a, of_b = ([value for value in values if value is not None] for values in (values_a, values_b))
    low, high = interval(of_a, of_b, seed)
    floor = noise_floor(of_a, seed) if len(of_a) > 1 else None
    return replace(line, ratio=ratio(of_a, of_b), low=low, high=high, floor=floor, p=mann_whitney(of_a, of_b))


def decided(line: Line, margin: float) -> Line:
    """The line with its outcome."""
    return replace(line, outcome=outcome(line, margin) if line.tested else NOT_TESTED)


def outcome(line: Line, margin: float) -> str:
    """A difference needs all three: a p-value that survives the correction, an interval without 1, and more than the noise."""
    if line.ratio is None or line.low is None or line.high is None or line.floor is None or line.corrected_p is None:
        return CANNOT_SHOW
    beyond_noise = abs(log(line.ratio)) > log(line.floor)
    if line.corrected_p <= LEVEL and beyond_noise and not line.low <= 1 <= line.high:
        return FASTER if (line.ratio > 1) == line.metric.more_is_better else SLOWER
    return SAME if 1 / (1 + margin) <= line.low and line.high <= 1 + margin else CANNOT_SHOW


def shortage(size_a: int, size_b: int, metrics: int) -> str:
    """Why no difference could be shown whatever the values, and how many repetitions could; empty when these can. `metrics`: how
    many tested ones every run has."""
    least = smallest_p(size_a, size_b)
    if not metrics:
        return "no tested metric was measured in every run"
    if least * metrics <= LEVEL:
        return ""
    alone = f", {repetitions_needed(1)} for one metric alone (--metric)" if metrics > 1 else ""
    corrected = f", {min(1.0, least * metrics):.2g} when corrected for {metrics} metrics" if metrics > 1 else ""
    return (
        f"{size_a} + {size_b} repetitions are too few: the smallest p that they can give is {least:.2g}{corrected}; "
        f"{repetitions_needed(metrics)} of each are needed{alone}"
    )
