"""The columns of a step, from handler times and samples that are written by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import redis

import engine
from bench.arrivals import Arrivals
from bench.capacity_steps import Order, Sent
from chaos.capacity.figures import SENT, HandlerTimes, Look, Looker, Ran, Used
from chaos.capacity.request import Request
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
    """The first jobs, each reported so long after it was due; its handler took 20 ms, and the report 2 more."""
    ends = {arrival.index: BEGIN_NS + round((arrival.offset_ms + latency_ms) * MS) for arrival in ARRIVALS[:jobs]}
    return {f"step3-{index}": Ran(end_ns - 22 * MS, end_ns - 2 * MS, end_ns) for index, end_ns in ends.items()}


#: What a look costs the server, in the looks below.
LOOK = Used(0.001, 400, 2, {"evalsha": 1, "hlen": 3, "info": 1}, {"evalsha": 20, "hlen": 5, "info": 90})


def used(s: float, look: int) -> Used:
    """In a second 100 jobs and 30 ms: of each job 2 scripts of 40 us with 3 HSETs of 10 us in them; and what the looks cost."""
    jobs = 100 * s
    return Used(
        9 + 0.03 * s + LOOK.cpu_s * look,
        1e6 + 5e5 * s + LOOK.net_bytes * look,
        7_000 + 2.5 * jobs + LOOK.exchanges * look,
        {"evalsha": 50_000 + 2 * jobs + look, "hset": 3 * jobs, "hlen": 3 * look, "blpop": 0.5 * jobs, "info": look},
        {"evalsha": 80 * jobs + 20 * look, "hset": 30 * jobs, "hlen": 5 * look, "blpop": 4 * jobs, "info": 90 * look},
    )


def looks(waiting_per_s: float = 0.0) -> list[Look]:
    """Four a second from before the step until after it, of 1 ms. Two workers use 200 ms a second each."""
    made = list[Look]()
    for look, at in enumerate(range(-4, 48)):
        s, from_ns = at / 4, BEGIN_NS + round(at / 4 * 1e9)
        waiting = max(0, round(s * waiting_per_s))
        made.append(Look(from_ns, from_ns + MS, waiting + 2, used(s, look), 3 + 0.4 * s))
    return made


#: Each job is being sent from 1 ms after it was due on, and answered 2 ms later.
SENDS = tuple((arrival.index, arrival.offset_ms + 1, arrival.offset_ms + 3) for arrival in ARRIVALS)
SENT_ALL = Sent(3, BEGIN_NS, END_NS, len(ARRIVALS), len(ARRIVALS), late_p99_ms=1.0, cpu_share=0.3, sends=SENDS)


def seen(**changes: object) -> Seen:
    plain = Seen(ORDER, SENT_ALL, ran_after(30), looks(), LOOK, workers=2, until_ns=END_NS + 1_000 * MS)
    return replace(plain, **changes)  # type: ignore[arg-type]


def as_read(step: MeasuredStep) -> Step:
    """The step as the plan finds it in the file."""
    return read_as(Step, json.loads(json.dumps(step.columns)), "step")


def test_a_step_is_what_the_plan_reads() -> None:
    step = measured(seen(), REQUEST)
    found = as_read(step)
    assert (found.rate, found.seconds, found.workers, found.handlers_at_once) == (100, 10, 2, 10)
    assert found.offered == len(ARRIVALS) and found.dropped == 0
    # Those that were due in the last 30 ms were reported after the step.
    assert found.finished == sum(arrival.offset_ms + 30 <= 10_000 for arrival in ARRIVALS)
    assert (found.latency_ms.p50, found.latency_ms.p99) == (pytest.approx(30), pytest.approx(30))
    assert sum(each.count for each in found.latency_ms.histogram) == len(ARRIVALS)
    assert (found.service_ms.mean, found.report_ms.mean) == (pytest.approx(20), pytest.approx(2))
    assert sum(each.count for each in found.report_ms.histogram) == len(ARRIVALS)
    assert found.in_system.counted == 2
    assert found.server.us_per_job == pytest.approx(300) and found.server.cpu_share == pytest.approx(0.03)
    assert found.worker.cpu_share == pytest.approx(0.2) and found.driver.cpu_share == 0.3
    assert step.net_bytes_per_job == pytest.approx(5_000)
    assert found.void is None and found.meets and step.tried.outcome == MET


def test_round_trips_and_commands_are_counted_apart_and_without_the_looks() -> None:
    server = as_read(measured(seen(), REQUEST)).server
    assert server.round_trips == pytest.approx(2.5)
    assert {name: (one.calls, one.us) for name, one in server.sent.items()} == {
        "evalsha": (pytest.approx(2), pytest.approx(80)),
        "blpop": (pytest.approx(0.5), pytest.approx(4)),
    }
    assert {name: (one.calls, one.us) for name, one in server.inside.items()} == {"hset": (pytest.approx(3), pytest.approx(30))}


def present(look: Look, from_ms: float, until_ms: float) -> int:
    """Jobs that are in the system from so long after they were due until then, at any time of a look (or all of it)."""
    spans = [(BEGIN_NS + (each.offset_ms + from_ms) * MS, BEGIN_NS + (each.offset_ms + until_ms) * MS) for each in ARRIVALS]
    return sum(begin <= look.until_ns and end > look.from_ns for begin, end in spans)


def test_the_jobs_in_the_system_are_bounded_by_their_own_times() -> None:
    """Each is being sent from 1 ms after it was due on, answered at 3, runs from 8 to 28, and is reported at 30."""
    found = as_read(measured(seen(), REQUEST))
    inside = [look for look in looks() if look.from_ns >= BEGIN_NS and look.until_ns <= END_NS]
    assert found.in_system.possible == pytest.approx(sum(present(look, 1, 30) for look in inside) / len(inside), abs=0.05)
    # All of a look of 1 ms: answered before it, and not ended within it.
    assert found.in_system.certain == pytest.approx(sum(present(look, 4, 27) for look in inside) / len(inside), abs=0.05)
    assert 0 < found.in_system.certain < found.in_system.possible
    # Of the two that the server counts at each look about two run.
    assert found.waiting.mean == pytest.approx(
        sum(max(0, 2 - present(Look(look.t_ns, look.t_ns, 0, LOOK, 0), 8, 28)) for look in inside) / len(inside), abs=0.05
    )


SPOILT = [
    *(({"ran": ran_after(101)}, MISSED), ({"ran": ran_after(99)}, MET), ({"looks": looks(waiting_per_s=5)}, MISSED)),
    ({"sent": replace(SENT_ALL, created=len(ARRIVALS) - 1)}, MISSED),
    *(({"sent": replace(SENT_ALL, cpu_share=0.9)}, VOID), ({"sent": replace(SENT_ALL, late_p99_ms=25.0)}, VOID)),
    ({"looks": looks()[:10]}, VOID),
]


@pytest.mark.parametrize(("changes", "outcome"), SPOILT)
def test_what_spoils_a_step(changes: dict, outcome: str) -> None:
    step = measured(seen(**changes), REQUEST)
    assert step.tried.outcome == outcome and step.columns["meets"] == (outcome == MET)
    assert f"{outcome}" in step.words()
    as_read(step)


def test_jobs_that_nobody_finished_have_waited_until_they_were_given_up() -> None:
    latency = measured(seen(ran=ran_after(30, jobs=len(ARRIVALS) - 50)), REQUEST).columns["latency_ms"]
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
    file.write_text('{"concurrency": 3}\nstep1-0 10 30 31\nstep1-1 20 40 4')
    assert times.read(file) == 1 and times.configured == {file: {"concurrency": 3}}
    with file.open("a") as more:
        more.write("3\nstep1-0 90 95 96\n")
    assert (times.read(file), times.ran) == (3, {"step1-0": Ran(10, 30, 31), "step1-1": Ran(20, 40, 43)})


def test_a_look_costs_what_it_costs(ironclaim_url: str) -> None:
    """On a real server: a count of the queue and an INFO are two round trips, and what the count's script calls is inside."""
    with engine.Queue("seen", url=ironclaim_url) as queue, redis.Redis.from_url(ironclaim_url, decode_responses=True) as server:
        looker = Looker(queue, server, dict[str, int])
        cost = looker.cost()
        assert cost.exchanges == pytest.approx(2) and cost.calls["info"] == pytest.approx(1)
        assert sum(calls for name, calls in cost.calls.items() if name in SENT) == pytest.approx(2)
        assert sum(calls for name, calls in cost.calls.items() if name not in SENT) > 1
        first = looker.look()
        for number in range(50):
            queue.enqueue("job", number)
        last = looker.look()
    spent = last.server.less(first.server).less(cost).shared(50)
    assert last.in_system - first.in_system == 50
    assert spent.exchanges == pytest.approx(1, abs=0.2) and spent.calls["evalsha"] == pytest.approx(1, abs=0.1)
    inside = [name for name in spent.calls if name not in SENT]
    assert sum(spent.calls[name] for name in inside) > 2
    assert spent.us["evalsha"] > sum(spent.us[name] for name in inside) > 0
