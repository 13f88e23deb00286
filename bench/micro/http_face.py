"""`python -m bench http`: what the HTTP face costs: wake-ups of many who wait, its memory while they do, and an enqueue.

One `ironclaim serve` has a core of its own; the server and the callers share the other one. The exit code is 1 where a wake-up
takes too long, or memory certainly grows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.micro import http_enqueue, http_wake
from bench.micro.http_wake import MEMORY_EVERY_S, WAKE_P99_MS, met
from bench.micro.place import ROOT, SERVER_CPU, Unpinnable
from bench.micro.runner import Runner
from engine.command_line import Parser
from record.options import Option

FOLDER = ROOT / "runs" / "bench-http"
#: Exit codes: the bounds are met, one is not, cannot be measured here.
MET, MISSED, UNKNOWN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work to measure."""

    wake: http_wake.Size
    enqueues: int
    repeat: int


FULL = Size(http_wake.Size(polls=1_000, listeners=500, seconds=300, ends_per_s=10), enqueues=2_000, repeat=5)
QUICK = Size(http_wake.Size(polls=200, listeners=100, seconds=20.0, ends_per_s=10.0), enqueues=300, repeat=3)


#: What may be asked for.
OPTIONS = (
    Option("polls", "long polls that wait at once", int, FULL.wake.polls, 1, 100_000),
    Option("listeners", "readers of events", int, FULL.wake.listeners, 1, 10_000),
    Option("seconds", "for so long jobs end", float, FULL.wake.seconds, 1, 86_400),
    Option("rate", "ends of jobs a second", float, FULL.wake.ends_per_s, 1, 10_000, dest="ends_per_s"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = Parser(prog="python -m bench http", description="What the HTTP face costs.")
    parser.add_argument("--quick", action="store_true", help="small numbers, a minute: for trying things out")
    parser.add_argument("--only", choices=("wake", "enqueue"), action="append", help="measure this part alone")
    for one in OPTIONS:
        parser.add_argument(f"--{one.name}", type=one.read, dest=one.attribute, metavar=one.shown, help=one.told)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder for the file of numbers")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else FULL
    given = {one.attribute: value for one in OPTIONS if (value := getattr(options, one.attribute)) is not None}
    wake = replace(size.wake, **given)
    try:
        runner = Runner(options.folder, SERVER_CPU)
    except Unpinnable as error:
        print(f"bench-http: {error}", file=sys.stderr)
        return UNKNOWN
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "wake": lambda: http_wake.measure(wake, runner.report),
        "enqueue": lambda: http_enqueue.measure(size.enqueues, size.repeat, runner.report),
    }
    found = {name: parts[name]() for name in options.only or parts}
    runner.write({"machine": runner.card, "size": asdict(replace(size, wake=wake)), "parts": found})
    print("\n".join(["", *details(found)]))
    runner.files(".json")
    return MET if "wake" not in found or met(found["wake"]) else MISSED


def details(found: dict[str, Any]) -> list[str]:
    """Every number, as lines."""
    lines: list[str] = []
    woken = found.get("wake")
    if woken:
        lines.append("wake: ms from the call that finishes to what tells it: p50, p99, max")
        for who, row in woken["wake_ms"].items():
            lines.append(f"  {who:<10} {row['p50']:8.2f} {row['p99']:8.2f} {row['max']:8.2f}   of {row['count']:,}")
        lines.append(f"  CPU of the face: {woken['cpu_us_per_wake']:.1f} us a wake-up, {woken['cpu_share']:.2f} of its core")
        lines.append(f"  CPU of the callers: {woken['callers_cpu_share']:.2f} of theirs")
        grown, memory = woken["growth"], woken["memory_mb"]
        lines.append(f"  memory: MB each {MEMORY_EVERY_S:g} s: {' '.join(f'{mb:.1f}' for _, mb in memory)}")
        lines.append(f"  growth: {grown['mb_per_minute']:+.2f} MB a minute ({grown['low']:+.2f} to {grown['high']:+.2f})")
        p99_ms = max(row["p99"] for row in woken["wake_ms"].values())
        lines.append(f"  {'met' if met(woken) else 'MISSED'}: p99 {p99_ms:.1f} ms of {WAKE_P99_MS:g} ms, and memory that stays")
    for title, part in found.get("enqueue", {}).items():
        lines.append(f"enqueue, {title}: jobs/s, ms p50 and p99, us of CPU a job")
        for name, rounds in part["rows"].items():
            shown = {field: median(row[field] for row in rounds) for field in rounds[0]}
            lines.append(
                f"  {name:<17} {shown['jobs_per_s']:8,.0f} {shown['p50_ms']:8.2f} {shown['p99_ms']:8.2f} {shown['cpu_us']:8.1f}"
            )
        for name, row in part["ratios"].items():
            low, high = row["interval"]
            lines.append(f"  {name}: {row['ratio']:.2f} ({low:.2f} to {high:.2f})")
    return lines


if __name__ == "__main__":
    sys.exit(main())
