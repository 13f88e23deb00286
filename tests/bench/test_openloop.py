"""The open loop keeps its schedule whatever the answers do, and counts what it could not send."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import mean, pstdev
from typing import Any

import gevent
import gevent.event
import pytest
import redis

from bench.arrivals import Arrivals, payload
from bench.openloop import OpenLoop
from bench.production import Destination, Production
from bench.workload import PlannedJob, Workload
from chaos.foreign_keys import BridgeKeys
from engine.testing import EmbeddedServer

MS = 1_000_000
#: So late may a job be of which it does not matter how late it is: no pause of a busy machine lasts as long.
PATIENT_MS = 60_000


def plan(jobs_max: int, rate_per_s: float = 1000.0) -> list[PlannedJob]:
    return list(Workload(seed=1, rate_per_s=rate_per_s, jobs_max=jobs_max).jobs())


class Clock:
    """A clock that stands still with its machine: a pause makes no job late."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * MS

    def __call__(self) -> int:
        return self.now_ns

    def run(self) -> None:
        while True:
            gevent.sleep(0.001)
            self.now_ns += MS


@pytest.fixture
def clock() -> Iterator[Clock]:
    """A clock that runs."""
    made = Clock()
    running = gevent.spawn(made.run)
    yield made
    running.kill()


class Server:
    """Stands in for the server: answers at once while `open`, else when it opens again."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self.open = gevent.event.Event()
        self.open.set()
        self.sent: list[tuple[int, int, int]] = []  # index, intended_ns, started_ns
        self.dropped: list[tuple[int, str]] = []
        self.cut_off = 0

    def send(self, job: PlannedJob, intended_ns: int) -> None:
        self.sent.append((job.index, intended_ns, self._clock_ns()))
        try:
            self.open.wait()
        except gevent.GreenletExit:
            self.cut_off += 1

    def drop(self, job: PlannedJob, intended_ns: int, why: str) -> None:
        self.dropped.append((job.index, why))


def begun(server: Server, jobs: list[PlannedJob], **settings: Any) -> OpenLoop:
    """A loop that sends these jobs to the server, and has started."""
    loop = OpenLoop(iter(jobs), **{"send": server.send, "drop": server.drop, **settings})
    loop.start()
    return loop


def run_to_end(loop: OpenLoop, pacers: int) -> None:
    def pace() -> None:
        while loop.pace():
            pass

    gevent.joinall([gevent.spawn(pace) for _ in range(pacers)], timeout=300, raise_error=True)


@pytest.mark.parametrize("pacers", [1, 5])
def test_every_job_once_at_its_instant_whatever_the_pacers(pacers: int) -> None:
    server, jobs = Server(), plan(300)
    loop = begun(server, jobs, late_max_ms=PATIENT_MS)
    run_to_end(loop, pacers)
    assert loop.finish(timeout_s=60) == 0
    assert sorted(index for index, _, _ in server.sent) == list(range(300)) and server.dropped == []
    assert all(started_ns >= intended_ns for _, intended_ns, started_ns in server.sent)
    assert len({intended_ns - round(jobs[index].offset_ms * MS) for index, intended_ns, _ in server.sent}) == 1


def test_a_standstill_does_not_slow_the_schedule_and_is_counted(clock: Clock) -> None:
    server, jobs = Server(clock), plan(400)
    server.open.clear()
    loop = begun(server, jobs, in_flight_max=10, late_max_ms=100, clock_ns=clock)
    run_to_end(loop, pacers=3)
    # ten unanswered sends fill the pool; everything later is dropped, none of it waits for the server to come back
    assert len(server.sent) == 10 and len(server.dropped) == 390
    assert {why for _, why in server.dropped} <= {"10 sends unanswered for 100 ms", "more than 100 ms late"}
    assert "10 sends unanswered for 100 ms" in {why for _, why in server.dropped}
    server.open.set()
    assert loop.finish(timeout_s=60) == 0


def test_sending_goes_on_after_a_standstill(clock: Clock) -> None:
    server, jobs = Server(clock), plan(400)
    server.open.clear()

    def drop(job: PlannedJob, intended_ns: int, why: str) -> None:
        """The standstill is over as soon as it has been noticed."""
        server.drop(job, intended_ns, why)
        server.open.set()

    loop = begun(server, jobs, drop=drop, in_flight_max=10, late_max_ms=50, clock_ns=clock)
    run_to_end(loop, pacers=2)
    loop.finish(timeout_s=60)
    assert server.dropped and jobs[-1].index in {index for index, _, _ in server.sent}
    assert sorted([index for index, _, _ in server.sent] + [index for index, _ in server.dropped]) == list(range(400))
    assert all(started_ns - intended_ns < 100 * MS for _, intended_ns, started_ns in server.sent)


def test_a_killed_pacer_gives_its_job_back() -> None:
    server, jobs = Server(), plan(20, rate_per_s=100.0)
    loop = begun(server, jobs, late_max_ms=PATIENT_MS)
    killed = gevent.spawn(loop.pace)
    gevent.sleep(0)
    killed.kill()
    run_to_end(loop, pacers=1)
    loop.finish(timeout_s=60)
    assert [index for index, _, _ in server.sent] == list(range(20))


#: Where the clock stands when it is over, what the loop was told, and of which jobs the calls were sent and dropped.
ENDS = [(40, 0, {"in_flight_max": 100}, range(41), range(0)), (-1, 10 * MS, {"late_max_ms": 1}, range(0), range(100))]


@pytest.mark.parametrize(("last", "more_ns", "settings", "sent", "dropped"), ENDS, ids=["what is due", "too late"])
def test_finish_sends_or_drops_the_rest(last: int, more_ns: int, settings: dict[str, int], sent: range, dropped: range) -> None:
    now_ns = [1_000 * MS]
    server, jobs = Server(), plan(100)
    loop = begun(server, jobs, clock_ns=lambda: now_ns[0], **settings)
    now_ns[0] += round(jobs[last].offset_ms * MS) + more_ns
    loop.finish(timeout_s=60)
    assert [index for index, _, _ in server.sent] == [*sent] and not loop.pace()
    assert [index for index, _ in server.dropped] == [*dropped]


def test_finish_gives_up_on_answers_that_do_not_come() -> None:
    server = Server()
    server.open.clear()
    loop = begun(server, plan(5), late_max_ms=PATIENT_MS)
    run_to_end(loop, pacers=1)
    assert (loop.finish(timeout_s=0.05), server.cut_off) == (5, 5)


def test_pace_before_start_is_an_error() -> None:
    server = Server()
    loop = OpenLoop(iter(plan(5)), send=server.send, drop=server.drop)
    with pytest.raises(RuntimeError, match="start"):
        loop.pace()


# The arrivals of a capacity measurement: the same in every process, at the rate, and of the size that is
# asked for.


def test_the_same_numbers_give_the_same_arrivals_and_another_step_gives_others() -> None:
    first = [arrival.offset_ms for arrival in Arrivals(1, 1, 200, 10)]
    assert first == [arrival.offset_ms for arrival in Arrivals(1, 1, 200, 10)]
    assert first != [arrival.offset_ms for arrival in Arrivals(1, 2, 200, 10)]
    assert first != [arrival.offset_ms for arrival in Arrivals(2, 1, 200, 10)]
    assert Arrivals(1, 3, 200, 10).id_of(7) == "step3-7"


@pytest.mark.parametrize("rate_per_s", [10.0, 500.0])
def test_arrivals_are_a_poisson_process_of_the_rate_within_the_step(rate_per_s: float) -> None:
    arrivals = list(Arrivals(1, 1, rate_per_s, 100))
    assert [arrival.index for arrival in arrivals] == list(range(len(arrivals)))
    assert len(arrivals) == pytest.approx(100 * rate_per_s, rel=0.1)
    offsets = [arrival.offset_ms for arrival in arrivals]
    assert offsets == sorted(offsets) and offsets[0] > 0 and offsets[-1] < 100_000
    gaps = [after - before for before, after in pairwise(offsets)]
    # What tells them from evenly spaced ones: gaps spread as much as they are long.
    assert pstdev(gaps) == pytest.approx(mean(gaps), rel=0.1)


@pytest.mark.parametrize("payload_bytes", [64, 200, 2_048, 100_000])
def test_a_payload_has_its_size_and_says_how_long_its_handler_waits(payload_bytes: int) -> None:
    made = payload(payload_bytes, 20.0)
    assert made["work_ms"] == 20.0
    assert len(json.dumps(made, separators=(",", ":"))) == pytest.approx(payload_bytes, abs=8)


# What the load sends depends on what was answered so far.


def test_a_parent_that_was_refused_keeps_no_job_waiting() -> None:
    """A server without memory refuses it, and on Bridge a job that needs it would wait for ever."""
    with EmbeddedServer() as server, redis.Redis(port=server.port, decode_responses=True) as client:
        failures: list[str] = []

        def report(name: str, response_ms: float | None, failure: Exception | None) -> None:
            if failure:
                failures.append(str(failure))

        workload = Workload(seed=1, rate_per_s=100)
        production = Production(workload, Destination("bench", server.url, model="bridge"), part=0, parts=1, report=report)
        job = next(job for job in workload.jobs() if len(job.needs) == 2)
        there, refused = (replace(job, id=parent, needs=(), fail_first=0, unique=None) for parent in job.needs)
        production._send(there, 0)
        client.config_set("maxmemory", 1)
        production._send(refused, 0)
        client.config_set("maxmemory", 0)
        production._send(job, 0)
        (failure,) = failures
        assert "OOM" in failure
        data: Any = client.get(next(client.scan_iter(f"*{BridgeKeys('').data(job.id)}")))
        assert json.loads(data)["dependsOn"] == [there.id]
