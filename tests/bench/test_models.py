"""What the load asks of a model: nothing that it lacks, and everything else."""

import pytest

from bench import models
from bench.models import Carried, ModelMissing
from bench.workload import LIMITS, SCHEDULES, Workload, plan_of
from engine.queue import producing


def test_lanes_carries_the_whole_workload() -> None:
    assert models.carried("lanes").features() == {
        **{"limits": LIMITS, "unique_keys": True, "schedules": SCHEDULES, "dependencies": True, "routing": True},
        **{"findings": (), "results": True},
    }


def test_what_a_model_lacks_is_not_in_its_load() -> None:
    finding = {"name": "a", "checks": ["J4"], "text": "b"}
    features = Carried(options={"unique"}, lacks=("Tick",), findings=(finding,)).features()
    assert features["limits"] == ({"name": "report", "concurrency": 6},)
    assert features["unique_keys"] and not features["dependencies"] and not features["routing"]
    assert features["schedules"] == () and features["findings"] == (finding,)
    assert Carried(options=(), lacks=("SetLimit",)).features()["limits"] == ()


def test_a_rate_lets_more_than_the_load_through_and_stands_beside_the_limit_of_concurrency() -> None:
    report, keys = LIMITS
    rated = ({**report, "rate": 14, "per_ms": 200}, keys)
    assert (Carried().with_rates(LIMITS, 120), Carried().with_rates(LIMITS, 40)[0]["per_ms"]) == (rated, 600)
    assert Carried().with_rates((), 120) == () and Carried(own_rates=True).with_rates(LIMITS, 120) == LIMITS
    assert [model for model in models.NAMES if models.carried(model).own_rates] == ["mosquito"]


@pytest.mark.parametrize("model", [name for name in models.NAMES if name != models.LANES])
def test_the_load_on_a_foreign_model_asks_for_nothing_that_it_refuses(model: str) -> None:
    """Each job of a workload passes the model's own check; what it declares is about clients that no such run has."""
    found = models.carried(model)
    features = found.features()
    assert all("key" not in limit for limit in features["limits"])
    assert features["findings"] and all(finding["procs"] == [models.FOREIGN] for finding in features["findings"])
    with models.queue(model, "any", url="redis://127.0.0.1:1") as queue:
        for job in Workload(seed=1, rate_per_s=100, jobs_max=300).jobs():
            payload = found.payload(job.payload)
            assert plan_of(payload) == job.payload
            # Raises for what the model has no room for.
            producing.draft(job.name, payload, 100_000, job.id, found.options_of(job, ()), model=queue.model)


def test_a_job_that_would_share_its_parents_fate_needs_none_that_dies_by_plan() -> None:
    job = next(job for job in Workload(seed=1, rate_per_s=100).jobs() if len(job.needs) == 2)
    dies, lives = job.needs
    assert Carried(options={"needs"}).options_of(job, {dies}) == {"needs": (lives,)}
    assert Carried().options_of(job, {dies})["needs"] == job.needs


def test_a_model_that_nobody_knows_is_one_line() -> None:
    with pytest.raises(ModelMissing, match=r"^model 'resque' does not exist; choose from lanes, bridge, .*mosquito$"):
        models.carried("resque")
