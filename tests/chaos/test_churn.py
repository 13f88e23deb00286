"""Churn: its rounds, what is told of the memory, a small one on a real server, and one with a leak."""

import json
from io import StringIO
from pathlib import Path

import pytest
import redis

from bench import models
from chaos import cli, progress
from chaos.churn import LEAKING, STEADY, Churned, Memory, churned, rounds_of
from chaos.interrupts import Interrupts

PARTS = [(10_000, 1_000, 10), (1_000_000, 50_000, 20), (1_000_001, 50_000, 21), (10_000_000, 50_000, 200)]


@pytest.mark.parametrize(("jobs", "each", "count"), PARTS)
def test_all_jobs_are_in_rounds_of_which_there_are_ten_at_least(jobs: int, each: int, count: int) -> None:
    found = rounds_of(jobs)
    assert sum(found) == jobs and len(found) == count and max(found) == found[0] == each


def test_memory_is_told_before_at_the_peak_and_after() -> None:
    before = Memory.of({"used_memory": 2_000_000, "used_memory_rss": 8_000_000})
    assert before == Memory(2, 8, 4)
    table = list(Churned(1_000_000, before, Memory(100, 120, 1.2), Memory(2.5, 60, 24)).words())
    assert [line.split() for line in table[1:4]] == [
        *(["before", "2.00", "8.00", "4.00"], ["peak", "100.00", "120.00", "1.20"], ["after", "2.50", "60.00", "24.00"])
    ]
    assert table[-1] == "churn: steady, +0.500 MB are left of 1,000,000 jobs (a leak is more than 1 MB)"


@pytest.mark.parametrize(("left_mb", "code"), [(-3.0, STEADY), (1.0, STEADY), (1.01, LEAKING)])
def test_what_is_left_is_a_leak_from_a_bound_on(left_mb: float, code: int) -> None:
    empty = Memory(0, 0, 1)
    assert Churned(1, empty, empty, Memory(left_mb, 0, 1)).code == code


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_a_small_churn_leaves_next_to_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tombstones are waited out, which takes most of the time."""
    assert cli.main(["churn", "--jobs", "10000", "--runs", str(tmp_path / "runs")], Interrupts()) == STEADY
    assert capsys.readouterr().out.splitlines()[-1].startswith("churn: steady, ")
    found = json.loads((tmp_path / "runs" / "latest" / "churn.json").read_text())
    assert found["jobs"] == 10_000 and found["left_mb"] < 1
    # A round of 1,000 jobs with some 1,500 bytes each.
    assert found["peak"]["used_mb"] > found["before"]["used_mb"] + 1.5
    assert all(found[when]["rss_mb"] > 0 and found[when]["fragmentation"] > 0 for when in ("before", "peak", "after"))


@pytest.mark.slow
def test_a_leak_is_found(ironclaim_url: str) -> None:
    """One is planted: each line of progress adds to a key."""
    with (
        models.queue(models.LANES, "leaky", url=ironclaim_url) as queue,
        redis.Redis.from_url(ironclaim_url, decode_responses=True) as server,
    ):

        class Leaky(StringIO):
            def write(self, text: str) -> int:
                server.append("leak", "x" * 200_000)
                return super().write(text)

        found = churned(queue, server, 10_000, 1, progress.Progress(Leaky()), Interrupts())
    assert found.code == LEAKING and found.left_mb > 1.5
