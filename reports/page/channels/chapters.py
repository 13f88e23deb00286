"""The chapters of a channel run, in the order of its page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reports.page import draw_phases
from reports.page import numbers as common_numbers
from reports.page.channels import captions, draw, numbers
from reports.page.channels.falls import Fall, falls
from reports.page.channels.series import ChannelSeries, channel_series
from reports.page.chapter import Chapter, Common, drawn, faults, first_violation, guarded, machine
from reports.page.tables import safe

if TYPE_CHECKING:
    from reports.channels.frames import ChannelFrames


@dataclass(frozen=True)
class ChannelMatter(Common):
    """The input of the chapters of a channel run."""

    series: ChannelSeries
    falls: list[Fall]

    @property
    def width(self) -> str:
        """The time that a point covers, as text."""
        return "second" if self.axis.width_s == 1 else f"{self.axis.width_s} seconds"


def channel_chapters(run: Path, common: Common, frames: ChannelFrames) -> list[Chapter]:
    """All chapters for which the run has data."""
    found = {"series": channel_series(frames, common.axis), "falls": falls(run, common.axis)}
    matter = ChannelMatter(**vars(common), **found)
    makers = (first_violation, faults, clocks, phases, latency, lag, rates, channels, machine)
    return [chapter for maker in makers for chapter in guarded(maker, matter)]


def channels(matter: ChannelMatter) -> list[Chapter]:
    """A table of the channels; no figure."""
    lines = matter.decided["measures"].get("channels")
    title, lead, _ = captions.CHANNELS
    return [Chapter("channels", title, f"<p>{safe(lead)}</p>", table=numbers.channels(lines))] if lines else []


def clocks(matter: ChannelMatter) -> list[Chapter]:
    if not matter.series.clocks:
        return []
    figure = draw.clocks(matter.series, matter.falls, matter.axis, matter.windows)
    return [drawn("clocks", captions.CLOCKS, figure, numbers.clocks(matter.series))]


def phases(matter: ChannelMatter) -> list[Chapter]:
    lines = matter.decided["measures"]["percentiles"]
    titles = {line["series"]: line["series"] for line in lines}
    table = common_numbers.phases(lines, ("fan-out", "deliveries"))
    return [drawn("phases", captions.PHASES, draw_phases.phases(lines, titles), table)] if lines else []


def latency(matter: ChannelMatter) -> list[Chapter]:
    if not matter.series.latencies:
        return []
    figure = draw.latency(matter.series, matter.axis, matter.windows)
    width = "one second" if matter.axis.width_s == 1 else matter.width
    return [drawn("latency", captions.LATENCY, figure, numbers.latency(matter.series, matter.axis), width=width)]


def lag(matter: ChannelMatter) -> list[Chapter]:
    if not matter.series.lags:
        return []
    figure = draw.lag(matter.series, matter.axis, matter.windows)
    return [drawn("lag", captions.LAG, figure, numbers.lag(matter.series, matter.axis), width=matter.width)]


def rates(matter: ChannelMatter) -> list[Chapter]:
    if not matter.series.counts:
        return []
    figure = draw.rates(matter.series, matter.axis, matter.windows)
    return [drawn("rates", captions.RATES, figure, numbers.rates(matter.series, matter.axis))]
