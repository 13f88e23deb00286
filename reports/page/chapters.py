"""The chapters of a page: each a figure with an explanation, and its numbers as a table below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports import evidence
from reports.facts import WORKER_FAULTS
from reports.frames import AnyFrames, Frames
from reports.page import chapter, draw_lanes, draw_phases, draw_time, ink, numbers
from reports.page.channels.chapters import channel_chapters
from reports.page.chapter import Caption, Chapter, Common, drawn, faults, first_violation, guarded, machine
from reports.page.draw_phases import Recovery, recoveries
from reports.page.samples import samples
from reports.page.series import Series, series
from reports.page.timeline import axis, windows


@dataclass(frozen=True)
class Matter(Common):
    """The input of the chapters of a job run."""

    frames: Frames
    series: Series
    recoveries: list[Recovery]


def chapters(run: Path, decided: Mapping[str, Any], frames: AnyFrames) -> list[Chapter]:
    """All chapters for which the run has data, in the order of the page."""
    along = axis(frames.run)
    common = Common(decided, along, windows(frames.run, along), samples(run, frames.run, along), evidence.read(run))
    with ink.drawing():
        if not isinstance(frames, Frames):
            return channel_chapters(run, common, frames)
        matter = Matter(**vars(common), frames=frames, series=series(frames, along), recoveries=recoveries(frames))
        makers = (first_violation, faults, phases, latency, load, recovery, timelines, offenders, machine)
        return [chapter for maker in makers for chapter in guarded(maker, matter)]


def phases(matter: Matter) -> list[Chapter]:
    lines = matter.decided["measures"]["percentiles"]
    return [drawn("phases", chapter.PHASES, draw_phases.phases(lines), numbers.phases(lines))] if lines else []


def latency(matter: Matter) -> list[Chapter]:
    if not matter.series.latencies:
        return []
    width = "one second" if matter.axis.width_s == 1 else f"{matter.axis.width_s} seconds"
    figure = draw_time.latency(matter.series, matter.axis, matter.windows)
    return [drawn("latency", chapter.LATENCY, figure, numbers.latency(matter.series, matter.axis), width=width)]


def load(matter: Matter) -> list[Chapter]:
    if not matter.series.counts:
        return []
    figure = draw_time.load(matter.series, matter.samples, matter.axis, matter.windows)
    return [drawn("load", chapter.LOAD, figure, numbers.load(matter.series, matter.samples, matter.axis))]


def recovery(matter: Matter) -> list[Chapter]:
    if not matter.recoveries:
        return []
    bounds_s = {line["fault"]: line["bound_ms"] / 1_000 for line in matter.decided["measures"]["recovery"]}
    figure = draw_phases.recovery(matter.recoveries, bounds_s, matter.frames.run.lease_ms / 1_000)
    return [drawn("recovery", chapter.RECOVERY, figure, numbers.recovery(matter.recoveries))]


def timelines(matter: Matter) -> list[Chapter]:
    """Lanes around each kill and freeze of a worker that held leases."""
    held = draw_lanes.in_hand_at(matter.frames, matter.recoveries)
    found = draw_lanes.leases_of(
        matter.frames, [job for jobs in held.values() for job in jobs[: draw_lanes.JOBS_MAX]], matter.axis
    )
    finished = matter.series.count("finished", matter.axis.buckets)
    made: list[Chapter] = []
    for window in matter.windows:
        if window.name in WORKER_FAULTS and held.get(window.fault):
            limit_s = 1.5 * matter.frames.run.liveness_ms / 1_000
            shown = draw_lanes.around(window, held[window.fault], found, limit_s, matter.axis)
            made.append(
                lanes(
                    f"lanes-{len(made) + 1}",
                    chapter.LANES,
                    draw_lanes.with_others(matter.frames, shown, finished, matter.axis),
                    matter,
                )
            )
    return made


def offenders(matter: Matter) -> list[Chapter]:
    """Lanes of the first jobs that violated a check."""
    names = draw_lanes.first_subjects(matter.decided["checks"])
    shown = draw_lanes.whole_story(names, draw_lanes.leases_of(matter.frames, names, matter.axis))
    return [lanes("offenders", chapter.OFFENDERS, shown, matter)] if shown else []


def lanes(name: str, caption: Caption, shown: draw_lanes.Lanes, matter: Matter) -> Chapter:
    """One set of lanes."""
    text = caption.lead
    text += f" {shown.left_out} more jobs were in hand and are not shown." if shown.left_out else ""
    text += f" Of the grey leases one in {shown.one_in} is drawn." if shown.one_in > 1 else ""
    counts = {"workers": len(shown.workers), "leases": len(shown.leases), "jobs": len(shown.jobs)}
    figure, table = draw_lanes.lanes(shown, matter.windows), numbers.lanes(shown, draw_lanes.letter)
    return drawn(name, caption._replace(lead=text), figure, table, title=shown.title, **counts)
