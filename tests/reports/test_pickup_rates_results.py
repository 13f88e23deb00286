"""J11, J14, J22 and J23 on small hand-written histories that must pass and that must fail: all judged in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from tests.reports.cases import keys, pickup, rates, results
from tests.reports.cases.base import SCENARIO_CASES
from tests.reports.conftest import Checked, by_subject, violations_of
from tests.reports.good_run import healthy
from tests.reports.story import Story

#: The modules that register their cases when they are imported.
CATALOGUE = (keys, pickup, rates, results)
CHECKS = ("J11", "J14", "J22", "J23")

#: What rests on time; all else is as certain on a slow machine as on any.
TIMED = {("J22", "late pickup")}


def featured(folder: Path) -> Story:
    """A valid run whose spec has rates, unique keys, a bound for pickups, and results."""
    story = healthy(folder)
    rated = [job for job, (tell, _) in SCENARIO_CASES.items() if tell.__module__ == rates.__name__]
    limits = [{"name": job, **(rates.FIXED if job.startswith("fixed") else rates.RATE)} for job in rated]
    story.spec |= {"results": True, "retention_ms": results.RETENTION_MS, "unique_keys": True}
    story.spec |= {"pickup_bound_ms": pickup.BOUND_MS, "concurrency": pickup.PLACES}
    story.spec["limits"] = [*limits, {"name": "limited", "concurrency": 5}]
    return story


def awake(story: Story) -> None:
    """Let the workers sweep twice a second, and claim a last job at the end."""
    silent_from, silent_to = pickup.SILENT_S
    for worker in pickup.WORKERS:
        opened = 21.0 if worker == "worker-4" else 0.5
        for at in (opened + half / 2 for half in range(130)):
            if at < 64.0 and not silent_from < at < silent_to:
                story.operation(worker, "reap", at, [])
        story.life(worker, f"last-{worker}", 65.0)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, checked: Checked, spark: SparkSession) -> list[Row]:
    """The violations of one run in which all cases happened."""
    story = featured(tmp_path_factory.mktemp("scenario") / "run")
    awake(story)
    for job, (tell, _) in SCENARIO_CASES.items():
        tell(story, job)
    run = story.write()
    checked(run, *CHECKS)
    return violations_of(run, spark)


@pytest.fixture(scope="module")
def found(rows: list[Row]) -> dict[str, set[tuple[str, str, str]]]:
    """What each subject was found for."""
    return by_subject(rows)


@pytest.mark.parametrize("job", SCENARIO_CASES)
def test_a_job_is_found_for_what_happened_to_it_and_for_nothing_else(job: str, found: dict[str, Any]) -> None:
    assert found.get(job, set()) == SCENARIO_CASES[job][1]


def test_nothing_is_found_that_no_case_is_about(found: dict[str, Any]) -> None:
    assert set(found) == {job for job, (_, expected) in SCENARIO_CASES.items() if expected}


def test_what_rests_on_time_is_in_doubt_on_a_slow_machine_and_what_rests_on_order_is_not(rows: list[Row]) -> None:
    assert {(row["check"], row["kind"]) for row in rows if row["timed"]} == TIMED


def test_every_check_has_cases_that_pass_and_that_fail() -> None:
    failing = {check for _, expected in SCENARIO_CASES.values() for check, *_ in expected}
    assert failing == set(CHECKS)
    assert sum(not expected for _, expected in SCENARIO_CASES.values()) >= len(SCENARIO_CASES) // 3


@pytest.mark.slow
def test_a_run_in_which_nothing_of_it_happened_proves_nothing(tmp_path: Path, checked: Checked) -> None:
    story = featured(tmp_path / "run")
    story.spec["pickup_bound_ms"] = 60_000
    assert checked(story.write(), *CHECKS) == {
        "J11": ("unknown", "every rate had room all the time"),
        "J14": ("unknown", "every unique key kept nobody out"),
        "J22": ("unknown", "every worker was never idle for the length of the bound outside of faults"),
        "J23": ("unknown", "callers read no result"),
    }


@pytest.mark.slow
def test_a_run_whose_spec_has_none_of_it_is_judged_without(tmp_path: Path, checked: Checked) -> None:
    story = healthy(tmp_path / "run")
    story.spec |= {"limits": [{"name": "email", "concurrency": 2}], "pickup_bound_ms": 0, "concurrency": 8}
    assert set(checked(story.write(), *CHECKS, "J2")) == {"J2"}
