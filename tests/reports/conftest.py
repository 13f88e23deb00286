"""One Spark session for all tests of the judge, and a judge that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reports.judge import judge
from reports.session import spark_session

Judge = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[2]") as session:
        yield session


@pytest.fixture(scope="session")
def judged(spark: SparkSession) -> Judge:
    """Judge a run folder in the shared session."""

    def decide(run: Path) -> dict[str, Any]:
        return judge(run, spark=spark, say=lambda line: None)

    return decide
