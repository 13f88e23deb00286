"""J11, J14, J22 and J23 on small hand-written histories that must pass and that must fail, and the scenario of
`cases.broken`: all judged in one run."""

from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from tests.golden import same
from tests.reports.cases import broken, keys, pickup, rates, results
from tests.reports.cases.base import SCENARIO_CASES
from tests.reports.conftest import Checked, by_subject, lines_of, violations_of
from tests.reports.good_run import healthy
from tests.reports.story import Story

#: The modules that register their cases when they are imported.
CATALOGUE = (keys, pickup, rates, results)
CHECKS = ("J11", "J14", "J22", "J23")

Told = dict[str, tuple[str, str]]


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
def judged_run(tmp_path_factory: pytest.TempPathFactory, checked: Checked, spark: SparkSession) -> tuple[Told, list[Row]]:
    """The verdicts on one run in which all cases happened and every promise of the scenario was broken, and its violations."""
    story = featured(tmp_path_factory.mktemp("scenario") / "run")
    awake(story)
    story.spec["limits"] += broken.LIMITS
    story.spec |= broken.SPEC
    broken.tell(story)
    for job, (tell, _) in SCENARIO_CASES.items():
        tell(story, job)
    run = story.write()
    return checked(run, *CHECKS, *broken.CHECKS), violations_of(run, spark)


@pytest.fixture(scope="module")
def rows(judged_run: tuple[Told, list[Row]]) -> list[Row]:
    """The violations that are for the cases."""
    return [row for row in judged_run[1] if row["check"] in CHECKS and row["subject"] != broken.NEXT_HOLDER]


@pytest.fixture(scope="module")
def found(rows: list[Row]) -> dict[str, set[tuple[str, str, str]]]:
    """What each subject was found for."""
    return by_subject(rows)


def test_every_broken_promise_of_a_scenario_is_found(judged_run: tuple[Told, list[Row]]) -> None:
    told, rows = judged_run
    assert told["J12"] == ("violated", "batch had 3 jobs in hand at once, and allows 2")
    taken = [row["detail"] for row in rows if row["subject"] == broken.NEXT_HOLDER]
    assert taken == ["was created while holder had the unique key k"]
    assert told["J15"][0] == "violated" and told["J15"][1].startswith("cron:beat:2000 came 1000 ms after the tick before it")
    assert told["J17"] == ("violated", "child was claimed before parent, which it needs, had ended")
    assert told["J18"][0] == "violated" and told["J18"][1].endswith("was handed to consumer-1, which it is not for")
    assert told["J25"] == ("violated", "2 found, the first: first took effect 3 times; handler runs: 1"), "unmoved is declared"
    assert told["J19"][0] == "violated" and told["J19"][1].endswith("after they were due at p99, more than 100 ms")


def test_all_that_is_found_is_told_as_ever(judged_run: tuple[Told, list[Row]]) -> None:
    same("reports/violations_of_scenarios.txt", lines_of(*judged_run))


@pytest.mark.parametrize("job", SCENARIO_CASES)
def test_a_job_is_found_for_what_happened_to_it_and_for_nothing_else(job: str, found: dict) -> None:
    assert found.get(job, set()) == SCENARIO_CASES[job][1]


def test_every_check_has_cases_that_pass_and_that_fail() -> None:
    assert {check for _, expected in SCENARIO_CASES.values() for check, *_ in expected} == set(CHECKS)
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
def test_a_run_whose_spec_has_none_of_it_is_judged_without(story: Story, checked: Checked) -> None:
    story.spec |= {"limits": [{"name": "email", "concurrency": 2}], "pickup_bound_ms": 0, "concurrency": 8}
    assert set(checked(story.write(), *CHECKS, "J2")) == {"J2"}
