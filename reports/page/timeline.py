"""The time of a run in buckets, and the bands of its faults, shaded behind every figure over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from reports.facts import MS
from reports.page import ink
from reports.windows import targets

if TYPE_CHECKING:
    from reports.facts import Run, Stage

# The time of a run: its axis in seconds, its buckets, and the windows of its faults.

SECOND_NS = 1_000 * MS

#: A series has at most this many buckets. The bucket width in seconds is the first of these with which that holds.
BUCKETS_MAX = 600
WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600)

#: The phase that marks the end of a run.
END = "end"


@dataclass(frozen=True, slots=True)
class Axis:
    """The time axis of a page: seconds since the first phase began, in buckets of equal width."""

    start_ns: int
    end_ns: int
    width_s: int

    @property
    def end_s(self) -> float:
        return self.second(self.end_ns)

    @property
    def buckets(self) -> int:
        return max(1, -(-(self.end_ns - self.start_ns) // (self.width_s * SECOND_NS)))

    @property
    def starts_s(self) -> list[int]:
        """The second at which each bucket begins."""
        return [index * self.width_s for index in range(self.buckets)]

    def second(self, t_ns: int) -> float:
        """An instant as seconds on the axis."""
        return (t_ns - self.start_ns) / SECOND_NS


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which a fault was in force. `verified`: it was seen to take effect and to heal."""

    fault: str
    name: str
    target: str
    start_s: float
    end_s: float
    verified: bool

    @property
    def targets(self) -> tuple[str, ...]:
        """The processes that the fault hits; a network fault may hit several."""
        return targets(self.target)

    @property
    def label(self) -> str:
        """The text of a band: the fault's name without the prefix that its family shares."""
        short = self.name.removeprefix("worker-").removeprefix("subscriber-").removeprefix("net-").replace("-", " ")
        return short if self.verified else f"{short}, NOT VERIFIED"


def axis(run: Run) -> Axis:
    """From the first phase to the end of the last; without phases in the history, the time in which rows were written."""
    starts = [phase.t_ns for phase in run.phases]
    ends = [phase.t_ns for phase in run.phases if phase.name == END]
    opened = [file.opened_ns for file in run.files.values() if file.opened_ns is not None]
    last = [file.last_ns for file in run.files.values() if file.last_ns is not None]
    start_ns = min(starts or opened or last or [0])
    end_ns = max([start_ns + SECOND_NS, *(ends or last)])
    length_s = (end_ns - start_ns) / SECOND_NS
    width_s = next((width for width in WIDTHS_S if length_s <= width * BUCKETS_MAX), int(length_s / BUCKETS_MAX) + 1)
    return Axis(start_ns, end_ns, width_s)


def windows(run: Run, axis: Axis) -> list[Window]:
    """One window per fault, from its inject to its heal, in the order of their starts."""
    found: list[Window] = []
    for fault in dict.fromkeys(stage.fault for stage in run.stages):
        stages = [stage for stage in run.stages if stage.fault == fault]
        start_ns, end_ns = bounds_ns(stages, axis)
        seen = {stage.stage: stage.ok for stage in stages}
        verified = seen.get("witness", False) and seen.get("healed", False)
        first = stages[0]
        found.append(Window(fault, first.name, first.target, axis.second(start_ns), axis.second(end_ns), verified))
    return found


def bounds_ns(stages: list[Stage], axis: Axis) -> tuple[int, int]:
    """From the first inject to the last heal; a fault that never healed lasts until the end of the axis."""
    start_ns = min((stage.t_ns for stage in stages if stage.stage != "snapshot"), default=stages[0].t_ns)
    heals = [stage.t_ns for stage in stages if stage.stage == "heal"]
    return start_ns, max(heals, default=max(axis.end_ns, start_ns))


#: Approximate width of a character of a band's name, and height of a row of names, in inches.
CHARACTER_IN = 0.072
ROW_IN = 0.165

#: At most this many rows of names; names that need a further row are left out. The table of faults has all.
ROWS_MAX = 5


def shade(panels: Sequence[Axes], windows: Sequence[Window]) -> None:
    """Shade the windows in every panel: plain where the fault was verified, hatched where it was not."""
    for panel in panels:
        for window in windows:
            span = (window.start_s, window.end_s)
            if window.verified:
                panel.axvspan(*span, facecolor=ink.BAND, edgecolor="none", alpha=0.75, zorder=0)
            else:
                panel.axvspan(*span, facecolor="none", edgecolor=ink.EDGE, hatch="////", linewidth=0.0, zorder=0)


def placed(windows: Sequence[Window], width_in: float, span_s: float) -> list[tuple[Window, float, int]]:
    """The position of each window's name: its middle on an axis of this width and span, and its row, so that names do not
    overlap."""
    ends_s: list[float] = []
    found: list[tuple[Window, float, int]] = []
    for window in sorted(windows, key=lambda window: window.start_s):
        half_s = (len(ink.plain(window.label)) * CHARACTER_IN / 2 + 0.06) * span_s / width_in
        middle_s = min(max((window.start_s + window.end_s) / 2, half_s), max(span_s - half_s, half_s))
        row = next((row for row, end_s in enumerate(ends_s) if end_s <= middle_s - half_s), len(ends_s))
        ends_s[row : row + 1] = [middle_s + half_s]
        found.append((window, middle_s, row))
    return [place for place in found if place[2] < ROWS_MAX]


def height_in(names: Sequence[tuple[Window, float, int]]) -> float:
    """The height, in inches, that the names need above their panel."""
    return ROW_IN * (1 + max((row for _, _, row in names), default=-1))


def write(panel: Axes, names: Sequence[tuple[Window, float, int]]) -> None:
    """Write the faults' names above a panel, each over its band."""
    for window, middle_s, row in names:
        panel.annotate(
            ink.plain(window.label),
            xy=(middle_s, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 + row * ROW_IN * 72),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            color=ink.SOFT,
            weight="bold",
            annotation_clip=False,
        )
