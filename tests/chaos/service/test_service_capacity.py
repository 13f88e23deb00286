"""The capacity of a service: the whole command on real parts with short steps, and what it refuses."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bench.arrivals import Arrivals
from bench.capacity_steps import Other, Sent, Timed
from bench.handler_times import Times
from chaos.capacity.figures import HandlerTimes, load_reason
from chaos.capacity.steps import due
from chaos.errors import HarnessError
from chaos.service.capacity import service_work, upper_ms
from engine import Handlers, Queue, Worker
from reports.capacity.measurement import Measurement, read_as
from tests.chaos.service.service import asked, written

SHORT = ("--step", "3s", "--last-step", "3s", "--verify-times", "1", "--no-scaling")

LOCUST = """
from locust import User, task
class Shop(User):
    @task
    def buy(self):
        pass
"""


def measured(folder: Path) -> Measurement:
    return read_as(Measurement, json.loads((folder / "runs" / "latest" / "measurement.json").read_text()), "measurement")


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_the_rate_of_a_service_is_searched_predicted_and_verified(tmp_path: Path) -> None:
    file = written(
        tmp_path, workers="['ironclaim worker small:queue --concurrency 2']", more='yield fail, {}, {"priority": 3}', ms=5
    )
    done = asked("capacity", file, *SHORT, "--p99-ms", 5_000, "--rate", 100, "--runs", tmp_path / "runs")
    last = re.fullmatch(r"capacity: rate=(\S+) interval=\S+ met_below=(\d)/1 missed_above=(\d)/1", done.stdout.splitlines()[-1])
    assert last is not None, done.stdout + done.stderr
    assert done.returncode == 0 if last[2] == last[3] == "1" else done.returncode in (1, 2)
    found = measured(tmp_path)
    assert (found.target.p99_ms, found.target.model) == (5_000, "lanes")
    # Each handler sleeps for 5 ms; also those were noted that failed for good.
    assert 5 <= found.target.handler_ms < 120
    assert found.steps and all(step.workers == 3 and step.handlers_at_once == 2 for step in found.steps)
    sound = [step for step in found.steps if step.void is None]
    assert any(sum(one.count for one in step.latency_ms.histogram) >= 0.9 * step.offered for step in sound)
    # Six places do at most six handlers at once.
    assert all(step.finished <= 6 * step.seconds * 1_000 / 5 + 6 for step in found.steps)
    assert found.recovery["worker-kill"].source.endswith(f"as no drill of queue small is in {tmp_path / 'runs'}")
    # What to run for the rate that was asked.
    assert "\nplan: rate=100 workers=" in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_a_load_that_cannot_yield_so_many_jobs_is_named_and_not_the_service(tmp_path: Path) -> None:
    done = asked("capacity", written(tmp_path, more="time.sleep(0.025)", ms=1), *SHORT, "--runs", tmp_path / "runs")
    assert done.returncode == 2, done.stdout + done.stderr
    said = re.search(r"steps were void: the load itself yields at most (\S+) jobs/s", done.stdout)
    assert said is not None and 20 < float(said[1]) <= 40, done.stdout
    assert all(step.void is None or "the load itself" in step.void or "driver" in step.void for step in measured(tmp_path).steps)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_a_worker_that_is_none_is_told(tmp_path: Path) -> None:
    file = written(tmp_path, workers="['sh -c \"echo no such queue; exit 3\"']")
    done = asked("capacity", file, *SHORT, "--runs", tmp_path / "runs")
    assert done.returncode == 2 and "exit code 3 (no such queue)" in done.stderr and done.stderr.count("\n") == 1


NOT_OF_SERVICES = [
    (("--handler-ms", "20"), "--handler-ms cannot be given with chaos.toml: the service is measured as it is"),
    (("--payload", "2kb"), "--payload cannot be given with chaos.toml"),
    (("--workers", "2"), "--workers cannot be given with chaos.toml"),
    (("--handlers", "2"), "--handlers cannot be given with chaos.toml"),
    (("--validate",), "--validate cannot be given with chaos.toml"),
    (("--step", "1h"), "step_s is 3600: it must be from 1 to 600"),
]


@pytest.mark.parametrize(("options", "line"), NOT_OF_SERVICES)
def test_what_a_service_cannot_be_asked_is_one_line_before_a_start(tmp_path: Path, options: tuple[str, ...], line: str) -> None:
    done = asked("capacity", written(tmp_path), *options, "--runs", tmp_path / "runs")
    assert done.returncode == 2 and line in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == "" and not (tmp_path / "runs").exists()


def test_a_locust_user_has_no_given_instants(tmp_path: Path) -> None:
    (tmp_path / "users.py").write_text(LOCUST)
    with pytest.raises(HarnessError, match=r"load is users:Shop, a Locust user, .*: a capacity needs a function"):
        service_work(written(tmp_path, load='"users:Shop"'), {}, [])


def test_the_target_is_the_one_that_was_named_or_the_objective_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, slo="{ latency.all.end_to_end.p99_ms = 250 }")
    assert service_work(file, {}, []).p99_ms == 250
    assert service_work(file, {"p99_ms": 90.0}, ["p99_ms"]).p99_ms == 90
    assert service_work(written(tmp_path), {}, []).p99_ms is None


def test_jobs_with_ids_and_delays_of_their_own_are_due_when_they_are() -> None:
    arrivals = Arrivals(1, 4, 100.0, 1.0)
    offsets_ms = [arrival.offset_ms for arrival in arrivals]
    sent = Sent(4, 0, 0, 3, 3, 0.0, 0.0, others=(Other(1, "own", 0.0), Other(2, "step4-2", 500.0)))
    found = due(arrivals, Sent.read(json.dumps(asdict(sent))))
    assert "step4-1" not in found and found["own"] == offsets_ms[1]
    assert found["step4-2"] == offsets_ms[2] + 500 and found["step4-0"] == offsets_ms[0]
    assert len(found) == len(offsets_ms)


def test_a_load_is_too_slow_when_it_needs_most_of_the_time_for_its_jobs() -> None:
    assert load_reason(1_000, 2.0, 10.0) is None and load_reason(0, 0.0, 10.0) is None
    assert load_reason(300, 9.0, 10.0) == "the load itself yields at most 33.33 jobs/s: it took 30 ms for each"
    assert upper_ms([(1, 2, 98), (2, 3, 1), (3, 4, 1)], 99) == 3


def test_the_last_run_of_a_job_is_noted_also_of_one_that_fails_for_good(ironclaim_url: str, tmp_path: Path) -> None:
    handlers, runs = Handlers(), dict[str, int]()

    @handlers("twice")
    def twice(job: Any) -> None:
        runs[job.id] = runs.get(job.id, 0) + 1
        if runs[job.id] == 1:
            raise RuntimeError("again")

    @handlers("never")
    def never(job: Any) -> None:
        raise RuntimeError("never")

    file = tmp_path / "worker-1.times"
    with Queue("noted", url=ironclaim_url, observer=Times(str(file))) as queue:
        queue.enqueue("twice", None, id="twice", attempts=3, backoff_ms=0)
        queue.enqueue("never", None, id="never", attempts=2, backoff_ms=0)
        Worker(queue, handlers, sweep_ms=50, concurrency=3).run(burst=True)
    times = HandlerTimes()
    assert times.read(file) == 2 and set(times.ran) == {"twice", "never"}
    assert all(one.start_ns <= one.end_ns <= one.reported_ns for one in times.ran.values())
    assert (times.configured[file]["queue"], times.configured[file]["concurrency"]) == ("noted", 3)
    assert Timed.read(Timed("", "redis://h", "noted", str(file)).written()).queue == "noted"
