"""`make bench-http`: what the HTTP face costs: wake-ups of many who wait, its memory while they do, and an enqueue.

One `ironclaim serve` has a core of its own; the server and the callers share the other one. `wake`: long polls, each for a job of
its own, and readers of events; jobs end at even intervals, and each end wakes one poll and every reader. A wake-up is the time
from the call that finishes a job to the last byte of what tells it, at the caller. `enqueue`: jobs a second and latency of an
enqueue over HTTP, beside a bare application on the same uvicorn that answers with the same bytes, and beside `AsyncQueue` without
HTTP, all three in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from typing import Any

import psutil

import engine
from bench.micro.card import machine_card, one_line
from bench.micro.http_process import HOST, Order, job_id
from bench.micro.jobs import Claims
from bench.micro.payload import NAME, PAYLOAD
from bench.micro.place import CLIENT_CPU, ROOT, SERVER_CPU, Unpinnable, check_cores, pinned_server, servers, start_module
from bench.micro.rounds import in_turns, quantile, ratio, ratio_interval
from engine.testing import EmbeddedServer, free_port
from engine.wire.operations import Finish

FOLDER = ROOT / "runs" / "bench-http"
#: What is asked of one process (issue 26): no wake-up of the slowest hundredth takes longer.
WAKE_P99_MS = 50.0
#: How often the memory is looked at.
MEMORY_EVERY_S = 30.0
#: Exit codes: the bounds are met, one is not, cannot be measured here.
MET, MISSED, UNKNOWN = 0, 1, 2
_PARTS = ("wake", "enqueue")
_QUEUE = "q"
_START_S, _SETTLE_S = 120.0, 180.0
#: A process that used less of its core for a second has nothing to do but wait.
_IDLE_SHARE = 0.5
#: Warm-up of an enqueue round: connections, scripts, code that runs for the first time.
_WARM_UP = 200

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work to measure."""

    polls: int
    listeners: int
    seconds: float
    ends_per_s: float
    enqueues: int
    repeat: int


FULL = Size(polls=1_000, listeners=500, seconds=300.0, ends_per_s=10.0, enqueues=2_000, repeat=5)
QUICK = Size(polls=200, listeners=100, seconds=20.0, ends_per_s=10.0, enqueues=300, repeat=3)
#: Enqueues in flight: one after the other, and as many as calls run at once.
_AT_ONCE = (1, 16)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.micro.http_face", description="What the HTTP face costs.")
    parser.add_argument("--quick", action="store_true", help="small numbers, a minute: for trying things out")
    parser.add_argument("--only", choices=_PARTS, action="append", help="measure this part alone")
    parser.add_argument("--polls", type=int, help=f"long polls that wait at once ({FULL.polls})")
    parser.add_argument("--listeners", type=int, help=f"readers of events ({FULL.listeners})")
    parser.add_argument("--seconds", type=float, help=f"for so long jobs end ({FULL.seconds:g})")
    parser.add_argument("--rate", type=float, dest="ends_per_s", help=f"ends of jobs a second ({FULL.ends_per_s:g})")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder for the file of numbers")
    options = parser.parse_args(arguments)
    given = {name: getattr(options, name) for name in ("polls", "listeners", "seconds", "ends_per_s")}
    size = Size(**{**asdict(QUICK if options.quick else FULL), **{name: value for name, value in given.items() if value}})
    try:
        check_cores()
    except Unpinnable as error:
        print(f"bench-http: {error}", file=sys.stderr)
        return UNKNOWN
    os.sched_setaffinity(0, {SERVER_CPU})
    card = machine_card(servers())
    print(one_line(card), flush=True)
    began_s = time.monotonic()

    def report(text: str) -> None:
        print(f"{time.monotonic() - began_s:6.0f} s  {text}", flush=True)

    parts: dict[str, Callable[[Size, Report], dict[str, Any]]] = {"wake": wake, "enqueue": enqueue}
    found = {name: parts[name](size, report) for name in options.only or _PARTS}
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    path.write_text(json.dumps({"machine": card, "size": asdict(size), "parts": found}, indent=1) + "\n")
    print("\n".join(["", *details(found), str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)]))
    return MET if "wake" not in found or met(found["wake"]) else MISSED


def met(found: dict[str, Any]) -> bool:
    """Whether no wake-up of the slowest hundredth took too long, and the memory may have stayed where it was."""
    return max(row["p99"] for row in found["wake_ms"].values()) <= WAKE_P99_MS and found["growth"]["low"] <= 0


def wake(size: Size, report: Report) -> dict[str, Any]:
    """Wake-ups of polls and of readers, and the memory of the process that they wait at."""
    jobs = round(size.seconds * size.ends_per_s)
    waited_s = _SETTLE_S + 2 * size.seconds
    with ExitStack() as stack:
        server = stack.enter_context(pinned_server())
        queue = stack.enter_context(engine.Queue(_QUEUE, url=server.url))
        for start in range(0, jobs, 10_000):
            numbers = range(start, min(start + 10_000, jobs))
            queue.enqueue_many({"name": NAME, "payload": PAYLOAD, "id": job_id(number)} for number in numbers)
        leases = {lease.job: lease for taken in Claims(queue).take_all() for lease in taken}
        queue.events.on(2 * jobs)
        face = stack.enter_context(serving(server))
        polls = min(size.polls, jobs)
        order = Order("waiting", face.port, queue=_QUEUE, jobs=jobs, polls=polls, listeners=size.listeners, seconds=waited_s)
        callers = stack.enter_context(child(order))
        _await_line(callers, b"ready")
        face.settle()
        report(f"{polls} polls and {size.listeners} listeners wait; {face.memory_mb():.1f} MB resident")
        cpu_s, began_s = face.cpu_s(), time.monotonic()
        memory_mb = [(0.0, face.memory_mb())]
        finished_ns: list[int] = []
        for number in range(jobs):
            _sleep_until(began_s + number / size.ends_per_s)
            if time.monotonic() >= began_s + len(memory_mb) * MEMORY_EVERY_S:
                memory_mb.append((time.monotonic() - began_s, face.memory_mb()))
                report(f"{memory_mb[-1][1]:.1f} MB resident, {number} of {jobs} jobs have ended")
            call = queue.model.call(Finish((leases[job_id(number)],)))
            finished_ns.append(time.monotonic_ns())
            queue.driver.run(call)
        memory_mb.append((time.monotonic() - began_s, face.memory_mb()))
        came = json.loads(callers.communicate(timeout=_SETTLE_S)[0])
        cpu_s, took_s = face.cpu_s() - cpu_s, time.monotonic() - began_s
    polled = [(at_ns - finished_ns[int(number)]) / 1e6 for number, at_ns in came["polled_ns"].items()]
    heard = [(at_ns - finished_ns[int(number)]) / 1e6 for number, all_ns in came["heard_ns"].items() for at_ns in all_ns]
    return {
        "wake_ms": {"polls": _spread(polled), "listeners": _spread(heard)},
        "cpu_us_per_wake": 1e6 * cpu_s / (len(polled) + len(heard)),
        "cpu_share": cpu_s / took_s,
        "callers_cpu_share": came["cpu_s"] / took_s,
        "memory_mb": memory_mb,
        "growth": growth(memory_mb),
    }


def growth(memory_mb: Sequence[tuple[float, float]], *, seed: int = 1, draws: int = 1_000) -> dict[str, float]:
    """MB a minute from the first look (s, MB) to the last, and its interval of 95 %: by resampling the steps between looks."""
    steps = [(later[0] - earlier[0], later[1] - earlier[1]) for earlier, later in pairwise(memory_mb)]

    def per_minute(drawn: Sequence[tuple[float, float]]) -> float:
        return 60 * sum(grown for _, grown in drawn) / sum(passed_s for passed_s, _ in drawn)

    random_draws = random.Random(seed)
    found = [per_minute(random_draws.choices(steps, k=len(steps))) for _ in range(draws)]
    return {"mb_per_minute": per_minute(steps), "low": quantile(found, 0.025), "high": quantile(found, 0.975)}


def enqueue(size: Size, report: Report) -> dict[str, Any]:
    """Enqueues over HTTP, at a bare application, and without HTTP: each so many at once, in turns."""
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        server = stack.enter_context(pinned_server())
        face = stack.enter_context(serving(server))
        bare = stack.enter_context(bare_application())
        for at_once in _AT_ONCE:

            def over_http(process: Face, at_once: int = at_once) -> dict[str, float]:
                cpu_s = process.cpu_s()
                order = Order("requests", process.port, queue=_QUEUE, jobs=size.enqueues, at_once=at_once)
                came = _answer(order)
                return _cost(came, process.cpu_s() - cpu_s)

            def without_http(at_once: int = at_once) -> dict[str, float]:
                came = _answer(Order("direct", url=server.url, queue=_QUEUE, jobs=size.enqueues, at_once=at_once), CLIENT_CPU)
                return _cost(came, came["cpu_s"])

            for process in (face, bare):
                _answer(Order("requests", process.port, queue=_QUEUE, jobs=_WARM_UP, at_once=at_once))
            cases: dict[str, Callable[[], dict[str, float]]] = {
                "HTTP face": lambda over_http=over_http: over_http(face),
                "bare application": lambda over_http=over_http: over_http(bare),
                "AsyncQueue": without_http,
            }
            rows = in_turns(cases, size.repeat, lambda text, at_once=at_once: report(f"enqueue, {at_once} at once: {text}"))
            found[f"{at_once} at once"] = {"rows": rows, "ratios": _ratios(rows)}
    return found


def _ratios(rows: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """What an enqueue over HTTP costs (CPU of its process) and takes (p50), beside each of the others."""
    ours, ratios = rows["HTTP face"], {}
    for other in ("bare application", "AsyncQueue"):
        for field in ("cpu_us", "p50_ms"):
            mine, theirs = [row[field] for row in ours], [row[field] for row in rows[other]]
            ratios[f"{field} / {other}"] = {"ratio": ratio(mine, theirs), "interval": ratio_interval(mine, theirs)}
    return ratios


class Face:
    """A process that answers over HTTP, on the core that is its own."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.port = port
        self._process = psutil.Process(process.pid)
        self._process.cpu_affinity([CLIENT_CPU])

    def cpu_s(self) -> float:
        """CPU seconds that it has used so far."""
        times = self._process.cpu_times()
        return times.user + times.system

    def memory_mb(self) -> float:
        """What it has resident."""
        return self._process.memory_info().rss / 1e6

    def settle(self) -> None:
        """Wait until it has nothing to do but wait."""
        until_s = time.monotonic() + _SETTLE_S
        while time.monotonic() < until_s:
            cpu_s = self.cpu_s()
            time.sleep(1)
            if self.cpu_s() - cpu_s < _IDLE_SHARE:
                return


@contextmanager
def serving(server: EmbeddedServer) -> Iterator[Face]:
    """`ironclaim serve` for the queues of this server."""
    port, words = free_port(), ("--url", server.url, "--allow-changes")
    # It writes a line for each change; that is part of what a change costs, and nobody reads it here.
    with TemporaryFile() as log, _running(start_module("engine", "serve", *words, "--port", str(port), stderr=log), port) as face:
        yield face


@contextmanager
def bare_application() -> Iterator[Face]:
    """An application that does nothing but answer."""
    port = free_port()
    with _running(start_module("bench.micro.http_process", json.dumps(asdict(Order("bare", port)))), port) as face:
        yield face


@contextmanager
def _running(process: subprocess.Popen[bytes], port: int) -> Iterator[Face]:
    try:
        face, until_s = Face(process, port), time.monotonic() + _START_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"bench-http: a process does not listen on port {port}")
            time.sleep(0.1)
        yield face
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def child(order: Order) -> Iterator[subprocess.Popen[bytes]]:
    """A process that carries out an order."""
    process = start_module("bench.micro.http_process", json.dumps(asdict(order)))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _answer(order: Order, cpu: int = SERVER_CPU) -> Any:
    """What a process found that carried out an order on this core."""
    with child(order) as process:
        os.sched_setaffinity(process.pid, {cpu})
        return json.loads(process.communicate(timeout=_START_S + order.jobs)[0])


def _await_line(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() != line:
        raise RuntimeError("bench-http: the callers did not start; their error is above")


def _sleep_until(at_s: float) -> None:
    while (ahead_s := at_s - time.monotonic()) > 0:
        time.sleep(ahead_s)


def _spread(values_ms: Sequence[float]) -> dict[str, float]:
    if not values_ms:
        raise RuntimeError("bench-http: nobody was woken")
    return {
        "count": len(values_ms),
        "p50": quantile(values_ms, 0.50),
        "p99": quantile(values_ms, 0.99),
        "max": max(values_ms),
    }


def _cost(came: Any, cpu_s: float) -> dict[str, float]:
    """One round of enqueues; CPU is that of the process that enqueues into Redis, or answers."""
    took_ms = [ns / 1e6 for ns in came["took_ns"]]
    jobs = len(took_ms)
    return {
        "jobs_per_s": jobs / came["seconds"],
        "p50_ms": quantile(took_ms, 0.50),
        "p99_ms": quantile(took_ms, 0.99),
        "cpu_us": 1e6 * cpu_s / jobs,
    }


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
