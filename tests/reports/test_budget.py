"""The budget of the first tier counts what Spark is asked for. The rest of it: tests/project/test_budget.py."""

import pytest
from pyspark.sql import SparkSession

from tests.budget import Budget


def test_each_job_of_spark_counts_for_the_test_that_asked(spark: SparkSession, request: pytest.FixtureRequest) -> None:
    budget = Budget({})
    assert spark.range(10).collect()
    budget.pytest_runtest_setup(request.node)
    here = "tests/reports/test_budget.py"
    assert here not in budget.counts["spark jobs"], "earlier jobs are of others"
    assert spark.range(10).collect() and spark.range(10).collect()
    budget.pytest_runtest_teardown(request.node)
    assert budget.counts["spark jobs"][here] == 2
