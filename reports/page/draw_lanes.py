"""Lanes per worker: the leases that each worker held around one fault, found and drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline
from pyspark.sql import functions as F

from reports.facts import WORKER_FAULTS, WORKER_KILLS
from reports.meaning import ENDS
from reports.page import ink
from reports.page.draw_phases import Recovery
from reports.page.timeline import SECOND_NS, Axis, Window

if TYPE_CHECKING:
    from pyspark.sql import Row

    from reports.facts import Stage
    from reports.frames import Frames

# The data of the lanes: the leases of chosen jobs with all known events, and the other leases around them.


#: Maximum number of followed jobs, and approximate maximum number of other leases, in one set of lanes.
JOBS_MAX = 12
OTHERS_MAX = 2_000

#: This many examples of each violated check are shown.
OFFENDERS_OF_A_CHECK = 2

#: Lanes begin this long before their fault and end this long after their last event.
LEAD_S = 2.0
TRAIL_S = 1.5

#: Answer to the call that ends a lease -> its text.
ANSWERS = {"ok": "accepted", "repeated": "repeated", "stale": "refused", "void": "refused", "unknown": "no answer"}


@dataclass
class Lease:
    """One lease of a job. Times are seconds on the axis; unknown values are None or empty."""

    job: str
    fence: int
    nonce: str
    worker: str = ""
    claimed_s: float | None = None
    started_s: float | None = None
    renewed_s: list[float] = field(default_factory=list)
    ended_s: float | None = None
    ended_by: str = ""
    answer: str = ""
    reaped_s: float | None = None
    reaped_by: str = ""

    @property
    def first_s(self) -> float:
        """When its first known event happened."""
        return min(at for at in (self.claimed_s, self.started_s, self.ended_s, self.reaped_s, float("inf")) if at is not None)

    @property
    def last_s(self) -> float:
        """When its last known event happened."""
        seen = (self.claimed_s, self.started_s, self.ended_s, self.reaped_s, *self.renewed_s)
        return max((at for at in seen if at is not None), default=self.first_s)


@dataclass(frozen=True, slots=True)
class Other:
    """A lease in the background: its worker and times."""

    worker: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Lanes:
    """The content of one timeline. `left_out`: number of leased jobs that are not followed; `one_in`: one in this many other
    leases is shown."""

    title: str
    start_s: float
    end_s: float
    workers: tuple[str, ...]
    jobs: tuple[str, ...]
    leases: tuple[Lease, ...]
    others: tuple[Other, ...] = ()
    left_out: int = 0
    one_in: int = 1


def in_hand_at(frames: Frames, recoveries: Sequence[Recovery]) -> dict[str, list[str]]:
    """Fault -> the jobs that its target held when it began, the slowest to run again first; for kills and freezes only."""
    found: dict[str, list[str]] = {}
    for one in recoveries:
        found.setdefault(one.fault, []).append(one.job)
    for stage in frames.run.stages:
        if stage.name in WORKER_FAULTS and stage.stage == "witness" and stage.fault not in found:
            named = [lease.rsplit(" ", 1)[0] for lease in stage.leases]
            found[stage.fault] = list(dict.fromkeys(named)) or held_by(frames, stage)
    return found


def held_by(frames: Frames, witness: Stage) -> list[str]:
    """Jobs that the target of a fault held when it was injected; used when the witness names none."""
    injects = [one.t_ns for one in frames.run.stages if one.fault == witness.fault and one.stage == "inject"]
    at_ns = F.lit(min([*injects, witness.t_ns])).cast("bigint")
    until_ns = F.least("end_sent_ns", "reap_sent_ns")
    held = (F.col("proc") == witness.target) & (F.col("claim_done_ns") <= at_ns) & (F.coalesce(until_ns, at_ns + 1) > at_ns)
    return [row["job"] for row in frames.tokens.where(held).select("job").distinct().orderBy("job").limit(JOBS_MAX).collect()]


def leases_of(frames: Frames, jobs: Iterable[str], axis: Axis) -> dict[str, list[Lease]]:
    """Job -> its leases by fence, from the rows of its claims, renewals, ends, reaps and handlers."""
    chosen = sorted(set(jobs))
    if not chosen:
        return {}
    about = F.col("job").isin(chosen) & F.col("fence").isNotNull() & F.col("f").isin("claim", "extend", "reap", "handle", *ENDS)
    columns = ("job", "fence", "nonce", "proc", "f", "type", "result", "first_send_ns", "done_ns")
    rows = frames.events.where(about).select(*columns).collect()
    found: dict[tuple[str, int, str], Lease] = {}
    for row in sorted(rows, key=lambda row: row["first_send_ns"] or row["done_ns"] or 0):
        key = (row["job"], row["fence"], row["nonce"] or "")
        enter(found.setdefault(key, Lease(*key)), row, axis)
    by_job: dict[str, list[Lease]] = {}
    for lease in sorted(found.values(), key=lambda lease: (lease.fence, lease.nonce)):
        by_job.setdefault(lease.job, []).append(lease)
    return by_job


def enter(lease: Lease, row: Row, axis: Axis) -> None:
    """Add the content of one row to its lease; rows must be in the order in which they were sent."""
    f, result, answered = row["f"], row["result"] or "", row["type"] == "ok"
    sent_s = None if row["first_send_ns"] is None else axis.second(row["first_send_ns"])
    done_s = None if row["done_ns"] is None else axis.second(row["done_ns"])
    if f == "reap":
        lease.reaped_s, lease.reaped_by = (sent_s if done_s is None else done_s), row["proc"]
        return
    lease.worker = lease.worker or row["proc"]
    if f == "claim" and answered and lease.claimed_s is None:
        lease.claimed_s = done_s
    elif f == "handle" and lease.started_s is None:
        lease.started_s = sent_s
    elif f == "extend" and answered and result == "ok" and sent_s is not None:
        lease.renewed_s.append(sent_s)
    elif f in ENDS and lease.answer not in ("accepted", "repeated"):
        lease.ended_s, lease.ended_by = sent_s, f
        lease.answer = ANSWERS.get(result, "no answer") if answered else "no answer"


def around(window: Window, jobs: Sequence[str], leases: dict[str, list[Lease]], limit_s: float, axis: Axis) -> Lanes:
    """The lanes of one fault, without other leases: from before it until its jobs ran elsewhere, or `limit_s` after it began."""

    def first_s(job: str) -> float:
        return min((lease.first_s for lease in leases.get(job, ())), default=0.0)

    shown = tuple(sorted(jobs[:JOBS_MAX], key=lambda job: (first_s(job), job)))
    followed = [lease for job in shown for lease in leases.get(job, []) if lease.last_s >= window.start_s - LEAD_S]
    last_s = max([window.end_s, *(lease.last_s for lease in followed)])
    end_s = min(last_s, window.start_s + limit_s, axis.end_s) + TRAIL_S
    followed = [lease for lease in followed if lease.first_s < end_s]
    workers = tuple(dict.fromkeys([window.target, *sorted(lease.worker for lease in followed if lease.worker)]))
    title = f"{window.name} of {window.target}"
    return Lanes(title, window.start_s - LEAD_S, end_s, workers, shown, tuple(followed), left_out=len(jobs) - len(shown))


def with_others(frames: Frames, lanes: Lanes, finished: Sequence[int], axis: Axis) -> Lanes:
    """The lanes with the background leases added, thinned to one in `one_in` jobs when there are too many. `finished`: finished
    jobs per bucket."""
    first, last = (int(at // axis.width_s) for at in (lanes.start_s, lanes.end_s))
    one_in = max(1, -(-sum(finished[max(0, first) : last + 1]) // OTHERS_MAX))
    start_ns, end_ns = (axis.start_ns + round(at * SECOND_NS) for at in (lanes.start_s, lanes.end_s))
    held_until = F.coalesce("end_sent_ns", "reap_sent_ns", "hold_end_ns", "claim_done_ns")
    inside = F.col("claim_done_ns").between(start_ns, end_ns) & ~F.col("job").isin(list(lanes.jobs))
    drawn = inside & (F.pmod(F.xxhash64("job"), F.lit(one_in)) == 0)
    chosen = frames.tokens.where(drawn).select("proc", "claim_done_ns", held_until.alias("until_ns")).limit(2 * OTHERS_MAX)
    found = [Other(row["proc"], axis.second(row["claim_done_ns"]), axis.second(row["until_ns"])) for row in chosen.collect()]
    in_order = sorted((one for one in found if one.worker in lanes.workers), key=lambda other: (other.worker, other.start_s))
    return replace(lanes, others=tuple(in_order), one_in=one_in)


def first_subjects(checks: Iterable[Mapping[str, Any]]) -> list[str]:
    """The subjects of the first examples of each violated check."""
    subjects = [check["subjects"][:OFFENDERS_OF_A_CHECK] for check in checks if check["verdict"] == "violated"]
    return list(dict.fromkeys(subject for few in subjects for subject in few))[:JOBS_MAX]


def whole_story(jobs: Sequence[str], leases: Mapping[str, Sequence[Lease]]) -> Lanes | None:
    """Lanes with all leases of these jobs; None when no lease of any is known. Subjects that are not jobs are skipped."""
    jobs = [job for job in jobs if job in leases]
    followed = [lease for job in jobs for lease in leases[job] if lease.first_s != float("inf")]
    if not followed:
        return None
    start_s, end_s = min(lease.first_s for lease in followed), max(lease.last_s for lease in followed)
    margin_s = max(0.05, 0.1 * (end_s - start_s))
    workers = sorted({lease.worker for lease in followed if lease.worker})
    title = f"jobs {', '.join(jobs)}"
    return Lanes(title, start_s - margin_s, end_s + 2 * margin_s, tuple(workers), tuple(jobs), tuple(followed))


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
