"""Real drills on a short scenario: each mutant is caught by the check that is named for it."""

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos.campaigns.mutants import missed
from chaos.campaigns.short import calibration_of, drawn, every
from chaos.judge import parsed
from tests.chaos.drills import CARRIED, recorded
from tests.chaos.judged import TIMEOUT, drilled

pytestmark = TIMEOUT

PLANTED = every()

#: One for each tier: the other drills are of the third.
SOON = "limit-not-counted"


def drill_of(name: str, folder: Path) -> Path:
    """Carry out the drill of a mutant; the folder of its run."""
    planted = PLANTED[name]
    made = recorded(drawn(planted.shape, 1, planted.mutant), folder, calibration_of(planted.shape, CARRIED))
    made.folder.release()
    return made.folder.path


NAMES = [pytest.param(name, marks=pytest.mark.slow if name == SOON else pytest.mark.nightly) for name in sorted(PLANTED)]


@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_is_caught_by_the_check_that_is_named_for_it(name: str, spark: SparkSession, tmp_path: Path) -> None:
    mutant = PLANTED[name].mutant
    _, verdict = drilled(partial(drill_of, name), lambda run: run, tmp_path, spark, mutant.verdict)
    assert missed(mutant, parsed(verdict)) == ""
