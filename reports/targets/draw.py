"""The figure of the page of queues compared: which share of the jobs whose worker was killed had started again after how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reports.page import ink

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Queues share a colour only where their lines differ.
COLOURS = (ink.BLUE, ink.VERMILLION, ink.GREEN, ink.PURPLE, ink.AMBER, ink.SKY, ink.GREY)
DASHES = ("-", "--", "-.", ":")


def recoveries(found: Mapping[str, tuple[Sequence[float], int]]) -> Figure:
    """A step line per queue. `found`: the seconds after which jobs were started again, and how many jobs were in hand in all; a
    line that ends below 100 % is of a queue that left jobs behind."""
    drawn = ink.figure(4.6)
    ink.margins(drawn, left=0.7, right=2.4, top=0.2, bottom=0.6)
    panel = drawn.subplots()
    longest_s = max([1.0, *(second for seconds, _ in found.values() for second in seconds)]) * 1.1
    for place, (name, (seconds, in_hand)) in enumerate(found.items()):
        ordered = sorted(seconds)
        shares = [100 * (number + 1) / in_hand for number in range(len(ordered))]
        style = {"color": COLOURS[place % len(COLOURS)], "ls": DASHES[place // len(COLOURS) % len(DASHES)], "lw": 2.0}
        label = f"{ink.plain(name)}: {len(ordered)} of {in_hand}"
        panel.step([0, *ordered, longest_s], [0, *shares, shares[-1] if shares else 0], where="post", label=label, **style)
    panel.set_xscale("symlog", linthresh=1)
    panel.set_xlim(0, longest_s)
    ticks = [0, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600]
    panel.set_xticks([tick for tick in ticks if tick <= longest_s], [str(tick) for tick in ticks if tick <= longest_s])
    panel.minorticks_off()
    panel.set_ylim(-3, 103)
    panel.set_xlabel("seconds from the SIGKILL to the next start of the job")
    panel.set_ylabel("jobs started again, %")
    panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    return drawn
