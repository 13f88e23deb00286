"""How many workers a queue wants: the function, the demand from one look to the next, and the metrics of a real queue."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import LaneInfo, Obstacles, Queue, Scaling, models
from engine.queue.metrics import APART_US, WINDOW_US, Demand, DemandWatch, wanted_workers
from tests.engine.desk import LEASE_MS, Desk
from tests.engine.using import Beat, Counts, Durations, HandlerTimes, ReportRunTimes, RunTimes, WorkerInfo

#: 100 jobs/s of 40 ms keep four handlers busy; a worker has two, and is to be busy for 80 %.
STEADY = Demand(arrivals_per_s=100, service_ms=40, backlog=0, oldest_age_ms=0, running=4, handlers_at_once=2)
AIM = Scaling(workers_max=50, drain_ms=10_000)

LOADS: dict[str, Any] = {
    "arrivals_per_s": st.floats(0, 1e9), "service_ms": st.floats(0.001, 1e8) | st.just(0.0), "backlog": st.integers(0, 10**9),
    "oldest_age_ms": st.integers(0, 10**10), "running": st.integers(0, 10**6), "handlers_at_once": st.integers(1, 1_000),
}  # fmt: skip
AIMS: dict[str, Any] = {
    "workers_min": st.integers(0, 20), "workers_max": st.integers(20, 10_000), "target_utilisation": st.floats(0.01, 1),
    "spare_workers": st.integers(0, 10), "drain_ms": st.integers(1_000, 86_400_000),
}  # fmt: skip
demands, aims = st.builds(Demand, **LOADS), st.builds(Scaling, **AIMS)


# -- the function


def test_it_is_the_plan_of_the_arrivals() -> None:
    # 100 / (2 / 0.04 * 0.8) = 2.5.
    assert wanted_workers(STEADY, AIM) == 3 and wanted_workers(replace(STEADY, arrivals_per_s=200), AIM) == 5
    assert wanted_workers(STEADY, replace(AIM, spare_workers=1)) == 4
    assert wanted_workers(STEADY, replace(AIM, target_utilisation=1)) == 2


def test_a_backlog_wants_more_and_an_old_one_sooner() -> None:
    # 600 jobs in 10 s are 60 a second more: 160 / 40.
    waiting = replace(STEADY, backlog=600)
    assert wanted_workers(waiting, AIM) == 4
    # Half of the time is over: 120 a second more; and never more than four times as many.
    assert wanted_workers(replace(waiting, oldest_age_ms=5_000), AIM) == 6
    assert [wanted_workers(replace(waiting, oldest_age_ms=ms), AIM) for ms in (7_500, 10**9)] == [9, 9]


def test_what_runs_keeps_its_workers_and_what_is_unknown_gets_one() -> None:
    idle = Demand(arrivals_per_s=0, service_ms=40, backlog=0, oldest_age_ms=0, running=0, handlers_at_once=2)
    to_zero = replace(AIM, workers_min=0, spare_workers=1)
    assert wanted_workers(idle, to_zero) == 0 and wanted_workers(replace(idle, running=5), to_zero) == 3
    unknown = replace(idle, service_ms=0)
    assert wanted_workers(unknown, to_zero) == 0
    for load in (replace(unknown, backlog=10_000), replace(unknown, arrivals_per_s=9)):
        assert wanted_workers(load, to_zero) == 1


@given(demand=demands, aim=aims)
def test_it_stays_within_its_bounds(demand: Demand, aim: Scaling) -> None:
    assert aim.workers_min <= wanted_workers(demand, aim) <= aim.workers_max


@given(demand=demands, aim=aims, more=st.floats(1, 100))
def test_more_load_never_wants_fewer(demand: Demand, aim: Scaling, more: float) -> None:
    few = wanted_workers(demand, aim)
    for field in ("arrivals_per_s", "backlog", "oldest_age_ms", "running"):
        value = getattr(demand, field)
        grown: Any = {field: value * more if isinstance(value, float) else int(value * more)}
        assert wanted_workers(replace(demand, **grown), aim) >= few, field


# -- the demand

OTHERS: dict[str, Any] = {
    **{"incarnation": "i", "host": "", "pid": 1, "version": "", "beat_age_ms": 0, "started_ms": 0, "in_hand": 0},
    **{"jobs": (), "leads": False, "lease_ms": 9_000, "handlers": (), "attributes": {}},
}
WORKER = WorkerInfo(name="w", alive=True, concurrency=2, **OTHERS)


class Looks:
    """Looks at a queue whose numbers the test sets."""

    def __init__(self) -> None:
        self.watch = DemandWatch()
        self.counts = Counts(10**12, waiting=0, delayed=0, active=0, dead=0, done=0, finished=0, buried=0)
        self.times: list[HandlerTimes] = []
        self.held: Obstacles | None = None

    def look(self, *, after_us: int = 0, workers: tuple[WorkerInfo, ...] = (WORKER,), **counts: int) -> Demand:
        self.counts = replace(self.counts, srv_us=self.counts.srv_us + after_us, **counts)
        return self.watch.note(self.counts, self.times, workers, self.held, Scaling(service_ms=40))

    def run(self, *, succeeded: int, failed: int = 0, each_us: int = 10_000) -> None:
        """What the workers have told so far."""
        none, good, bad = (Durations(runs, runs * each_us, each_us, ()) for runs in (0, succeeded, failed))
        self.times = [HandlerTimes("a", 1, none, bad), HandlerTimes("b", 1, good, none)]


def test_arrivals_are_what_waits_runs_and_has_ended() -> None:
    looks = Looks()
    # One look tells no rate: two handlers of 40 ms that are busy do 50 a second.
    assert looks.look(active=2).arrivals_per_s == 50
    # Ten ended in a second, four more wait, and one more has become due.
    assert looks.look(after_us=APART_US, waiting=4, active=3, finished=8, buried=1, expired=1).arrivals_per_s == 15
    # What is started has not come again; a failed run is taken off until its next attempt is due.
    assert looks.look(after_us=APART_US, waiting=0, active=6, delayed=1).arrivals_per_s == 14 / 2
    assert looks.look(after_us=APART_US, waiting=1, delayed=0).arrivals_per_s == 15 / 3


def test_rates_are_those_of_the_window() -> None:
    looks, seconds = Looks(), WINDOW_US // APART_US
    for second in range(1, 3 * seconds + 1):
        # Ten a second, and thirty a second in the last third.
        ended = 10 * second + 20 * max(0, second - 2 * seconds)
        demand = looks.look(after_us=APART_US, finished=ended)
        if second == 2 * seconds:
            assert demand.arrivals_per_s == 10
    assert demand.arrivals_per_s == 30
    # One long after is held against the last: that is all there is.
    assert looks.look(after_us=10 * WINDOW_US, finished=ended + 200).arrivals_per_s == pytest.approx(1, rel=0.1)


def test_two_looks_at_once_are_one() -> None:
    looks = Looks()
    looks.look()
    looks.look(after_us=APART_US, finished=10)
    assert looks.look(after_us=APART_US // 100, finished=10).arrivals_per_s == pytest.approx(10, rel=0.02)
    assert looks.look(after_us=APART_US, finished=20).arrivals_per_s == pytest.approx(10, rel=0.02)


def test_no_more_looks_are_kept_than_tell_a_rate() -> None:
    looks = Looks()
    for _ in range(1_000):
        looks.look(after_us=APART_US // 10)
    assert len(looks.watch.looks) <= WINDOW_US / APART_US + 2


def test_a_queue_that_began_anew_has_no_negative_rate() -> None:
    looks = Looks()
    looks.run(succeeded=100)
    looks.look(finished=100)
    looks.run(succeeded=1)
    assert looks.look(after_us=APART_US, finished=1, active=1).arrivals_per_s == 100, "one handler of 10 ms is busy"
    assert looks.look(after_us=-2 * APART_US, finished=1, active=0).arrivals_per_s == 0
    assert looks.look(after_us=APART_US, finished=0).arrivals_per_s == 0


def test_service_is_the_time_of_all_runs_of_a_job_that_finished() -> None:
    looks = Looks()
    assert looks.look().service_ms == 40, "until workers have told it"
    looks.run(succeeded=10, failed=5)
    assert looks.look(after_us=APART_US).service_ms == 15
    # Later runs count as soon as there are some, the former ones while there are none.
    looks.run(succeeded=10, failed=5, each_us=10_000)
    assert looks.look(after_us=2 * WINDOW_US).service_ms == 15
    looks.times = [HandlerTimes("a", 1, Durations(20, 10 * 10_000 + 10 * 90_000, 1, ()), looks.times[0].failed)]
    assert looks.look(after_us=2 * WINDOW_US).service_ms == 90
    only_failed = Looks()
    only_failed.run(succeeded=0, failed=4)
    assert only_failed.look().service_ms == 10


def test_the_backlog_is_what_more_workers_could_take() -> None:
    looks = Looks()
    now_ms = looks.counts.srv_us // 1_000
    free = LaneInfo("a", "", 3, now_ms - 700, "")
    full = LaneInfo("a", "acme", 50, now_ms - 90_000, "limit of key acme: 2 of 2 in hand")
    looks.held = Obstacles(looks.counts.srv_us, (), (), (full, free, replace(free, key="b", oldest_ms=now_ms - 300)))
    demand = looks.look(waiting=56)
    assert (demand.backlog, demand.oldest_age_ms) == (6, 700)
    looks.held = Obstacles(looks.counts.srv_us, (), (), (full,))
    demand = looks.look(waiting=50)
    assert (demand.backlog, demand.oldest_age_ms) == (0, 0)
    looks.held = None
    assert looks.look(waiting=50).backlog == 50


def test_jobs_that_are_leased_ahead_do_not_run() -> None:
    looks, gone = Looks(), replace(WORKER, alive=False)
    some, one = (WORKER, replace(WORKER, concurrency=4), gone), (replace(WORKER, concurrency=1),)
    for workers, running, at_once in ((some, 6, 3), (one, 1, 1), ((gone,), 0, Scaling().concurrency)):
        demand = looks.look(active=9, workers=workers)
        assert (demand.running, demand.handlers_at_once) == (running, at_once)


# -- the metrics


SAMPLES = ("ironclaim_worker_utilisation_ratio", "ironclaim_arrivals_per_second", "ironclaim_wanted_workers")


def scaling_samples(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(SAMPLES)]


def samples(*values: str) -> list[str]:
    """The lines of the last of them, with these values."""
    return [f'{name}{{queue="desk"}} {value}' for name, value in zip(SAMPLES[-len(values) :], values, strict=True)]


def test_a_queue_tells_what_it_wants(desk: Desk) -> None:
    about = json.dumps({"name": "w1", "concurrency": 4})
    desk.run(Beat("a" * 16, 1, 300_000, desk.now_ms + 300_000, LEASE_MS, 1000, about))
    aim = Scaling(workers_max=20, drain_ms=2_000)
    assert scaling_samples(desk.queue.metrics(scaling=aim)) == samples("0.0000", "0.000", "1")
    # Runs of 100 ms: 40 a second of each worker, and 32 as busy as they may be.
    desk.run(ReportRunTimes("a" * 16, 1, desk.now_ms + 60_000, (RunTimes("main", "ok", 1_000_000, 100_000, ((53, 10),)),)))
    desk.enqueue(*(f"j{number}" for number in range(203))).held(limit=3).tick(1_000)
    # 203 came in a second, and 200 are to be gone in the second that is left: 403 / 32.
    assert scaling_samples(desk.queue.metrics(scaling=aim)) == samples("0.7500", "203.000", "13")
    desk.pause()
    # What nobody may claim asks for nobody: 203 / 32.
    assert 'ironclaim_wanted_workers{queue="desk"} 7' in desk.queue.metrics(scaling=aim)


def test_without_workers_there_is_no_utilisation(desk: Desk) -> None:
    assert scaling_samples(desk.enqueue("j1").queue.metrics(scaling=Scaling(workers_max=1))) == samples("0.000", "1")


def test_an_old_keyspace_tells_it_too(ironclaim_url: str) -> None:
    with Queue("bull", models.Bull(), url=ironclaim_url) as queue:
        queue.enqueue("send", {})
        assert 'ironclaim_wanted_workers{queue="bull"} 2' in queue.metrics(scaling=Scaling(workers_min=2))
