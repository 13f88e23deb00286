"""`python -m bench.micro`: measures, writes JSON and a figure, and prints the table and the line of ratios."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.micro import channels, claim_cost, drain, enqueue, floor_check, memory, pickup, profile, scripts, targets
from bench.micro.place import ROOT, Unpinnable
from bench.micro.rounds import Cost
from bench.micro.runner import Runner, one_line
from engine.command_line import Parser

FOLDER = ROOT / "runs" / "bench-engine"

#: Part -> the numbers that it measures.
PARTS = {
    "scripts": (),
    "memory": ("bytes_valkey", "bytes_redis"),
    "enqueue": ("enqueue", "bulk"),
    "drain": ("drain",),
    "claim_cost": ("claim_deep", "claim_blocked", "claim_lanes"),
    "pickup": ("pickup_p50", "pickup_p99"),
    "channels": ("publish", "publish_batch", "fetch_calls", "wake_ms", "catch_up", "catch_up_keys"),
}

#: Rounds of the comparison with another floor, of which the best counts.
FLOOR_REPEAT = 5

#: Jobs of a profile that enqueues one by one; profiles in bulk use four times as many.
PROFILE_JOBS = 10_000

#: A load average above this means that another program needs one of the two cores.
QUIET_LOAD = 0.5

#: Exit codes: every requested number was measured (met or missed), some number is unknown, or Ctrl-C.
MEASURED, UNKNOWN = 0, 2


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work to measure."""

    repeat: int
    enqueue_jobs: int
    drain_jobs: int
    claims: int
    depths: tuple[int, ...]
    lanes: tuple[int, ...]
    barred: int
    free: int
    memory_jobs: int
    pickup_slices: int
    pickup_jobs: int
    script_rounds: int
    floor_jobs: int
    channels: channels.Size


FULL = Size(
    repeat=5,
    enqueue_jobs=8_000,
    drain_jobs=40_000,
    claims=1_000,
    depths=(100, 10_000, 1_000_000),
    lanes=(1, 100, 10_000),
    barred=10_000,
    free=10_000,
    memory_jobs=100_000,
    pickup_slices=10,
    pickup_jobs=1_000,
    script_rounds=300,
    floor_jobs=10_000,
    channels=channels.Size(publishes=8_000, batch_messages=40_000, repeat=5, slices=6, wakes=500, backlog=1_000_000),
)
QUICK = Size(
    repeat=3,
    enqueue_jobs=2_000,
    drain_jobs=10_000,
    claims=200,
    depths=(100, 10_000, 100_000),
    lanes=(1, 100, 10_000),
    barred=10_000,
    free=1_000,
    memory_jobs=20_000,
    pickup_slices=3,
    pickup_jobs=200,
    script_rounds=50,
    floor_jobs=5_000,
    channels=channels.Size(publishes=2_000, batch_messages=10_000, repeat=3, slices=2, wakes=100, backlog=20_000),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = Parser(prog="python -m bench engine", description="The engine's micro-benchmarks, as ratios.")
    parser.add_argument("--quick", action="store_true", help="small numbers, one to two minutes: for trying things out")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part alone (may be given more than once)")
    parser.add_argument("--profile", action="store_true", help="show where the client's time goes (a sampling profiler)")
    parser.add_argument("--floor-file", type=Path, help="another implementation of the floor, to compare ours with")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder for the files")
    options = parser.parse_args(arguments)
    try:
        runner = Runner(options.folder)
        size, parts = QUICK if options.quick else FULL, options.only or list(PARTS)
        return Run(size, parts, options.profile, options.floor_file, runner).run()
    except Unpinnable as error:
        print(f"bench-engine: {error}", file=sys.stderr)
        return UNKNOWN


class Run:
    """One run, from the machine card to the line of ratios."""

    def __init__(self, size: Size, parts: Sequence[str], profiled: bool, floor_file: Path | None, runner: Runner) -> None:
        self._size, self._parts, self._profiled, self._floor_file = size, parts, profiled, floor_file
        self._runner = runner
        self._found: dict[str, Any] = {}
        self._numbers: dict[str, float | None] = {}
        self._failed = False

    def run(self) -> int:
        """Measure each part; return the exit code. A part that fails is unknown, and the others go on."""
        load = self._runner.card["load"][0]
        if load > QUIET_LOAD:
            print(f"the machine is not quiet (load {load:g}): other programs will disturb the numbers", flush=True)
        program = self._floor_file
        if program is not None:
            jobs = self._size.floor_jobs
            self._measure("floor_check", (), lambda report: floor_check.compare(program.absolute(), jobs, FLOOR_REPEAT, report))
        for name in self._parts:
            self._measure(name, PARTS[name], self._measurements()[name])
        if self._profiled:
            self._measure("profile", (), lambda report: profile.measure(PROFILE_JOBS, report))
        intervals = (self._found.get("pickup") or {}).get("interval", {})
        self._write(intervals)
        self._print(intervals)
        return UNKNOWN if self._failed or None in self._numbers.values() else MEASURED

    def _measurements(self) -> dict[str, Callable[[Callable[[str], None]], dict[str, Any]]]:
        size = self._size
        return {
            "scripts": lambda report: scripts.measure(size.script_rounds, self._runner.base.with_suffix(".scripts.json"), report),
            "memory": lambda report: memory.measure(self._runner.servers, size.memory_jobs, report),
            "enqueue": lambda report: enqueue.measure(size.enqueue_jobs, size.repeat, report),
            "drain": lambda report: drain.measure(size.drain_jobs, size.repeat, report),
            "claim_cost": lambda report: claim_cost.measure(
                size.claims, size.repeat, claim_cost.scenes(size.depths, size.lanes, size.barred, size.free), report
            ),
            "pickup": lambda report: pickup.measure(size.pickup_slices, size.pickup_jobs, report),
            "channels": lambda report: channels.measure(size.channels, report),
        }

    def _measure(self, name: str, keys: Sequence[str], work: Callable[[Callable[[str], None]], dict[str, Any]]) -> None:
        try:
            self._found[name] = work(lambda text: self._runner.report(f"{name}: {text}"))
        except Exception as error:
            # A failed part must not discard the results of the others.
            traceback.print_exc()
            self._runner.report(f"{name}: {type(error).__name__}: {error}")
            self._found[name] = None
            self._failed = True
        ratios = (self._found[name] or {}).get("ratios", {})
        self._numbers |= {key: ratios.get(key) for key in keys}

    def _write(self, intervals: dict[str, Any]) -> None:
        bounds = {target.key: {"bound": target.bound, "at_least": target.at_least} for target in targets.TARGETS}
        verdicts = {target.key: targets.verdict(target, self._numbers) for target in targets.TARGETS}
        whole = {
            "machine": self._runner.card,
            "numbers": self._numbers,
            "intervals": intervals,
            "targets": bounds,
            "verdicts": verdicts,
            "parts": self._found,
        }
        self._runner.write(whole)
        # Imported late, because importing matplotlib is slow.
        from bench.micro.figure import draw

        draw(self._found, self._numbers, one_line(self._runner.card), self._runner.base.with_suffix(".png"))

    def _print(self, intervals: dict[str, Any]) -> None:
        print()
        for line in details(self._found):
            print(line)
        for line in targets.table(self._numbers, intervals):
            print(line)
        print()
        self._runner.files(".json", ".png")
        print(targets.ratio_line(self._numbers), flush=True)


def details(found: dict[str, Any]) -> list[str]:
    """Every row of every part, as medians."""
    lines: list[str] = []

    def section(title: str, rows: dict[str, str]) -> None:
        if rows:
            width = max(map(len, rows))
            lines.extend([title, *(f"  {name:<{width}}  {text}" for name, text in rows.items()), ""])

    for name in ("enqueue", "drain"):
        part = found.get(name) or {}
        section(
            f"{name}: jobs per second; µs a job of scripts, server, client",
            {row: _costs(part, row) for row in part.get("jobs_per_s", {})},
        )
    for group, cells in ((found.get("claim_cost") or {}).get("redis_us_per_job", {})).items():
        section(f"{group}: server µs per claimed job", {title: f"{median(values):7.2f}" for title, values in cells.items()})
    for server, states in ((found.get("memory") or {}).get("bytes_per_job", {})).items():
        section(f"memory: bytes per job, {server}", {state: f"{count:7.1f}" for state, count in (states or {}).items()})
    pickup_ms = (found.get("pickup") or {}).get("pickup_ms", {})
    section("pickup: ms", {f"{name}, {role}": f"{ms:7.3f}" for name, roles in pickup_ms.items() for role, ms in roles.items()})
    channel = found.get("channels") or {}
    published = channel.get("publish", {}).get("costs", {})
    section(
        "channels: messages per second; µs a message of scripts, server, client",
        {row: _costs(published, row) for row in published.get("jobs_per_s", {})},
    )
    section(
        "channels: ms from publish to message, p50 and p99",
        {role: f"{ms['p50']:7.3f}  {ms['p99']:7.3f}" for role, ms in channel.get("wake", {}).get("ms", {}).items()},
    )
    section(
        "channels: catching up; µs of Redis a message, calls, keys of the dearest call, ms to the first message",
        {
            title: f"{row['us_per_message']:9.1f}  {row['calls']:6.0f}  {row['keys_most']:7.0f}  {row['first_ms']:9.1f}"
            for title, row in channel.get("catching_up", {}).get("rows", {}).items()
        },
    )
    each = (found.get("scripts") or {}).get("scripts", {})
    section(
        "scripts: µs of a round trip, of the server",
        {title: f"{row['us']:8.1f}  {row['redis_us']:8.1f}" for title, row in each.items()},
    )
    check = found.get("floor_check")
    if check:
        shown = {name: f"{ratio:.3f}" for name, ratio in check["ours_over_theirs"].items()}
        section(f"our floor / the other one ({'close' if check['close'] else 'NOT within 10 %'})", shown)
    for title, text in ((found.get("profile") or {}).get("profiles", {})).items():
        lines.extend([f"profile: {title}", *text, ""])
    return lines


def _costs(part: dict[str, Any], row: str) -> str:
    jobs_per_s, *us = (median(part[field][row]) for field in Cost._fields)
    return f"{jobs_per_s:9,.0f}" + "".join(f"  {value:7.2f}" for value in us)
