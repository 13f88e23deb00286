"""Every way in which a broken engine shows in a history is seen by the judge, on a run of the drill as `make bench` has it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from chaos.cli import main
from chaos.interrupts import Interrupts
from reports.checks import CHECKS
from reports.corrupt.command import Seen, corrupt
from reports.corrupt.kinds import KINDS

#: Checks that this run does not have, or whose corruptions always make others unknown as well.
NOT_ALONE = {"H0", "H1", "H2", "J19"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> list[Seen]:
    """What the judge makes of each corruption of a valid run."""
    runs = tmp_path_factory.mktemp("runs")
    with Interrupts() as caught:
        assert main(["bench", "--seed", "1", "--runs", str(runs)], caught) == 0
    return corrupt(runs / "latest", 1, spark)


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
def test_every_corruption_is_seen_by_the_check_that_is_named_for_it(found: list[Seen]) -> None:
    assert [one.kind.name for one in found if not one.caught] == []
    assert len(found) == len(KINDS) >= 60


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
def test_each_check_sees_something_that_no_other_check_does(found: list[Seen]) -> None:
    needed = {check.id for check in CHECKS if check.id[0] in "HJ"} - NOT_ALONE
    alone = {one.checks[0] for one in found if len(one.checks) == 1}
    assert needed - alone == set()


def test_each_kind_says_what_the_engine_did_and_names_a_check() -> None:
    assert all(kind.edit.__doc__ for kind in KINDS.values())
    assert {kind.check for kind in KINDS.values()} <= {check.id for check in CHECKS}
