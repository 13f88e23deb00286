"""Every way in which a broken engine shows in a history is seen by the judge, on runs of the drill as `make bench` has it: one
of jobs, one of channels."""

from collections.abc import Sized

import pytest
from pyspark.sql import SparkSession

from chaos import cli, interrupts
from reports import checks
from reports.corrupt.command import Seen, corrupt
from reports.corrupt.kinds import CHANNEL_KINDS, KINDS

#: Checks that this run does not have, or whose corruptions always make others unknown as well.
NOT_ALONE = {"H0", "H1", "H2", "J19", "J25"}

#: H2 of channels: what proves that a fault hit the engine at work is what the other checks judge as well. P9: a run of one server
#: has none that was replaced.
NOT_ALONE_ON_CHANNELS = {"H2", "P9"}


def recorded(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, *words: str) -> list[Seen]:
    """What the judge makes of each corruption of a valid run."""
    runs = tmp_path_factory.mktemp("runs")
    with interrupts.Interrupts() as caught:
        assert cli.main(["run", *words, "--seed", "1", "--runs", str(runs)], caught) == 0
    return list(corrupt(runs / "latest", 1, spark))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> list[Seen]:
    """Corruptions of a run of jobs."""
    return recorded(tmp_path_factory, spark, "bench")


@pytest.fixture(scope="module")
def found_on_channels(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> list[Seen]:
    """Corruptions of a run of channels."""
    return recorded(tmp_path_factory, spark, "channels")


#: What was seen in a run, the kinds of corruption there are, how many at least, and the checks with those that see nothing alone.
RUNS = [("found", KINDS, 60, "HJ", NOT_ALONE), ("found_on_channels", CHANNEL_KINDS, 50, "HP", NOT_ALONE_ON_CHANNELS)]


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("run", "kinds", "least", "of", "not_alone"), RUNS, ids=["jobs", "channels"])
def test_every_corruption_is_seen_by_its_check_and_each_check_sees_some_that_no_other_does(
    request: pytest.FixtureRequest, run: str, kinds: Sized, least: int, of: str, not_alone: set[str]
) -> None:
    found: list[Seen] = request.getfixturevalue(run)
    assert [one.kind.name for one in found if not one.caught] == [] and len(found) == len(kinds) >= least
    needed = {check.id for check in checks.CHECKS if check.id[0] in of} - not_alone
    assert needed - {one.checks[0] for one in found if len(one.checks) == 1} == set()


def test_each_kind_says_what_the_engine_did_and_names_a_check() -> None:
    kinds = [*KINDS.values(), *CHANNEL_KINDS.values()]
    assert all(kind.edit.__doc__ for kind in kinds)
    assert {kind.check for kind in kinds} <= {check.id for check in checks.CHECKS}
    assert {kind.check[0] for kind in CHANNEL_KINDS.values()} == {"H", "P"}
