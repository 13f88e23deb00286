"""Short drills with their verdicts, and the one place of the suite that decides that a machine was too slow for a drill.

A drill needs its processor: where other programs take it, the load is sent late, and the verdict says that it proves nothing.
Such a drill is made again. When that happens each time, the test says so and is skipped: it is no failure of the engine. Every
other verdict is returned, for the test to judge.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.sql import SparkSession

from chaos.judge import parsed
from tests.reports.conftest import verdict_of

Verdict = dict[str, Any]
D = TypeVar("D")

#: Up to three real drills with their verdicts, while four processes of tests share two cores, each with a Spark session of its
#: own: 40 s each on an idle machine, and the first verdict compiles its queries. A verdict that is cut off leaves the session
#: unusable for the tests behind it, so only one that hangs may be.
TIMEOUT = pytest.mark.timeout(900)

#: How often a drill is made before the machine counts as too slow for it.
TRIES = 3


def drilled(
    drill: Callable[[Path], D], run: Callable[[D], Path], folder: Path, spark: SparkSession, wanted: str = "valid"
) -> tuple[D, Verdict]:
    """Make a drill (`drill(folder)`) and judge it; again while it proves nothing (`wanted` is the verdict that it should have).

    `run(drill)` is the folder of the run. Skips the test when the machine was too slow each time.
    """
    number = 0
    while True:
        made = drill(folder / str(number))
        verdict = verdict_of(run(made), spark)
        number += 1
        if number == TRIES or (verdict["verdict"] in (wanted, "violated") and not parsed(verdict).too_slow):
            break
    if parsed(verdict).too_slow:
        pytest.skip(f"this machine was too slow for the drill, {TRIES} times: {'; '.join(verdict['reasons'])}")
    return made, verdict


def check_verdicts(verdict: Verdict) -> dict[str, str]:
    """The verdict of each check."""
    return {check["id"]: check["verdict"] for check in verdict["checks"]}
