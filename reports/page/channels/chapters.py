"""The chapters of a channel run, in the order of its page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reports.page import draw_phases
from reports.page import numbers as common_numbers
from reports.page.channels import draw, numbers
from reports.page.channels.series import ChannelSeries, Fall, channel_series, falls
from reports.page.chapter import Caption, Chapter, Common, drawn, faults, first_violation, guarded, machine
from reports.page.html import safe

if TYPE_CHECKING:
    from reports.channels.frames import ChannelFrames

# The caption above each figure of a channel run, and its alternative text for screen readers.

CLOCKS = Caption(
    "Clocks against time",
    "A channel's clock counts its messages in a circle: after 2^53 - 1, the largest, comes the smallest, -(2^53 - 1). Drawn is "
    "how far each clock is from that wrap: 0 is the largest clock, +1 the smallest, which comes after it; a line that passes the "
    "black one has crossed. A clock that went back, because an older copy of the data was restored, begins a new era: it goes on "
    "after the latest clock that its callers remember. Shaded: a fault that was seen to bite and to heal; hatched: one that "
    "was not.",
    "Clocks over time, as messages before and after the wrap, one panel for each fan-out, crossings and new eras marked.",
)
PHASES = Caption(
    "Latency by fan-out and phase",
    "From the instant at which a message should have been published to the receipt of the fetch that brought it, once for each "
    "subscriber: exact percentiles for each phase of the run. A percentile is left out when fewer than ten deliveries lie beyond "
    "it. Subscribers that are slow on purpose are left out; what was never delivered is counted as lost, not here.",
    "A row per phase and a panel per fan-out, with marks for p50, p90, p99, p99.9 and the longest, on a logarithmic scale.",
)
LATENCY = Caption(
    "Latency by fan-out over time",
    "Each point sums up {width} of deliveries, by the time at which their messages should have been published. Few stand behind "
    "each p99 here, and too few for a p99.9, in whose place the longest stands: read the shape; the percentiles that count are "
    "those of the phases.",
    "p50, p99 and the longest latency over time on a logarithmic scale, one panel for each fan-out, faults shaded.",
)
LAG = Caption(
    "Lag",
    "How many messages lie between the cursor of a subscriber, up to which it has acknowledged, and the clock of its channel, at "
    "the end of each {width}: for half of the subscribers of a group, and for the one that is furthest behind. It must come back "
    "down after each fault. Subscribers that are slow or away on purpose are a group of their own.",
    "Messages that subscribers had not acknowledged over time, one panel for each group: half of them, and the furthest behind.",
)
RATES = Caption(
    "Rates",
    "Messages are offered by a schedule that does not wait for the system. Again: delivered once more, since it had not been "
    "acknowledged. Told as lost: a fetch said that messages were gone before it came. Re-sent: a call that needed more than one "
    "send. Duplicate: a publish whose message was there already. Stale: an acknowledgement that moved no cursor. Unanswered: it "
    "may have happened and may not; the checks allow for both.",
    "Messages offered and published, first and repeated deliveries, and calls that had trouble, per second over time.",
)
CHANNELS = Caption(
    "The channels",
    "One line for each channel. Delivered counts a message once for each subscriber; told as lost is what fetches said was gone.",
)


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
    title, lead, _ = CHANNELS
    return [Chapter("channels", title, f"<p>{safe(lead)}</p>", table=numbers.channels(lines))] if lines else []


def clocks(matter: ChannelMatter) -> list[Chapter]:
    if not matter.series.clocks:
        return []
    figure = draw.clocks(matter.series, matter.falls, matter.axis, matter.windows)
    return [drawn("clocks", CLOCKS, figure, numbers.clocks(matter.series))]


def phases(matter: ChannelMatter) -> list[Chapter]:
    lines = matter.decided["measures"]["percentiles"]
    titles = {line["series"]: line["series"] for line in lines}
    table = common_numbers.phases(lines, ("fan-out", "deliveries"))
    return [drawn("phases", PHASES, draw_phases.phases(lines, titles), table)] if lines else []


def latency(matter: ChannelMatter) -> list[Chapter]:
    if not matter.series.latencies:
        return []
    figure = draw.latency(matter.series, matter.axis, matter.windows)
    width = "one second" if matter.axis.width_s == 1 else matter.width
    return [drawn("latency", LATENCY, figure, numbers.latency(matter.series, matter.axis), width=width)]


def lag(matter: ChannelMatter) -> list[Chapter]:
    if not matter.series.lags:
        return []
    figure = draw.lag(matter.series, matter.axis, matter.windows)
    return [drawn("lag", LAG, figure, numbers.lag(matter.series, matter.axis), width=matter.width)]


def rates(matter: ChannelMatter) -> list[Chapter]:
    if not matter.series.counts:
        return []
    figure = draw.rates(matter.series, matter.axis, matter.windows)
    return [drawn("rates", RATES, figure, numbers.rates(matter.series, matter.axis))]
