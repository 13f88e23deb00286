"""`python -m bench scale`: how long each script takes on the server, while one dimension of a queue grows in decades.

    python -m bench.micro.scale [--quick] [--only "lanes"] [--docs]

A script runs alone, so one that takes long holds up everybody. None may take longer than 5 ms, whatever the size of the queue,
but an enqueue of a caller's own bulk of 1,000; and its time may grow with the logarithm of the size at most. Exit codes: 0
measured (met or missed), 2 cannot be measured here.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

import engine
from bench.micro.desk import Desk
from bench.micro.place import ROOT, Unpinnable, client, pinned_server
from bench.micro.rounds import quantile
from bench.micro.runner import Runner, one_line
from bench.micro.scale_calls import BOUND_MS, FLAT_BELOW, OWN_BULK, SMALL_MS, STEPS, Meter
from bench.micro.scale_states import STATES, State, fill_fast
from engine.command_line import Parser

FOLDER = ROOT / "runs" / "bench-scale"
MEASURED, UNKNOWN = 0, 2
#: Jobs that wait in every dimension, so that each call finds some.
BASE_JOBS = 2_000
#: A call that is sent twice is no measurement, so a reply may take as long as a pause of the machine.
CONNECT = engine.ConnectOptions(timeout_ms=60_000)
#: At each size a step is taken so often, or for so long, but five times at least.
ROUNDS, STEP_S, ROUNDS_LEAST = 100, 0.15, 5
QUICK_MOST, QUICK_STEP_S = 10_000, 0.05

#: Dimension -> title of the call -> size -> milliseconds of each call.
Found = dict[str, dict[str, dict[int, list[float]]]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = Parser(prog="python -m bench scale", description="Each script while the queue grows.")
    parser.add_argument("--quick", action="store_true", help=f"sizes up to {QUICK_MOST:,}: one to two minutes")
    parser.add_argument("--only", choices=STATES, action="append", help="this dimension alone (may be given more than once)")
    parser.add_argument("--docs", action="store_true", help="write docs/scale.md and docs/scale.png, too")
    options = parser.parse_args(arguments)
    try:
        runner = Runner(FOLDER)
    except Unpinnable as error:
        print(f"bench-scale: {error}", file=sys.stderr)
        return UNKNOWN
    states = {name: STATES[name].up_to(QUICK_MOST) if options.quick else STATES[name] for name in options.only or STATES}
    found = measure(states, QUICK_STEP_S if options.quick else STEP_S, runner.report)
    _write(found, runner, docs=options.docs)
    return MEASURED


def measure(states: Mapping[str, State], step_s: float, report: Callable[[str], None]) -> Found:
    """Grow each dimension on a server of its own, and measure every call at each of its sizes."""
    found: Found = {}
    for name, state in states.items():
        found[state.title] = {}
        with ExitStack() as stack:
            server = stack.enter_context(pinned_server())
            desk = Desk(
                stack.enter_context(engine.Queue("scale", url=server.url, connect=CONNECT)), client(server), state.classes
            )
            fill_fast(desk, BASE_JOBS)
            before = 0
            for size in state.sizes:
                state.grow(desk, before, size)
                before = size
                for title, took_ms in _calls(desk, name, step_s).items():
                    found[state.title].setdefault(title, {})[size] = took_ms
                report(f"{size:,} {state.title}")
            for connected in desk.sockets:
                connected.close()
    return found


def _calls(desk: Desk, name: str, step_s: float) -> dict[str, list[float]]:
    """Milliseconds of the calls of each step."""
    meter = Meter(desk)
    for step, dimensions in STEPS.items():
        if dimensions and name not in dimensions:
            continue
        end_s = time.monotonic() + step_s
        for turn in range(ROUNDS):
            if turn >= ROUNDS_LEAST and time.monotonic() > end_s:
                break
            step(meter)
    return meter.took_ms


def growth(medians: Mapping[int, float]) -> float:
    """The exponent of the growth over the last two sizes: 0 is flat, 1 is linear."""
    sizes = sorted(medians)
    if len(sizes) < 2 or max(medians.values()) < SMALL_MS:
        return 0.0
    before, after = sizes[-2:]
    return math.log(medians[after] / max(medians[before], 1e-3)) / math.log(after / before)


def rows(found: Found) -> list[dict[str, Any]]:
    """One row for each dimension and call: medians by size, the largest 95th percentile, the slowest, the growth, the verdict."""
    table: list[dict[str, Any]] = []
    for dimension, calls in found.items():
        for title, sizes in calls.items():
            medians = {size: median(values) for size, values in sizes.items()}
            slow = max(quantile(values, 0.95) for values in sizes.values())
            exponent = growth(medians)
            row = {"dimension": dimension, "call": title, "medians": medians, "p95_ms": slow, "growth": exponent}
            row["most_ms"] = max(max(values) for values in sizes.values())
            row["met"] = (title == OWN_BULK or slow <= BOUND_MS) and exponent < FLAT_BELOW
            table.append(row)
    return table


def last_line(table: Sequence[Mapping[str, Any]]) -> str:
    """The slowest call, the one that grows most, and how many meet the bounds."""
    bounded = [row for row in table if row["call"] != OWN_BULK]
    slowest, steepest = max(bounded, key=lambda row: row["p95_ms"]), max(table, key=lambda row: row["growth"])
    met = sum(row["met"] for row in table)
    return (
        f'scale: slowest="{slowest["call"]}" ms={slowest["p95_ms"]:.2f} ({slowest["dimension"]}) '
        f'slope_max={steepest["growth"]:.2f} ("{steepest["call"]}", {steepest["dimension"]}) met={met}/{len(table)}'
    )


def _write(found: Found, runner: Runner, *, docs: bool) -> None:
    # Imported late, because importing matplotlib is slow.
    from bench.micro.figure import draw_scale as draw
    from bench.micro.figure import markdown

    table, base, card = rows(found), runner.base, one_line(runner.card)
    runner.write({"machine": card, "rows": table, "ms": found}, indent=None)
    base.with_suffix(".md").write_text(markdown(table, card))
    draw(table, card, base.with_suffix(".png"))
    if docs:
        for ending in (".md", ".png"):
            shutil.copy(base.with_suffix(ending), (ROOT / "docs" / "scale").with_suffix(ending))
    print(f"{'ms':<65} {'first':>8} {'last':>8} {'p95':>8} {'slowest':>8} {'growth':>8}")
    for row in sorted(table, key=lambda row: (list(found).index(row["dimension"]), -row["p95_ms"])):
        sizes = sorted(row["medians"])
        numbers = (row["medians"][sizes[0]], row["medians"][sizes[-1]], row["p95_ms"], row["most_ms"], row["growth"])
        shown = " ".join(f"{number:8.3f}" for number in numbers)
        print(f"{row['dimension']:<24} {row['call']:<40} {shown}  {'' if row['met'] else 'MISSED'}")
    runner.files(".json", ".md", ".png")
    print(last_line(table), flush=True)


if __name__ == "__main__":
    sys.exit(main())
