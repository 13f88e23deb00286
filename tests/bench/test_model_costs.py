"""What a model costs, in the small: every part measures, on a real server, and copies of jobs are jobs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import models
from bench.micro import clone, model_costs, place
from bench.micro.jobs import Claims
from bench.micro.model_costs import OTHER, Size, measure
from bench.micro.payload import NAME
from engine.testing import EmbeddedServer
from tests.bench.real_parts import TWO_CORES

pytestmark = pytest.mark.usefixtures("own_cores")

TINY = Size(throughput_jobs=30, life_jobs=30, memory_jobs=200, depths=(20,), barred=50, claims=5, repeat=1)


@TWO_CORES
@pytest.mark.slow
def test_every_part_of_lanes_has_its_numbers() -> None:
    told: list[str] = []
    found = measure("lanes", TINY, told.append)
    assert set(found["claim_us"]) == {"20 waiting", "50 unmatchable in front", "the first job behind 50"}
    assert set(found["bytes"]) == {"waiting", "active", "finished", "delayed", "dead"}
    assert all(value > 0 for part in ("throughput", "claim_us", "bytes") for value in found[part].values())
    # One EVALSHA and what its script runs; ten jobs share a claim.
    assert found["per_job"]["enqueue"]["commands"] > found["per_job"]["claim_and_finish"]["commands"] > 1
    assert len(told) == 5


@TWO_CORES
@pytest.mark.slow
def test_a_foreign_model_looks_past_what_it_may_not_take() -> None:
    """Its claim sees a part of the jobs in front at a time."""
    told: list[str] = []
    # The medians of nine blocks: a pause of the machine while a claim runs makes one of them longer.
    found = model_costs.claim_cost("bull", replace(TINY, barred=250, repeat=9), told.append)
    assert "250 unmatchable in front" in told[-1] and "the first after 3 looks" in told[-1]
    assert found["the first job behind 250"] > found["20 waiting"]


@pytest.mark.parametrize("model", [name for name in models.NAMES if name != models.LANES])
def test_copies_of_a_job_are_jobs_that_can_be_claimed_in_their_order(model: str) -> None:
    with EmbeddedServer() as server, models.queue(model, "copies", url=server.url) as queue:
        clone.fill(queue, place.client(server), 40, name=NAME)
        clone.fill(queue, place.client(server), 20, name=OTHER)
        jobs = queue.driver.run(Claims(queue).call(100)).jobs
        assert [job.lease.job for job in jobs] == [f"{NAME}{number:09d}" for number in range(40)]
        assert {job.name for job in jobs} == {NAME} and len({job.payload for job in jobs}) == 1
        assert queue.counts().waiting == 20


def test_the_command_writes_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(model_costs, "measure", lambda model, size, told: told(f"size {size.repeat}") or {"model": model})
    assert model_costs.main(["--model", "bull", "--quick", "--out", str(tmp_path / "costs.json")]) == 0
    assert json.loads((tmp_path / "costs.json").read_text()) == {"model": "bull"}
    assert capsys.readouterr().out.endswith(" s  bull: size 1\n")
