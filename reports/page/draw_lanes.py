"""Lanes per worker: the leases that each worker held around one fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline

from reports.facts import WORKER_FAULTS, WORKER_KILLS
from reports.page import ink
from reports.page.leases import Lanes, Lease, Other
from reports.page.timeline import Window

#: Heights in inches: a row of followed leases, all other leases of a worker, a fault's name, and the padding of a lane.
ROW_IN, OTHERS_IN, NAME_IN, AIR_IN = 0.2, 0.3, 0.17, 0.16
LEFT_IN, RIGHT_IN, TOP_IN, BOTTOM_IN = 0.95, 0.2, 0.55, 0.45
AXES_IN = ink.WIDTH_IN - LEFT_IN - RIGHT_IN

#: Approximate width of a character of a lease's label, in inches.
CHARACTER_IN = 0.066

COLOURS = (ink.BLUE, ink.VERMILLION, ink.GREEN, ink.PURPLE, ink.AMBER, ink.SKY)


def letter(place: int) -> str:
    """The short name of a followed job: a, b, c and so on."""
    return chr(ord("a") + place)


def label(lease: Lease, shown: Lanes) -> str:
    """The label of a bar: the job's letter and the last digits of the fence; the table has the full fence."""
    return f"{letter(shown.jobs.index(lease.job))} …{str(lease.fence)[-6:]}"


def lanes(shown: Lanes, windows: Sequence[Window]) -> Figure:
    """A lane per worker: the leases that are not followed in grey, and below them a bar for each lease of a followed job."""
    rows = {worker: packed(worker, shown) for worker in shown.workers}
    hits = {worker: hits_of(worker, shown, windows) for worker in shown.workers}
    above_in = {worker: AIR_IN / 2 + NAME_IN * bool(hits[worker]) for worker in shown.workers}
    highs_in = {
        worker: above_in[worker] + OTHERS_IN + ROW_IN * max(1, len(rows[worker])) + AIR_IN / 2 for worker in shown.workers
    }
    height_in = sum(highs_in.values())
    drawn = ink.figure(TOP_IN + height_in + BOTTOM_IN)
    ink.margins(drawn, left=LEFT_IN, right=RIGHT_IN, top=TOP_IN, bottom=BOTTOM_IN)
    panel: Axes = drawn.subplots()
    panel.set_xlim(shown.start_s, shown.end_s)
    panel.set_ylim(height_in, 0)
    panel.grid(axis="y", visible=False)
    top_in = 0.0
    middles_in: list[float] = []
    for number, (worker, high_in) in enumerate(highs_in.items()):
        middles_in.append(top_in + high_in / 2)
        if number % 2 == 0:
            panel.axhspan(top_in, top_in + high_in, color=ink.GRID, alpha=0.3, lw=0, zorder=0)
        background(panel, [other for other in shown.others if other.worker == worker], top_in + above_in[worker])
        for place, row in enumerate(rows[worker]):
            for lease in row:
                bar(panel, lease, shown, windows, top_in + above_in[worker] + OTHERS_IN + ROW_IN * (place + 0.5))
        for window in hits[worker]:
            mark(panel, window, top_in, high_in)
        top_in += high_in
    panel.set_yticks(middles_in, [ink.plain(worker) for worker in shown.workers])
    panel.tick_params(axis="y", length=0, labelcolor=ink.INK)
    panel.set_xlabel("seconds since the load began")
    keys(drawn)
    return drawn


def hits_of(worker: str, shown: Lanes, windows: Sequence[Window]) -> list[Window]:
    """The faults that hit a worker in the shown time."""
    return [one for one in windows if worker in one.targets and one.start_s <= shown.end_s and one.end_s >= shown.start_s]


def packed(worker: str, shown: Lanes) -> list[list[Lease]]:
    """The followed leases of a worker, packed into as few rows as possible without overlap of bars and labels."""
    span_s = shown.end_s - shown.start_s
    rows: list[list[Lease]] = []
    free_s: list[float] = []
    for lease in sorted((one for one in shown.leases if one.worker == worker), key=lambda one: (one.first_s, one.job)):
        label_s = (len(label(lease, shown)) * CHARACTER_IN + 0.25) * span_s / AXES_IN
        row = next((row for row, at_s in enumerate(free_s) if at_s <= lease.first_s), len(rows))
        if row == len(rows):
            rows.append([])
            free_s.append(0.0)
        rows[row].append(lease)
        free_s[row] = lease.last_s + label_s
    return rows


def background(panel: Axes, others: Sequence[Other], top_in: float) -> None:
    """The leases that are not followed, in as many thin rows as the most that were held at once."""
    ends_s: list[float] = []
    places: list[tuple[Other, int]] = []
    for other in others:
        row = next((row for row, end_s in enumerate(ends_s) if end_s <= other.start_s), len(ends_s))
        ends_s[row : row + 1] = [other.end_s]
        places.append((other, row))
    thin_in = (OTHERS_IN - 0.06) / max(6, len(ends_s))
    corners: list[tuple[float, float]] = []
    for other, row in places:
        low, high = top_in + thin_in * row, top_in + thin_in * (row + 0.8)
        corners += [(other.start_s, low), (other.end_s, low), (other.end_s, high), (other.start_s, high), (other.start_s, low)]
    if corners:
        codes = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY] * len(places)
        panel.add_patch(PathPatch(Outline(corners, codes), facecolor=ink.GREY, edgecolor="none", zorder=1))


def bar(panel: Axes, lease: Lease, shown: Lanes, windows: Sequence[Window], middle_in: float) -> None:
    """One lease: full while its worker worked, hatched while it was dead or frozen, dotted after it was reaped."""
    colour = COLOURS[shown.jobs.index(lease.job) % len(COLOURS)]
    taken_s = min(at for at in (lease.reaped_s, lease.ended_s, lease.last_s) if at is not None)
    gone_s = gone(lease, windows, taken_s)
    high_in = ROW_IN * 0.66
    low_in = middle_in - high_in / 2
    shortest_s = (shown.end_s - shown.start_s) * 0.002
    worked_s = max(gone_s - lease.first_s, shortest_s)
    panel.add_patch(Rectangle((lease.first_s, low_in), worked_s, high_in, facecolor=colour, edgecolor="none", zorder=3))
    if taken_s > gone_s:
        panel.add_patch(
            Rectangle(
                (gone_s, low_in), taken_s - gone_s, high_in, facecolor="none", edgecolor=colour, hatch="////", lw=0.8, zorder=2
            )
        )
    if lease.last_s > taken_s:
        panel.plot([taken_s, lease.last_s], [middle_in] * 2, color=colour, lw=1.2, ls=(0, (1, 1.5)), zorder=2)
    for at_s in lease.renewed_s:
        panel.plot([at_s] * 2, [low_in - 0.03, low_in + high_in + 0.03], color=ink.INK, lw=1.6, zorder=5)
    if lease.reaped_s is not None:
        panel.plot(lease.reaped_s, middle_in, marker="D", ms=4.5, color=ink.INK, mec=ink.PAPER, mew=0.7, zorder=6)
    if lease.ended_s is not None:
        shape, tone = END_MARKS.get(lease.answer, ("$?$", ink.INK))
        panel.plot(lease.ended_s, middle_in, marker=shape, ms=5.5, color=tone, mec=ink.PAPER, mew=0.7, zorder=6)
    panel.annotate(
        label(lease, shown),
        (lease.last_s, middle_in),
        (7, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        annotation_clip=True,
    )


#: The answer to the end of a lease -> its mark.
END_MARKS = {"accepted": ("o", ink.GREEN), "repeated": ("o", ink.GREEN), "refused": ("X", ink.VERMILLION)}


def gone(lease: Lease, windows: Sequence[Window], taken_s: float) -> float:
    """When a fault killed or froze the worker during the lease; the end of the lease if none did."""
    hits = (window.start_s for window in windows if window.name in WORKER_FAULTS and lease.worker in window.targets)
    return min((at_s for at_s in hits if lease.first_s <= at_s < taken_s), default=taken_s)


def mark(panel: Axes, window: Window, top_in: float, high_in: float) -> None:
    """Mark the inject of a fault in the lane of the worker that it hit, and its heal if the worker survived."""
    ends_s = [window.start_s] if window.name in WORKER_KILLS else [window.start_s, window.end_s]
    for at_s in ends_s:
        panel.plot([at_s] * 2, [top_in, top_in + high_in], color=ink.VERMILLION, lw=1.8, zorder=4)
    place: dict[str, Any] = {"textcoords": "offset points", "annotation_clip": True, "zorder": 7}
    left_s, right_s = panel.get_xlim()
    for at_s, words in zip(ends_s, (window.label, "healed"), strict=False):
        # Beside the line, on the side where there is room.
        room = (3, "left") if at_s < left_s + 0.85 * (right_s - left_s) else (-3, "right")
        look = {"fontsize": 8, "weight": "bold", "color": ink.VERMILLION, "ha": room[1]}
        panel.annotate(ink.plain(words), (at_s, top_in), (room[0], -9), **look, **place)


def keys(drawn: Figure) -> None:
    """The legend of the shapes, in one line."""
    entries = [
        (Rectangle((0, 0), 1, 1, facecolor=ink.BLUE), "held"),
        (Rectangle((0, 0), 1, 1, facecolor="none", edgecolor=ink.BLUE, hatch="////"), "held by a dead or frozen worker"),
        (Line2D([], [], color=ink.BLUE, ls=(0, (1, 1.5))), "lost"),
        (Line2D([], [], color=ink.INK, marker="|", ms=8, mew=1.6, ls="none"), "renewed"),
        (Line2D([], [], color=ink.INK, marker="D", ms=5, ls="none"), "reaped"),
        (Line2D([], [], color=ink.GREEN, marker="o", ms=6, ls="none"), "end accepted"),
        (Line2D([], [], color=ink.VERMILLION, marker="X", ms=6.5, ls="none"), "end refused"),
        (Rectangle((0, 0), 1, 1, facecolor=ink.GREY), "other leases"),
    ]
    handles, labels = zip(*entries, strict=True)
    place: Any = {
        "loc": "upper left",
        "bbox_to_anchor": (0.02, 1.0),
        "handlelength": 1.4,
        "columnspacing": 1.3,
        "handletextpad": 0.5,
    }
    drawn.legend(handles, labels, ncols=len(entries), **place)
