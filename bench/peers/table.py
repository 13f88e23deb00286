"""The table of a run: on the terminal, as `docs/peers.md`, as a figure, and as one last line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.micro.rounds import median_interval
from bench.peers.libraries import LIBRARIES, OURS

#: library -> column -> the values of the repetitions.
Found = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class Column:
    """A column: its key in the values, its title, how a number is written, and whether more is better."""

    key: str
    title: str
    form: str = "{:,.0f}"
    more_is_better: bool = True
    #: Its name in the last line, if it is there.
    short: str = ""


RATES = (
    Column("enqueue", "enqueue one by one, jobs/s", short="enqueue"),
    Column("in_flight_50", "50 in flight, jobs/s", short="in_flight_50"),
    Column("in_flight_200", "200 in flight, jobs/s", short="in_flight_200"),
    Column("bulk", "bulk, jobs/s", short="bulk"),
    Column("drain", "drain, tuned, jobs/s", short="drain"),
    Column("drain_default", "drain, defaults, jobs/s"),
    Column("drain_2", "drain, two workers, jobs/s", short="drain_2"),
)
WAITS = (
    Column("pickup_p50_ms", "pickup p50, ms", "{:.2f}", False, "pickup_p50"),
    Column("pickup_p99_ms", "pickup p99, ms", "{:.2f}", False),
    Column("idle_commands", "idle, commands/s", "{:.1f}", False, "idle"),
    Column("idle_cpu", "idle, share of a core", "{:.3f}", False),
    Column("start_ms", "start to first job, ms", "{:,.0f}", False, "start"),
    Column("bytes", "bytes of a waiting job", "{:,.0f}", False, "bytes"),
    Column("redelivery_s", "runs again after SIGKILL, s", "{:.1f}", False),
)
COSTS = tuple(
    Column(f"{step}_{what}", f"{step}: {title}", form, False)
    for step in ("enqueue", "drain")
    for what, title, form in (
        ("commands", "commands", "{:.1f}"),
        ("round_trips", "round trips", "{:.2f}"),
        ("server_us", "server us", "{:.0f}"),
        ("client_us", "client us", "{:.0f}"),
    )
)
#: A library that leaves this many of its jobs unfinished in time is written with a `>`.
_REDELIVERS = {library.name: library.redelivers for library in LIBRARIES}


def cell(found: Found, library: str, column: Column) -> str:
    """Median and 95 % interval of a column, or `-` where the library has no such thing or it could not be measured quietly."""
    values = found[library].get(column.key)
    if not values:
        return "-"
    low, high = median_interval(values)
    written = column.form.format(median(values))
    return written if len(values) == 1 else f"{written} ({column.form.format(low)}-{column.form.format(high)})"


def ratio_to_best(found: Found, column: Column) -> float | None:
    """Ours against the best of those that run a job again after a SIGKILL; above 1 is ours better."""
    values = {name: median(own[column.key]) for name, own in found.items() if own.get(column.key)}
    ours = values.pop(OURS, None)
    theirs = [value for name, value in values.items() if _REDELIVERS[name]]
    if ours is None or not theirs:
        return None
    if column.more_is_better:
        return ours / max(theirs)
    return min(theirs) / ours if ours else float("inf")


def last_line(found: Found) -> str:
    """`peers: enqueue=.. ...`; `-` where a column has no peer."""
    ratios = ((column.short, ratio_to_best(found, column)) for column in (*RATES, *WAITS) if column.short)
    return "peers: " + " ".join(f"{name}={'-' if value is None else f'{value:.2f}'}" for name, value in ratios)


def markdown(result: Mapping[str, Any]) -> str:
    """`docs/peers.md`: what was measured and how, and the tables."""
    found: Found = result["found"]
    names = sorted(found, key=lambda name: -median(found[name].get("drain") or [0.0]))
    parts = [_HEAD.format(**result["run"])]
    for title, columns in (("Rates", RATES), ("Waits, idling, start and memory", WAITS), ("Costs of a job", COSTS)):
        parts.append(f"\n## {title}\n\n| | " + " | ".join(column.title for column in columns) + " |\n")
        parts.append("|---|" + "---|" * len(columns) + "\n")
        for name in names:
            mark = "" if _REDELIVERS[name] else " \\*"
            cells = " | ".join(
                _redelivery(result, name) if column.key == "redelivery_s" else cell(found, name, column) for column in columns
            )
            parts.append(f"| {'**' if name == OURS else ''}{name}{'**' if name == OURS else ''}{mark} | {cells} |\n")
    if result["missing"]:
        parts.append("\n## Not measured\n\n" + "".join(f"- {name}: {why}\n" for name, why in result["missing"].items()))
    parts.append(f"\n## Ours against the best that redelivers\n\nAbove 1 is ours better.\n\n```\n{last_line(found)}\n```\n")
    return "".join(parts)


def _redelivery(result: Mapping[str, Any], name: str) -> str:
    if name not in result["redelivery_s"]:
        return "-"
    seconds = result["redelivery_s"][name]
    return f"> {result['run']['redelivery_wait_s']:.0f}" if seconds is None else f"{seconds:.1f}"


def draw(found: Found, path: Path) -> None:
    """A bar for each library in six columns."""
    # Here, because it takes half a second, and only who draws needs it.
    import matplotlib.pyplot as plt

    shown = [column for column in (*RATES, *WAITS) if column.short][:9]
    names = sorted(found, key=lambda name: median(found[name].get("drain") or [0.0]))
    figure, grid = plt.subplots(3, 3, figsize=(15, 13), sharey=True, layout="constrained")
    for axes, column in zip(grid.flat, shown, strict=True):
        for place, name in enumerate(names):
            if values := found[name].get(column.key):
                low, high = median_interval(values)
                middle = median(values)
                axes.barh(place, middle, color="#c44e52" if name == OURS else "#4c72b0" if _REDELIVERS[name] else "#a9b8d0")
                axes.errorbar(middle, place, xerr=[[middle - low], [high - middle]], color="black", linewidth=1)
        axes.set_title(f"{column.title}\n{'more' if column.more_is_better else 'less'} is better", fontsize=10)
        axes.set_yticks(range(len(names)), names)
        if not column.more_is_better:
            axes.set_xscale("symlog" if column.key == "idle_commands" else "log")
        axes.grid(axis="x", alpha=0.3)
    figure.suptitle("red: this engine; blue: redelivers after SIGKILL; pale: does not, by default")
    figure.savefig(path, dpi=110)
    plt.close(figure)


_HEAD = """# Beside other queues

Made by `python -m bench peers` on {date}: {machine}. {repeat} repetitions in turns; medians, with 95 % intervals of the median in
brackets. The handler does nothing but note the time; the payload is 200 bytes of JSON. The server is pinned to one core;
producers and single workers to the other, while two workers, the pickup and the start may use both. *Tuned* is the fastest
setting for jobs of no length (`bench/peers/libraries.py`), used in all columns that do not say *defaults*. A `*` marks
libraries that by default do not run a job again whose worker was killed, so they promise less. A measurement during which
other processes used more than 5 % of a core was repeated, and left out when that happened twice (`-`, as where a library has
no such call).

- *In flight*: so many tasks of one process enqueue one job after the other; only where the library has an asynchronous client.
- *Pickup*: from the call that enqueues to the start of the handler, at 100 jobs a second.
- *Idle*: a worker without jobs; commands inside scripts count.
- *Start*: from the start of the process to the start of its first job.
- *Runs again*: from the SIGKILL of a worker that was 1 s into its job to the second start of that job; a new worker was started
  at once, with the default settings; {redelivery_wait_s:.0f} s were waited.
- *Costs*: commands count those inside scripts; round trips are the server's reads from sockets; the enqueue is the one by one.

![rates and waits](peers.png)
"""
