"""The workload is reproducible, splits without overlap, stays inside its bounds and offers the load that recovery needs."""

import dataclasses
import hashlib
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.workload import DELAY_MS, LARGE_BYTES, NAMES, OFFERED_LOAD_MAX, PlannedJob, Workload
from tests.golden import Told, outcome, tells

ROOT = Path(__file__).parents[2]
#: What the drill runs: 120 jobs/s for a minute against three workers of concurrency 8, of which one may be down.
DRILL_RATE_PER_S = 120.0
DRILL_JOBS = 7200


def drill(seed: int = 1, **changes: Any) -> Workload:
    return Workload(**{"seed": seed, "rate_per_s": DRILL_RATE_PER_S, "jobs_max": DRILL_JOBS, **changes})


def fingerprint(jobs: list[PlannedJob]) -> str:
    return hashlib.sha256(repr(jobs).encode()).hexdigest()


def test_same_seed_same_jobs_in_another_process() -> None:
    program = (
        "import hashlib; from bench.workload import Workload\n"
        "jobs = list(Workload(seed=7, rate_per_s=120.0, jobs_max=500).jobs())\n"
        "print(hashlib.sha256(repr(jobs).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "12345"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == fingerprint(list(drill(seed=7, jobs_max=500).jobs()))


def test_other_seed_other_jobs() -> None:
    assert fingerprint(list(drill(1, jobs_max=50).jobs())) != fingerprint(list(drill(2, jobs_max=50, id_prefix="b1").jobs()))


def test_another_rate_moves_the_instants_and_nothing_else() -> None:
    slow = list(drill(jobs_max=200, rate_per_s=50.0).jobs())
    for slower, faster in zip(slow, list(drill(jobs_max=200, rate_per_s=100.0).jobs()), strict=True):
        assert slower.offset_ms == pytest.approx(2 * faster.offset_ms, abs=0.01)
        assert dataclasses.replace(slower, offset_ms=0.0) == dataclasses.replace(faster, offset_ms=0.0)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_parts_send_every_index_once(parts: int) -> None:
    whole = list(drill(jobs_max=300).jobs())
    split = [list(drill(jobs_max=300).jobs(part, parts)) for part in range(parts)]
    for part, jobs in enumerate(split):
        assert all(job.index % parts == part for job in jobs)
    assert sorted(itertools.chain(*split), key=lambda job: job.index) == whole


def test_endless_without_jobs_max() -> None:
    jobs = list(itertools.islice(Workload(seed=1, rate_per_s=1000.0).jobs(), 2 * DRILL_JOBS))
    assert [job.index for job in jobs] == list(range(2 * DRILL_JOBS))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_arrivals_are_poisson_around_the_rate(seed: int) -> None:
    offsets_ms = [job.offset_ms for job in drill(seed).jobs()]
    gaps_ms = [later - earlier for earlier, later in itertools.pairwise(offsets_ms)]
    assert min(gaps_ms) >= 0
    # the mean of n exponential gaps is off by 1/sqrt(n) at one sigma; and their deviation equals their mean
    four_sigma = 4 / len(gaps_ms) ** 0.5
    assert statistics.mean(gaps_ms) == pytest.approx(1000 / DRILL_RATE_PER_S, rel=four_sigma)
    assert statistics.stdev(gaps_ms) == pytest.approx(1000 / DRILL_RATE_PER_S, rel=0.1)


def test_content_has_the_promised_shares() -> None:
    jobs = list(drill().jobs())

    def share(chosen: list[PlannedJob]) -> float:
        return len(chosen) / len(jobs)

    delayed = [job for job in jobs if job.delay_ms]
    assert 0.04 < share(delayed) < 0.06 and all(DELAY_MS[0] <= job.delay_ms <= DELAY_MS[1] for job in delayed)
    assert 0.003 < share([job for job in jobs if 0 < job.fail_first < job.attempts]) < 0.007
    assert {job.fail_first for job in jobs} == {0, 1, 2, 3}
    assert 0.0003 < share([job for job in jobs if job.fail_first == job.attempts]) < 0.002
    assert share([job for job in jobs if job.priority == 5]) > 0.6
    assert ({job.priority for job in jobs}, {job.name for job in jobs}) == (set(range(1, 11)), set(NAMES))
    assert 28 <= statistics.median(job.work_ms for job in jobs) <= 32
    assert max(job.work_ms for job in jobs) <= 300
    sizes = [len(json.dumps(job.payload)) for job in jobs]
    assert 190 <= statistics.median(sizes) <= 210 and LARGE_BYTES[1] * 0.9 < max(sizes) <= LARGE_BYTES[1]
    assert 0.01 < sum(size > 300 for size in sizes) / len(sizes) < 0.03


def test_payload_repeats_the_plan_and_differs_between_jobs() -> None:
    jobs = list(drill(jobs_max=1000).jobs())
    for job in jobs:
        assert job.payload["index"] == job.index and job.payload["work_ms"] == job.work_ms
        assert job.payload["fail_first"] == job.fail_first and re.fullmatch(r"b1-\d+", job.id)
    assert len({json.dumps(job.payload) for job in jobs}) == len(jobs)


def test_offered_load_arithmetic() -> None:
    workload = drill()
    # 30 ms median with the right tail cut at 300 ms has a mean of 39 ms; one job in a hundred runs once more
    assert workload.mean_work_ms() == pytest.approx(39.0, abs=0.1)
    assert workload.mean_runs() == pytest.approx(1 + 0.005 * 1.5 + 0.001 * 2)
    # 120/s x 1.0095 runs x 0.0390 s = 4.73 slots in use, of the 16 that two workers of concurrency 8 have: 30 %
    assert workload.offered_load(workers=2, concurrency=8) == pytest.approx(120 * 1.0095 * 0.0390 / 16, rel=0.005)
    assert workload.offered_load(workers=2, concurrency=8) <= OFFERED_LOAD_MAX
    assert workload.offered_load(workers=1, concurrency=1) == pytest.approx(16 * workload.offered_load(2, 8))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_second_of_the_drill_offers_more_than_two_workers_can_do(seed: int) -> None:
    jobs = list(drill(seed).jobs())
    assert statistics.mean(job.work_ms for job in jobs) == pytest.approx(drill().mean_work_ms(), rel=0.05)
    busy_s: dict[int, float] = {}
    for job in jobs:
        second = int((job.offset_ms + job.delay_ms) // 1000)
        busy_s[second] = busy_s.get(second, 0.0) + job.work_ms / 1000
    assert max(busy_s.values()) / (2 * 8) <= OFFERED_LOAD_MAX


#: Settings that are out of bounds; the line that says so stands in a text.
OUT_OF_BOUNDS: dict[str, list[Any]] = {
    **{"seed": [-1, "1", True], "rate_per_s": [0, float("nan"), float("inf"), 10_001], "jobs_max": [-1], "delayed_share": [1.1]},
    **{"failing_share": [-0.1, 1.0], "large_share": ["0.5"], "work_median_ms": [301], "work_max_ms": [0], "attempts": [0]},
    **{"backoff_ms": [-1], "id_prefix": ["cron:x", "two words", "x" * 101]},
}


def out_of_bounds() -> Told:
    for field, values in OUT_OF_BOUNDS.items():
        for value in values:
            yield f"{field} {value!r}", outcome(drill, **{field: value})
    for parts in ((2, 2), (-1, 2), (0, 0)):
        yield f"parts {parts}", outcome(drill().jobs, *parts)


def test_what_is_out_of_bounds_is_one_line_with_field_and_value() -> None:
    tells("bench/wrong_workloads.txt", out_of_bounds)


def test_both_ends_of_the_bounds_are_accepted() -> None:
    drill(seed=0, rate_per_s=0.1, jobs_max=0, delayed_share=0, large_share=1, work_median_ms=1, work_max_ms=1, attempts=1)
    assert all(job.delay_ms for job in drill(jobs_max=50, delayed_share=1.0).jobs())
    assert all(len(json.dumps(job.payload)) >= LARGE_BYTES[0] for job in drill(jobs_max=50, large_share=1.0).jobs())
    assert list(drill(jobs_max=0).jobs()) == []


def test_a_single_attempt_never_counts_as_failing_first() -> None:
    jobs = list(drill(jobs_max=200, attempts=1, failing_share=0.5, hopeless_share=0.5).jobs())
    assert {job.fail_first for job in jobs} == {0, 1}
