"""The figures of the page: the knee, the fit with its interval, and the server's time per job by command."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.capacity.fit import Law, Point
from reports.capacity.measurement import Measurement, Step
from reports.capacity.prediction import Prediction
from reports.page import ink

#: Colours and markers of worker counts, in turn.
LOOKS = ((ink.BLUE, "o"), (ink.GREEN, "s"), (ink.PURPLE, "D"), (ink.AMBER, "^"), (ink.SKY, "v"), (ink.VERMILLION, "P"))

#: Margins in inches.
LEFT_IN, RIGHT_IN, TOP_IN, BOTTOM_IN = 0.9, 0.3, 0.5, 0.55


def knee(found: Measurement, predicted: Prediction) -> Figure:
    """p99 by offered rate, a line per worker count; what missed is hollow."""
    drawn = ink.figure(3.6)
    ink.margins(drawn, left=LEFT_IN, right=RIGHT_IN, top=TOP_IN, bottom=BOTTOM_IN)
    panel = drawn.subplots()
    for place, workers in enumerate(sorted({step.workers for step in found.sound})):
        steps = [step for step in found.sound if step.workers == workers]
        colour, marker = LOOKS[place % len(LOOKS)]
        panel.plot([step.rate for step in steps], [step.latency_ms.p99 for step in steps], color=colour, lw=1.2, zorder=2)
        for meets, face in ((True, colour), (False, ink.PAPER)):
            these: Sequence[Step] = [step for step in steps if step.meets == meets]
            panel.plot(
                [step.rate for step in these],
                [step.latency_ms.p99 for step in these],
                ls="none",
                marker=marker,
                ms=6,
                mec=colour,
                mfc=face,
                zorder=3,
                label=f"{workers} {'worker' if workers == 1 else 'workers'}" if meets else None,
            )
    panel.axhline(found.target.p99_ms, color=ink.VERMILLION, lw=1.2, ls="--", label="target")
    if not predicted.reason:
        panel.axvspan(predicted.low, predicted.high, color=ink.BAND, lw=0, zorder=0)
        panel.axvline(predicted.rate, color=ink.EDGE, lw=1.5, label=f"predicted, {predicted.workers} workers")
    ink.logarithmic(panel)
    panel.set_ylabel("p99, ms")
    panel.set_xlabel("offered, jobs/s (hollow: the target was missed)")
    ink.legend(drawn, panel)
    return drawn


def scaling(law: Law | None, measured: Sequence[Point]) -> Figure:
    """The sustainable rate by worker count as measured, and the law with its interval unless it was refused."""
    drawn = ink.figure(3.4)
    ink.margins(drawn, left=LEFT_IN, right=RIGHT_IN, top=TOP_IN, bottom=BOTTOM_IN)
    panel = drawn.subplots()
    if law is not None:
        along = list(range(1, len(law.band) + 1))
        low, high = zip(*law.band, strict=True)
        panel.fill_between(along, low, high, color=ink.BAND, lw=0, label="95 % interval")
        panel.plot(along, [law.rate(count) for count in along], color=ink.BLUE, label="scalability law")
        panel.plot(along, [law.rate_of_one * count for count in along], color=ink.GREY, ls=":", label="without loss")
        panel.set_ylim(0, 1.15 * max(*high, *(one.missed for one in measured)))
    middle = [one.middle for one in measured]
    errors = [[one.middle - one.met for one in measured], [one.missed - one.middle for one in measured]]
    panel.errorbar(
        [one.workers for one in measured],
        middle,
        yerr=errors,
        fmt="o",
        color=ink.VERMILLION,
        capsize=3,
        label="measured, between what met and what missed",
    )
    panel.set_ylim(bottom=0)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel("worker processes")
    panel.set_ylabel("jobs/s")
    ink.legend(drawn, panel)
    return drawn


def budget(commands: Sequence[tuple[str, float]]) -> Figure:
    """Microseconds of the server per job, a bar per command."""
    drawn = ink.figure(TOP_IN + BOTTOM_IN + 0.3 * len(commands))
    ink.margins(drawn, left=1.9, right=0.8, top=0.15, bottom=BOTTOM_IN)
    panel = drawn.subplots()
    names, values = [ink.plain(name) for name, _ in commands], [us for _, us in commands]
    bars = panel.barh(names, values, color=ink.BLUE, height=0.65)
    panel.bar_label(bars, fmt="%.1f", padding=4)
    panel.invert_yaxis()
    panel.grid(axis="y", visible=False)
    panel.set_xlabel("us of the server per job")
    return drawn
