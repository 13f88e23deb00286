"""A real drill of channels on a short scenario: the clean engine is valid. The mutants: `tests/chaos/test_mutants_caught.py`."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos.channels.drill import ChannelDrill
from tests.chaos.channels.drills import make_drill
from tests.chaos.drills import carried_out
from tests.chaos.judged import TIMEOUT, check_verdicts, drilled

pytestmark = TIMEOUT


def make(folder: Path) -> ChannelDrill:
    """Carry out one short drill."""
    kinds = ("net-reply-lost", "subscriber-kill", "snapshot-restore")
    return carried_out(make_drill(folder, seed=1, kinds=kinds, last_ms=24_000))


@pytest.mark.slow
def test_the_clean_engine_is_valid(spark: SparkSession, tmp_path: Path) -> None:
    _, verdict = drilled(make, lambda made: made.folder.path, tmp_path, spark)
    assert verdict["verdict"] == "valid", json.dumps(verdict["reasons"], indent=1)
    assert set(check_verdicts(verdict).values()) == {"valid"}
