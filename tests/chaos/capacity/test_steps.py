"""The columns of a step, from handler times and samples that are written by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.arrivals import Arrivals
from bench.capacity_steps import Order, Sent
from chaos.capacity.request import Request
from chaos.capacity.samples import HandlerTimes, Look, Ran
from chaos.capacity.search import MET, MISSED, VOID
from chaos.capacity.steps import Seen, measured
from chaos.capacity.steps import Step as MeasuredStep
from reports.capacity.measurement import Step, read_as

REQUEST = Request()
ORDER = Order(step=3, rate_per_s=100.0, seconds=10.0)
ARRIVALS = list(Arrivals(REQUEST.seed, ORDER.step, ORDER.rate_per_s, ORDER.seconds))
BEGIN_NS = 5_000_000_000
END_NS = BEGIN_NS + 10_000_000_000
MS = 1_000_000


def ran_after(latency_ms: float, *, jobs: int = len(ARRIVALS)) -> dict[str, Ran]:
    """The first jobs, each done so long after it was due, with 20 ms of it in its handler."""
    ends = {arrival.index: BEGIN_NS + round((arrival.offset_ms + latency_ms) * MS) for arrival in ARRIVALS[:jobs]}
    return {f"step3-{index}": Ran(end_ns - 20 * MS, end_ns) for index, end_ns in ends.items()}


def looks(waiting_per_s: float = 0.0) -> list[Look]:
    """Four a second from before the step until after it. In a second the server uses 30 ms, two workers 200 ms each."""
    made = list[Look]()
    for at in range(-4, 48):
        s, waiting = at / 4, max(0, round(at / 4 * waiting_per_s))
        used = {"evalsha": round(2_000_000 + 8_000 * s), "ping": 7}
        made.append(Look(BEGIN_NS + round(s * 1e9), waiting, waiting + 2, 9 + 0.03 * s, round(1e6 + 5e5 * s), used, 3 + 0.4 * s))
    return made


def seen(**changes: object) -> Seen:
    sent = Sent(3, BEGIN_NS, END_NS, len(ARRIVALS), len(ARRIVALS), late_p99_ms=1.0, cpu_share=0.3)
    return replace(Seen(ORDER, sent, ran_after(30), looks(), workers=2, until_ns=END_NS + 1_000 * MS), **changes)  # type: ignore[arg-type]


def as_read(step: MeasuredStep) -> Step:
    """The step as the plan finds it in the file."""
    return read_as(Step, json.loads(json.dumps(step.columns)), "step")


def test_a_step_is_what_the_plan_reads() -> None:
    step = measured(seen(), REQUEST)
    found = as_read(step)
    assert (found.rate, found.seconds, found.workers, found.handlers_at_once) == (100, 10, 2, 10)
    assert found.offered == len(ARRIVALS) and found.dropped == 0
    # Those that were due in the last 30 ms were finished after the step.
    assert found.finished == sum(arrival.offset_ms + 30 <= 10_000 for arrival in ARRIVALS)
    assert (found.latency_ms.p50, found.latency_ms.p99) == (pytest.approx(30), pytest.approx(30))
    assert sum(each.count for each in found.latency_ms.histogram) == len(ARRIVALS)
    assert found.service_ms.mean == pytest.approx(20)
    assert (found.waiting.mean, found.waiting.slope_per_s, found.in_system_mean) == (0, 0, 2)
    assert found.server.us_per_job == pytest.approx(300) and found.server.cpu_share == pytest.approx(0.03)
    assert found.server.commands == {"evalsha": pytest.approx(80)}
    assert found.worker.cpu_share == pytest.approx(0.2) and found.driver.cpu_share == 0.3
    assert step.net_bytes_per_job == pytest.approx(5_000)
    assert found.void is None and found.meets and step.tried.outcome == MET


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"ran": ran_after(101)}, MISSED),
        ({"ran": ran_after(99)}, MET),
        ({"looks": looks(waiting_per_s=5)}, MISSED),
        ({"sent": Sent(3, BEGIN_NS, END_NS, len(ARRIVALS), len(ARRIVALS) - 1, 1.0, 0.3)}, MISSED),
        ({"sent": Sent(3, BEGIN_NS, END_NS, len(ARRIVALS), len(ARRIVALS), 1.0, 0.9)}, VOID),
        ({"sent": Sent(3, BEGIN_NS, END_NS, len(ARRIVALS), len(ARRIVALS), 25.0, 0.3)}, VOID),
        ({"looks": looks()[:10]}, VOID),
    ],
)
def test_what_spoils_a_step(changes: dict, outcome: str) -> None:
    step = measured(seen(**changes), REQUEST)
    assert step.tried.outcome == outcome and step.columns["meets"] == (outcome == MET)
    assert f"{outcome}" in step.words()
    as_read(step)


def test_jobs_that_nobody_finished_have_waited_until_they_were_given_up() -> None:
    done = len(ARRIVALS) - 50
    latency = measured(seen(ran=ran_after(30, jobs=done)), REQUEST).columns["latency_ms"]
    # Half a second of arrivals is left, and was waited for another second.
    assert 1_000 < latency["p99"] < 1_600
    assert sum(count for _, _, count in latency["histogram"]) == len(ARRIVALS)


def test_a_step_without_a_sample_and_without_a_run_is_void_and_can_still_be_read() -> None:
    step = measured(seen(ran={}, looks=[]), REQUEST)
    assert step.tried.outcome == VOID
    as_read(step)


def test_handler_times_are_read_by_whole_lines_and_the_first_run_counts(tmp_path: Path) -> None:
    times, file = HandlerTimes(), tmp_path / "worker-1.times"
    assert times.read(file) == 0
    file.write_text("step1-0 10 30\nstep1-1 20 4")
    assert times.read(file) == len("step1-0 10 30\n")
    with file.open("a") as more:
        more.write("0\nstep1-0 90 95\n")
    times.read(file)
    assert times.ran == {"step1-0": Ran(10, 30), "step1-1": Ran(20, 40)}
