"""Small drawings in the cells of a table: a line of values, and a ratio with its interval. Plain SVG, without matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from reports.page.tables import safe

#: Size of a drawing in its own units, which are pixels on the page, and the space around what is drawn.
WIDTH, HEIGHT, PAD = 120, 24, 2

#: A line has at most so many points.
POINTS_MAX = 60


def line(values: Sequence[float], label: str) -> str:
    """A line over values, from 0 at the bottom to the largest at the top. Empty when there are fewer than two."""
    if len(values) < 2:
        return ""
    most = max(values) or 1.0
    step = (WIDTH - 2 * PAD) / (len(values) - 1)
    points = [(PAD + place * step, HEIGHT - PAD - (HEIGHT - 2 * PAD) * value / most) for place, value in enumerate(values)]
    drawn = " ".join(f"{x:.0f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    return svg(f'<polyline points="{drawn}"/><circle cx="{x:.0f}" cy="{y:.1f}" r="2"/>', label)


def thinned(values: Sequence[float]) -> list[float]:
    """At most `POINTS_MAX` values: the means of as many stretches of equal length."""
    width = -(-len(values) // POINTS_MAX) or 1
    stretches = [values[start : start + width] for start in range(0, len(values), width)]
    return [sum(stretch) / len(stretch) for stretch in stretches]


def span(ratio: float, low: float, high: float, floor: float, most: float, label: str) -> str:
    """A ratio (dot) in its interval (line), over the noise floor (band), on a logarithmic axis from 1 / most to most, with 1 in
    the middle. What lies beyond is drawn at the edge."""

    def at(value: float) -> float:
        share = max(-1.0, min(1.0, log(value) / log(most)))
        return WIDTH / 2 + (WIDTH / 2 - PAD) * share

    band, middle = (at(1 / floor), at(floor)), HEIGHT / 2
    return svg(
        f'<rect x="{band[0]:.1f}" y="1" width="{band[1] - band[0]:.1f}" height="{HEIGHT - 2}"/>'
        f'<path class="even" d="M{WIDTH / 2:.0f} 0V{HEIGHT}"/>'
        f'<path d="M{at(low):.1f} {middle:.0f}H{at(high):.1f}"/><circle cx="{at(ratio):.1f}" cy="{middle:.0f}" r="3.5"/>',
        label,
    )


def svg(body: str, label: str) -> str:
    """The element, with words for who cannot see it."""
    return f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{safe(label)}">{body}</svg>'
