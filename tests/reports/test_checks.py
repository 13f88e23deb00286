"""Every check on small hand-written histories that must pass and that must fail: one job each, all judged in one run."""

import pytest
from pyspark.sql import Row, SparkSession

from reports.checks import CHECKS
from tests.golden import same
from tests.reports.cases import attempts, drops, handlers, jobs, leases, liveness, order, tokens
from tests.reports.cases.base import CASES
from tests.reports.conftest import Checked, by_subject, lines_of, violations_of
from tests.reports.good_run import healthy

#: The modules that register their cases when they are imported.
CATALOGUE = (leases, jobs, drops, liveness, tokens, handlers, attempts, order)

Judged = tuple[dict[str, tuple[str, str]], list[Row]]


@pytest.fixture(scope="module")
def judged_run(tmp_path_factory: pytest.TempPathFactory, checked: Checked, spark: SparkSession) -> Judged:
    """The verdicts on one run in which all cases happened, whoever imported them first, and its violations."""
    story = healthy(tmp_path_factory.mktemp("checks") / "run")
    for job, (tell, _) in sorted(CASES.items()):
        tell(story, job)
    run = story.write()
    return checked(run, *(check.id for check in CHECKS)), violations_of(run, spark)


@pytest.fixture(scope="module")
def found(judged_run: Judged) -> dict[str, set[tuple[str, str, str]]]:
    """What each job was found for."""
    return by_subject(judged_run[1])


def test_all_that_is_found_is_told_as_ever(judged_run: Judged) -> None:
    same("reports/violations_of_jobs.txt", lines_of(*judged_run))


@pytest.mark.parametrize("job", CASES)
def test_a_job_is_found_for_what_happened_to_it_and_for_nothing_else(job: str, found: dict) -> None:
    assert found.get(job, set()) == CASES[job][1]


def test_every_check_of_jobs_has_cases_that_pass_and_that_fail() -> None:
    failing = {check for _, expected in CASES.values() for check, *_ in expected}
    assert failing == {"J1", "J2", "J3", "J4", "J5", "J6", "J7", "J8", "J9", "J10", "J13", "J16", "J20", "J21"}
    assert sum(not expected for _, expected in CASES.values()) >= len(CASES) // 3
