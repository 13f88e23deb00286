"""What a model costs, in the small: every part measures, on a real server, and copies of jobs are jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.micro import model_costs
from bench.micro.model_costs import Size, measure

TINY = Size(throughput_jobs=30, life_jobs=30, memory_jobs=200, depths=(20,), barred=50, claims=5, repeat=1)


@pytest.fixture(autouse=True)
def own_cores() -> object:
    """Give this process its cores back, which the measurements take away."""
    allowed = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, allowed)


def test_every_part_of_lanes_has_its_numbers() -> None:
    told: list[str] = []
    found = measure("lanes", TINY, told.append)
    assert set(found["claim_us"]) == {"20 waiting", "50 unmatchable in front"}
    assert set(found["bytes"]) == {"waiting", "active", "finished", "delayed", "dead"}
    assert all(value > 0 for part in ("throughput", "claim_us", "bytes") for value in found[part].values())
    # One EVALSHA and what its script runs; ten jobs share a claim.
    assert found["per_job"]["enqueue"]["commands"] > found["per_job"]["claim_and_finish"]["commands"] > 1
    assert len(told) == 5


def test_the_command_writes_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(model_costs, "measure", lambda model, size, told: told(f"size {size.repeat}") or {"model": model})
    assert model_costs.main(["--model", "bull", "--quick", "--out", str(tmp_path / "costs.json")]) == 0
    assert json.loads((tmp_path / "costs.json").read_text()) == {"model": "bull"}
    assert capsys.readouterr().out.endswith(" s  bull: size 1\n")
