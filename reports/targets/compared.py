"""The page of queues compared: the matrix of what faults did to the jobs of each, and how soon jobs of killed workers ran again.
Every cell links to the run that it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from reports.page import FILE as REPORT
from reports.page import ink
from reports.page.facts import badge
from reports.page.html import NO_VALUE, Section, cell, header, marked_up, page, safe
from reports.targets.promise import Promise, promise_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The figure of the page of queues compared: which share of the jobs whose worker was killed had started
# again after how long.


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


TITLE = "Queues compared"

KINDS = ("lost", "doubled", "late", "stranded")


@dataclass(frozen=True)
class Entry:
    """One judged run. `place`: its folder, relative to the page."""

    name: str
    decided: Mapping[str, Any]
    place: str

    @property
    def target(self) -> str:
        return str(self.decided["spec"]["target"])

    @property
    def promise(self) -> Promise:
        return promise_of(self.decided["spec"])

    @property
    def measures(self) -> Mapping[str, Any]:
        return self.decided["measures"]

    @property
    def faulty(self) -> bool:
        return bool(self.decided["spec"]["plan"])

    def kill(self, name: str) -> int | None:
        """A number of jobs in hand at kills; None for a run without kills."""
        return self.measures["kill"][name] if self.again_ms is not None else None

    @property
    def again_ms(self) -> Sequence[float] | None:
        """After how many ms jobs of killed workers were started again; None for a run without kills."""
        kill = self.measures.get("kill")
        return kill["again_ms"] if kill and kill["in_hand"] else None

    def linked(self, html: str, anchor: str) -> str:
        """The content of a cell, linked to a section of the page of the run."""
        return f'<a href="{safe(quote(self.place))}/{REPORT}#{anchor}">{html}</a>'


def document(found: Sequence[Entry]) -> str:
    """The whole page."""
    faulty, calm = [one for one in found if one.faulty], [one for one in found if not one.faulty]
    sections = [
        Section("matrix", "What the faults did", LEAD + matrix(faulty) if faulty else ""),
        Section("recovery", "How soon jobs of killed workers ran again", curves(faulty)),
        Section("calm", "Without faults", matrix(calm) if calm else ""),
        Section("again", "How to run each again", again(found)),
    ]
    targets = len({one.target for one in found})
    return page(TITLE, header("plain", f"{len(found)} runs of {targets} job queues", TITLE), sections, main="wide wraps")


LEAD = (
    "<p>Each queue as it is by default, under one plan of faults: workers killed and frozen, the network cut, requests and "
    "replies lost. What is <em>lost</em> is in no key of the server any more; what is <em>stranded</em> is still there, and no "
    "worker takes it; <em>doubled</em> ran to its end twice; <em>late</em> ran after the bound (without one: after 30 s). The "
    "verdict is on the promise that each makes itself: what a weaker promise allows is counted, and breaks nothing.</p>"
)


def matrix(found: Sequence[Entry]) -> str:
    """One row per run."""
    of_these = ("of these: ran again", "of these: lost", "of these: stranded", "again after, median")
    of_all = (f"of all: {kind}" for kind in KINDS)
    heads = ("queue", "promise", "in hand at SIGKILL", *of_these, *of_all, "verdict")
    return marked_up("Jobs, by what became of them", heads, [row(one) for one in found], words=(1, len(heads) - 1))


def row(one: Entry) -> list[str]:
    """The cells of a run."""
    at_kill = [one.linked(cell(one.kill(name)), "kills") for name in ("in_hand", "again", "lost", "stranded")]
    took = one.again_ms
    after = one.linked(f"{median(took) / 1_000:.1f} s" if took else NO_VALUE, "kills")
    totals = [one.linked(cell(one.measures.get(kind)), "checks") for kind in KINDS]
    head = [one.linked(safe(one.target), "promise"), safe(one.promise.words)]
    return [*head, *at_kill, after, *totals, one.linked(badge(one.decided["verdict"]), "checks")]


def curves(found: Sequence[Entry]) -> str:
    """The figure, all runs of a queue together."""
    together: dict[str, tuple[list[float], int]] = {}
    for one in found:
        if one.again_ms is not None:
            seconds, in_hand = together.get(one.target, ([], 0))
            together[one.target] = ([*seconds, *(ms / 1_000 for ms in one.again_ms)], in_hand + (one.kill("in_hand") or 0))
    if not together:
        return ""
    with ink.drawing():
        alt = "the share of the jobs in hand at a SIGKILL that had started again, along time, one line for each queue"
        svg = ink.svg(recoveries(together), "recovery", alt)
    note = "<p>A line that stays below 100 % is of a queue that did not start all of them again while it was waited for.</p>"
    return f'{note}<figure><div class="scroll" tabindex="0" role="region" aria-label="Figure">{svg}</div></figure>'


def again(found: Sequence[Entry]) -> str:
    """The command of each run."""
    rows = [
        [one.linked(safe(one.name), "again"), f"<code>{safe(one.decided['spec'].get('again', ''))}</code>", safe(versions(one))]
        for one in found
    ]
    return marked_up("Runs", ("run", "command", "versions"), rows, words=(1, 2))


def versions(one: Entry) -> str:
    """What was drilled."""
    return ", ".join(one.decided["spec"].get("packages") or ())
