"""The queueing simulator against theory, and each thing that it knows: priorities, limits, retries, losses, busy servers."""

import re
from functools import lru_cache
from math import exp, factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports import command, errors
from reports.capacity.measurement import read
from reports.simulation.measured import compare
from reports.simulation.queueing import simulate
from reports.simulation.system import EVEN, RANDOM, Load, Loss, System, constant, exponential, measured
from tests.golden import Told, same, tells
from tests.reports.capacity.planted import content, write

#: What tier two alone does.
SLOW = pytest.mark.slow

#: The service time of the theory's systems, in ms.
SERVICE_MS = 100.0


def busy(places: int, share: float, *, even: bool = False, jobs: int = 30_000) -> Load:
    """A load that keeps so many places busy to this share."""
    rate = places * share * 1_000 / SERVICE_MS
    return Load(rate=rate, seconds=jobs / rate, warm_up_s=jobs / rate / 20, arrivals=EVEN if even else RANDOM)


def mean_wait(load: Load, system: System) -> float:
    """The mean wait of two seeds, in ms."""
    return float(np.mean([simulate(load, system, seed).waits_ms.mean() for seed in range(2)]))


def erlang(places: int, offered: float) -> float:
    """Erlang's C: the share of jobs that wait for one of so many places."""
    top = offered**places / factorial(places) * places / (places - offered)
    return top / (sum(offered**count / factorial(count) for count in range(places)) + top)


#: With two seeds the mean wait of ten places is a tenth off.
SEEDS = [pytest.param(1, 0.6, 2, marks=SLOW), (4, 0.7, 2), pytest.param(10, 0.8, 8, marks=SLOW)]


@pytest.mark.parametrize(("places", "share", "seeds"), SEEDS)
def test_exponential_service_waits_as_erlang_says(places: int, share: float, seeds: int) -> None:
    system = System(service=exponential(SERVICE_MS), handlers_at_once=places)
    came = [simulate(busy(places, share), system, seed) for seed in range(seeds)]
    waits = np.concatenate([one.waits_ms for one in came])
    late, drain_per_ms = erlang(places, places * share), places * (1 - share) / SERVICE_MS
    assert (waits > 1e-6).mean() == pytest.approx(late, rel=0.06)
    assert waits.mean() == pytest.approx(late / drain_per_ms, rel=0.08)
    assert np.quantile(waits, 0.95) == pytest.approx(max(0.0, np.log(late / 0.05) / drain_per_ms), rel=0.08)


@lru_cache
def deterministic(places: int, share: float) -> float:
    """The mean wait of M/D/c, in ms: after each service time as many jobs as there are places have left (Crommelin)."""
    size, offered = 400, places * share
    arriving = np.array([exp(-offered + count * np.log(offered) - sum(np.log(np.arange(1, count + 1)))) for count in range(size)])
    here = np.zeros(size)
    here[0] = 1.0
    for _ in range(2_000):
        stay = np.zeros(size)
        stay[0] = here[: places + 1].sum()
        stay[1 : size - places] = here[places + 1 :]
        here = np.convolve(stay, arriving)[:size]
    return float((np.maximum(0, np.arange(size) - places) * here).sum() / offered * SERVICE_MS)


@pytest.mark.parametrize(("places", "share"), [pytest.param(1, 0.6, marks=SLOW), (4, 0.7), pytest.param(8, 0.8, marks=SLOW)])
def test_constant_service_waits_as_crommelin_says(places: int, share: float) -> None:
    system = System(service=constant(SERVICE_MS), handlers_at_once=places)
    assert mean_wait(busy(places, share), system) == pytest.approx(deterministic(places, share), rel=0.08)


def test_one_constant_server_waits_as_pollaczek_and_khinchine_say() -> None:
    assert deterministic(1, 0.6) == pytest.approx(0.6 / 2 / 0.4 * SERVICE_MS, rel=1e-3)


def test_littles_law_holds() -> None:
    came = simulate(busy(4, 0.8), System(service=exponential(SERVICE_MS), handlers_at_once=4))
    per_ms = 4 * 0.8 / SERVICE_MS
    assert came.waiting == pytest.approx(per_ms * came.waits_ms.mean(), rel=0.02)
    assert came.running == pytest.approx(3.2, rel=0.02)


def test_jobs_of_a_lost_worker_run_again_and_end_once() -> None:
    loss = Loss(at_s=10, worker=1, away_s=20, recovery_s=4)
    system = System(service=constant(1_000), workers=2, handlers_at_once=5, losses=[loss])
    came = simulate(Load(rate=4, seconds=60, arrivals=EVEN), system)
    assert len(came.latencies_ms) == 240 and 1 <= (came.latencies_ms > 4_000).sum() <= 5


def test_a_limit_counts_the_jobs_of_a_lost_worker_until_they_are_reaped() -> None:
    lost = [Loss(at_s=at_s, worker=1, away_s=9, recovery_s=4) for at_s in (10.05, 12)]
    came = simulate(Load(rate=1, seconds=20, arrivals=EVEN), System(service=constant(100), workers=2, limit=1, losses=lost))
    waited = np.sort(came.latencies_ms)
    assert waited == pytest.approx([100] * 15 + [450, 1_350, 2_250, 3_150, 4_550])


def test_the_same_seed_says_the_same() -> None:
    system = System(service=exponential(SERVICE_MS), handlers_at_once=2)
    first, again, other = (simulate(busy(2, 0.5, jobs=2_000), system, seed).latencies_ms for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_it_is_as_near_to_measured_points_as_was_asked(tmp_path: Path) -> None:
    """p50, p99 and backlog of at least three points, within 10 %: the points come from a system whose service is known."""
    found = compare(read(write(tmp_path, content(counts=(1, 2, 3, 4)))))
    assert len({one.step.rate for one in found}) >= 3 and [one for one in found if not one.within] == []


def test_it_says_when_it_is_not_near(tmp_path: Path) -> None:
    made = content(counts=(1, 2))
    made["steps"][0]["latency_ms"]["p99"] *= 3
    off = [one for one in compare(read(write(tmp_path, made))) if not one.within]
    assert [one.name for one in off] == ["p99"] and off[0].off == pytest.approx(2 / 3, abs=0.1)


#: Few jobs, each of whose instants follows by hand. A worker or the server is away for a while; it is so twice at a time.
CLOSE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bursts for one place": ({"due_s": [1.0] * 4 + [5.0] * 4}, {}),
    "a busy server": ({"due_s": [1.0, 1.0, 1.02]}, {"server_us_per_job": 40_000, "handlers_at_once": 3}),
    "a busy processor": ({"due_s": [1.0] * 3}, {"worker_us_per_job": 30_000, "handlers_at_once": 2, "workers": 2}),
    "what passes beside": ({"due_s": [1.0, 1.0]}, {"pickup": constant(7)}),
    "a limit": ({"due_s": [1.0] * 4}, {"handlers_at_once": 4, "limit": 2}),
    "a warm-up": ({"due_s": [1.95, 2.0, 9.95, 10.0, 10.1], "warm_up_s": 2.0}, {}),
    "even": ({"arrivals": EVEN}, {"shards": 2}),
    "random": ({}, {"service": exponential(SERVICE_MS)}),
    "priorities": ({"due_s": [1.0] * 6, "priorities": (0.5, 0.5)}, {}),
    "failures": ({"due_s": [1.0, 8.0, 9.9], "failure_share": 1.0}, {}),
    "some failures": ({"failure_share": 0.5}, {}),
    "an overload": ({"due_s": [9.0] * 12}, {"handlers_at_once": 1}),
    "few attempts": ({"due_s": [1.0], "failure_share": 1.0, "attempts": 2, "retry_ms": 500}, {}),
    "a lost worker": (
        {"due_s": [1.0] * 4 + [1.3] + [9.0] * 6, "failure_share": 1.0, "attempts": 1},
        {
            **{"workers": 2, "handlers_at_once": 2},
            "losses": [Loss(at_s=1.05, worker=1, away_s=2, recovery_s=0.5), Loss(at_s=1.06, worker=1, away_s=0.7)],
        },
    ),
    "a worker that stays away": ({"due_s": [1.0] * 4}, {"workers": 2, "losses": [Loss(at_s=1.05, worker=1, away_s=20)]}),
    "a lost primary": ({"due_s": [1.0, 1.08, 1.5, 2.5]}, {"losses": [Loss(at_s=1.05, away_s=1), Loss(at_s=1.1, away_s=0.2)]}),
}


def exact() -> Told:
    """The times in ms: latency and wait of each job, and its priority."""
    for name, (load, system) in CLOSE.items():
        came = simulate(Load(**{"rate": 1, "seconds": 10, **load}), System(**{"service": constant(SERVICE_MS), **system}))
        jobs = zip(came.latencies_ms.tolist(), came.waits_ms.tolist(), came.priorities.tolist(), strict=True)
        yield name, " | ".join(f"{late:.3f} {waited:.3f} {priority}" for late, waited, priority in jobs)
        yield name, f"waiting {came.waiting:.6f} running {came.running:.6f} dead {came.dead} left {came.left}"


def test_few_jobs_take_what_they_take_by_hand() -> None:
    tells("reports/simulated_closely.txt", exact)


def test_the_command_says_how_near_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path, made := content(counts=(1, 2, 3, 4)))
    assert command.main(["simulation", str(run)]) == 0
    printed = capsys.readouterr().out
    assert re.fullmatch(r"simulation: points=(\d+) near=(\d+)/\2 \(.*\)", printed.splitlines()[-1])
    same("reports/simulated.txt", printed)
    made["steps"][0]["latency_ms"]["p99"] *= 3
    assert command.main(["simulation", str(write(tmp_path, made))]) == 1
    for step in made["steps"][3:]:
        step["arrivals_ms"] = []
    assert command.main(["simulation", str(write(tmp_path, made))]) == 2
    assert "points that can be compared beside the calmest: 1, it needs 3" in capsys.readouterr().err


def test_an_empty_histogram_is_refused() -> None:
    with pytest.raises(errors.JudgeError, match="a histogram is empty"):
        measured(())
