"""The table under each figure: the same numbers as text, for copying and for screen readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reports.page.draw_lanes import Lanes, Lease
from reports.page.draw_phases import Recovery
from reports.page.html import table
from reports.page.samples import ROLES, STATES, Samples
from reports.page.series import RATES, TROUBLES, Series
from reports.page.timeline import Axis, Window
from reports.page.words import LATENCY_NAMES

PERCENTILES = ("p50_ms", "p90_ms", "p99_ms", "p99_9_ms", "max_ms")


def faults(lines: Sequence[Mapping[str, Any]], windows: Sequence[Window]) -> str:
    """A line per fault."""
    spans = {window.fault: (window.start_s, window.end_s - window.start_s) for window in windows}
    rows = [
        [
            line["fault"], line["target"].replace(",", ", "), *spans.get(line["fault"], (None, None)),
            line["witnessed"], line["healed"], line["detail"], line["healed_detail"],
        ]
        for line in lines
    ]  # fmt: skip
    heads = (
        *("fault", "target", "at s", "for s", "seen to bite", "seen to heal"),
        *("what the witness saw", "what was seen afterwards"),
    )
    return table("Injected faults and their witnesses", heads, rows, words=(1, 4, 5, 6, 7))


def phases(lines: Sequence[Mapping[str, Any]], heads: tuple[str, str] = ("latency", "jobs")) -> str:
    """A line per phase and latency. `heads`: titles of the series column and of the count column."""
    rows = [
        (line["phase"], LATENCY_NAMES.get(line["series"], line["series"]), line["n"], *(line[name] for name in PERCENTILES))
        for line in lines
    ]
    every = ("phase", *heads, "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "longest ms")
    return table(f"Latency in ms by phase; a dash where it is endless or rests on too few {heads[1]}", every, rows, words=(1,))


def latency(series: Series, axis: Axis) -> str:
    """A line per bucket that has jobs."""
    shown = [name for name in LATENCY_NAMES if name in series.latencies]
    heads = ["second", "jobs"]
    for name in shown:
        heads += [f"{LATENCY_NAMES[name]} p50", "p99", "longest", "no end"]
    rows: list[list[object]] = []
    for bucket, start_s in enumerate(axis.starts_s):
        spreads = [series.latencies[name].get(bucket) for name in shown]
        jobs = max((spread.n for spread in spreads if spread), default=0)
        cells: list[object] = [start_s, jobs]
        for spread in spreads:
            cells += [None] * 4 if spread is None else [spread.p50_ms, spread.p99_ms, spread.max_ms, spread.unfinished]
        if jobs:
            rows.append(cells)
    return table(f"Latency in ms, {axis.width_s} s to a line", heads, rows)


def load(series: Series, samples: Samples, axis: Axis) -> str:
    """A line per bucket."""
    counts = [series.count(name, axis.buckets) for name in (*RATES, *TROUBLES)]
    rows = [
        [start_s, *(values[bucket] for values in counts), *(samples.backlog[state].get(bucket) for state in STATES)]
        for bucket, start_s in enumerate(axis.starts_s)
    ]
    return table(f"Jobs, calls and backlog, {axis.width_s} s to a line", ("second", *RATES, *TROUBLES, *STATES), rows)


def recovery(found: Sequence[Recovery]) -> str:
    """A line per job leased at a kill."""
    rows = [(one.job, one.fault, one.target, one.connected or None, one.seconds, fate(one)) for one in found]
    heads = ("job", "kill", "worker", "connected", "seconds", "what became of it")
    return table("Jobs in hand at each kill", heads, rows, words=(1, 2, 3, 5))


def fate(one: Recovery) -> str:
    """The outcome of a job leased at a kill."""
    if one.seconds is not None:
        return "ran elsewhere"
    return "its end had been sent, or it was buried" if one.ended else "never ran again"


def lanes(shown: Lanes, letter: Callable[[int], str]) -> str:
    """A line per lease."""
    heads = (
        "job", "id", "fence", "worker", "claimed at s", "handler at s", "renewals",
        "ended at s", "by", "answer", "reaped at s", "reaper",
    )  # fmt: skip
    rows = [
        (letter(shown.jobs.index(lease.job)), *cells(lease))
        for lease in sorted(shown.leases, key=lambda one: shown.jobs.index(one.job))
    ]
    return table(f"Leases of the jobs that are followed: {shown.title}", heads, rows, words=(1, 3, 8, 9, 11))


def cells(lease: Lease) -> tuple[object, ...]:
    """The known events of a lease. The fence is an identifier, not a quantity, so it has no thousands separators."""
    return (
        lease.job, str(lease.fence), lease.worker or None, lease.claimed_s, lease.started_s, len(lease.renewed_s), lease.ended_s,
        lease.ended_by or None, lease.answer or None, lease.reaped_s, lease.reaped_by or None,
    )  # fmt: skip


def machine(samples: Samples, axis: Axis) -> str:
    """A line per bucket."""
    roles = [role for role in ROLES if samples.cores[role]]
    rows = [
        [start_s, *(samples.cores[role].get(bucket) for role in roles), samples.memory_mib.get(bucket)]
        for bucket, start_s in enumerate(axis.starts_s)
    ]
    heads = ("second", *(f"{role}, cores" for role in roles), "data of the server, MiB")
    return table(f"CPU and memory, {axis.width_s} s to a line", heads, rows)
