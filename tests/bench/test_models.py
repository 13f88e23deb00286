"""What the load asks of a model: nothing that it lacks, and everything else."""

from __future__ import annotations

import pytest

from bench import models
from bench.models import Carried, ModelMissing
from bench.workload import LIMITS, SCHEDULES


def test_lanes_carries_the_whole_workload() -> None:
    assert models.carried("lanes").features() == {
        "limits": LIMITS,
        "unique_keys": True,
        "schedules": SCHEDULES,
        "dependencies": True,
        "routing": True,
        "findings": (),
    }


def test_what_a_model_lacks_is_not_in_its_load() -> None:
    finding = {"name": "a", "checks": ["J4"], "text": "b"}
    features = Carried(options={"unique"}, lacks=("Tick",), findings=(finding,)).features()
    assert features["limits"] == ({"name": "report", "concurrency": 6},)
    assert features["unique_keys"] and not features["dependencies"] and not features["routing"]
    assert features["schedules"] == () and features["findings"] == (finding,)
    assert Carried(options=(), lacks=("SetLimit",)).features()["limits"] == ()


def test_a_model_that_nobody_knows_is_one_line() -> None:
    with pytest.raises(ModelMissing, match=r"^model 'resque' does not exist; choose from lanes, bridge, .*mosquito$"):
        models.carried("resque")
