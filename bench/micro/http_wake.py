"""Wake-ups of many who wait at the HTTP face, and its memory while they do.

Long polls wait, each for a job of its own, and readers of events; jobs end at even intervals, and each end wakes one poll and
every reader. A wake-up is the time from the call that finishes a job to the last byte of what tells it, at the caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import engine
from bench.micro.http_place import SETTLE_S, answer, serving
from bench.micro.http_waiting_process import Order, job_id
from bench.micro.jobs import Claims
from bench.micro.payload import NAME, PAYLOAD
from bench.micro.place import SERVER_CPU, child, pinned_server
from bench.micro.rounds import quantile, resampled
from engine.ops.claims import Finish

#: What is asked of one process: no wake-up takes longer, but for the slowest hundredth.
WAKE_P99_MS = 50.0
#: Memory that grows by less in a minute stays where it is: an interpreter takes a page now and then, 0.01 MB a minute were seen.
#: Polls that left something behind took 4.7.
GROWTH_MB_PER_MINUTE = 0.1
#: How often the memory is looked at.
MEMORY_EVERY_S = 30.0
#: Before what is counted so much of it: the first wake-ups touch memory that stays.
_WARM_UP_SHARE = 0.1
_QUEUE = "q"


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work to measure: who waits, for how long jobs end, and how many of them a second."""

    polls: int
    listeners: int
    seconds: float
    ends_per_s: float


def measure(size: Size, report: Callable[[str], None]) -> dict[str, Any]:
    """Wake-ups of polls and of readers, and the memory of the process that they wait at."""
    counted = round(size.seconds * size.ends_per_s)
    warm_up = round(_WARM_UP_SHARE * counted)
    jobs = warm_up + counted
    waited_s = SETTLE_S + 2 * size.seconds
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
        order = Order(face.port, _QUEUE, jobs, polls, size.listeners, waited_s)
        callers = stack.enter_context(child("bench.micro.http_waiting_process", order, SERVER_CPU))
        assert callers.stdout is not None
        if callers.stdout.readline().strip() != b"ready":
            raise RuntimeError("bench-http: the callers did not start; their error is above")
        face.settle()
        report(f"{polls} polls and {size.listeners} listeners wait; {face.memory_mb():.1f} MB resident")
        finished_ns: list[int] = []
        memory_mb: list[tuple[float, float]] = []
        cpu_s, began_s = 0.0, time.monotonic() + warm_up / size.ends_per_s
        for number in range(jobs):
            _sleep_until(began_s + (number - warm_up) / size.ends_per_s)
            if number == warm_up:
                cpu_s = face.cpu_s()
            if number >= warm_up and time.monotonic() >= began_s + len(memory_mb) * MEMORY_EVERY_S:
                memory_mb.append((time.monotonic() - began_s, face.memory_mb()))
                report(f"{memory_mb[-1][1]:.1f} MB resident, {number - warm_up} of {counted} jobs have ended")
            call = queue.model.call(Finish((leases[job_id(number)],)))
            finished_ns.append(time.monotonic_ns())
            queue.driver.run(call)
        memory_mb.append((time.monotonic() - began_s, face.memory_mb()))
        came = answer(callers, SETTLE_S)
        cpu_s, took_s = face.cpu_s() - cpu_s, time.monotonic() - began_s
    polled = _since(finished_ns, {number: [at_ns] for number, at_ns in came["polled_ns"].items()}, warm_up)
    heard = _since(finished_ns, came["heard_ns"], warm_up)
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

    low, high = resampled(lambda draw: per_minute(draw.choices(steps, k=len(steps))), seed=seed, draws=draws)
    return {"mb_per_minute": per_minute(steps), "low": low, "high": high}


def met(found: dict[str, Any]) -> bool:
    """Whether no wake-up of the slowest hundredth took too long, and the memory may have stayed where it was."""
    return max(row["p99"] for row in found["wake_ms"].values()) <= WAKE_P99_MS and found["growth"]["low"] <= GROWTH_MB_PER_MINUTE


def _since(finished_ns: Sequence[int], came_ns: Mapping[str, Sequence[int]], first: int) -> list[float]:
    """The wake-ups (ms) by the jobs from this number on."""
    counted = {int(number): all_ns for number, all_ns in came_ns.items() if int(number) >= first}
    return [(at_ns - finished_ns[number]) / 1e6 for number, all_ns in counted.items() for at_ns in all_ns]


def _sleep_until(at_s: float) -> None:
    while (ahead_s := at_s - time.monotonic()) > 0:
        time.sleep(ahead_s)


def _spread(values_ms: Sequence[float]) -> dict[str, float]:
    if not values_ms:
        raise RuntimeError("bench-http: nobody was woken")
    return {"count": len(values_ms), "p50": quantile(values_ms, 0.50), "p99": quantile(values_ms, 0.99), "max": max(values_ms)}
