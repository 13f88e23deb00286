"""Every check on small hand-written histories that must pass and that must fail: one job each, all judged in one run."""

from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from reports.checks import CHECKS
from tests.reports.cases import attempts, drops, handlers, jobs, leases, liveness, order, tokens
from tests.reports.cases.base import CASES
from tests.reports.conftest import Checked, by_subject, violations_of
from tests.reports.good_run import healthy

#: The modules that register their cases when they are imported.
CATALOGUE = (leases, jobs, drops, liveness, tokens, handlers, attempts, order)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, checked: Checked, spark: SparkSession) -> list[Row]:
    """The violations of one run in which all cases happened."""
    story = healthy(tmp_path_factory.mktemp("checks") / "run")
    for job, (tell, _) in CASES.items():
        tell(story, job)
    run = story.write()
    checked(run, *(check.id for check in CHECKS))
    return violations_of(run, spark)


@pytest.fixture(scope="module")
def found(rows: list[Row]) -> dict[str, set[tuple[str, str, str]]]:
    """What each job was found for."""
    return by_subject(rows)


@pytest.mark.parametrize("job", CASES)
def test_a_job_is_found_for_what_happened_to_it_and_for_nothing_else(job: str, found: dict[str, Any]) -> None:
    assert found.get(job, set()) == CASES[job][1]


def test_no_job_is_found_that_no_case_is_about(found: dict[str, Any]) -> None:
    assert set(found) == {job for job, (_, expected) in CASES.items() if expected}


def test_a_job_with_two_overlaps_is_found_twice(rows: list[Row]) -> None:
    job = "third-claim-while-the-first-is-held-and-the-second-is-over"
    assert [row["subject"] for row in rows].count(job) == 2


def test_what_rests_on_time_is_in_doubt_on_a_slow_machine_and_what_rests_on_order_is_not(rows: list[Row]) -> None:
    """Of J1 only the reap of a worker that was missed, and may have been kept from connecting again."""
    timed = {(row["check"], row["kind"]) for row in rows if row["timed"]}
    assert timed == {(row["check"], row["kind"]) for row in rows if row["check"] == "J13"} | {("J1", "early reap")}


def test_every_check_of_jobs_has_cases_that_pass_and_that_fail() -> None:
    failing = {check for _, expected in CASES.values() for check, *_ in expected}
    assert failing == {"J1", "J2", "J3", "J4", "J5", "J6", "J7", "J8", "J9", "J10", "J13", "J16", "J20", "J21"}
    assert sum(not expected for _, expected in CASES.values()) >= len(CASES) // 3
