"""Every way in which a broken engine shows in a history is seen by the judge, on runs of the drill as `make bench` has it: one
of jobs, one of channels."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from chaos.cli import main
from chaos.interrupts import Interrupts
from reports.checks import CHECKS
from reports.corrupt.command import Seen, corrupt
from reports.corrupt.kinds import CHANNEL_KINDS, KINDS

#: Checks that this run does not have, or whose corruptions always make others unknown as well.
NOT_ALONE = {"H0", "H1", "H2", "J19", "J25"}

#: H2 of channels: what proves that a fault hit the engine at work is what the other checks judge as well.
NOT_ALONE_ON_CHANNELS = {"H2"}


def recorded(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, *words: str) -> list[Seen]:
    """What the judge makes of each corruption of a valid run."""
    runs = tmp_path_factory.mktemp("runs")
    with Interrupts() as caught:
        assert main(["run", *words, "--seed", "1", "--runs", str(runs)], caught) == 0
    return list(corrupt(runs / "latest", 1, spark))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> list[Seen]:
    """Corruptions of a run of jobs."""
    return recorded(tmp_path_factory, spark, "bench")


@pytest.fixture(scope="module")
def found_on_channels(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> list[Seen]:
    """Corruptions of a run of channels."""
    return recorded(tmp_path_factory, spark, "channels")


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_every_corruption_is_seen_by_the_check_that_is_named_for_it(found: list[Seen]) -> None:
    assert [one.kind.name for one in found if not one.caught] == []
    assert len(found) == len(KINDS) >= 60


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_each_check_sees_something_that_no_other_check_does(found: list[Seen]) -> None:
    needed = {check.id for check in CHECKS if check.id[0] in "HJ"} - NOT_ALONE
    alone = {one.checks[0] for one in found if len(one.checks) == 1}
    assert needed - alone == set()


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_every_corruption_of_channels_is_seen_by_the_check_that_is_named_for_it(found_on_channels: list[Seen]) -> None:
    assert [one.kind.name for one in found_on_channels if not one.caught] == []
    assert len(found_on_channels) == len(CHANNEL_KINDS) >= 50


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_each_check_of_channels_sees_something_that_no_other_check_does(found_on_channels: list[Seen]) -> None:
    needed = {check.id for check in CHECKS if check.id[0] in "HP"} - NOT_ALONE_ON_CHANNELS
    alone = {one.checks[0] for one in found_on_channels if len(one.checks) == 1}
    assert needed - alone == set()


def test_each_kind_says_what_the_engine_did_and_names_a_check() -> None:
    kinds = [*KINDS.values(), *CHANNEL_KINDS.values()]
    assert all(kind.edit.__doc__ for kind in kinds)
    assert {kind.check for kind in kinds} <= {check.id for check in CHECKS}
    assert {kind.check[0] for kind in CHANNEL_KINDS.values()} == {"H", "P"}
