"""Every way in which a broken engine shows in a history is seen by the judge, on runs of the drill as `make bench` has it: one
of jobs, one of channels."""

import random
from collections.abc import Sized

import pytest
from pyspark.sql import SparkSession

from chaos import cli, interrupts
from reports import checks, errors
from reports.corrupt.command import Seen, corrupt, render
from reports.corrupt.history import History
from reports.corrupt.kinds import CHANNEL_KINDS, CHANNEL_UNSEEABLE, KINDS, UNSEEABLE
from tests.reports.story import Story, srv_ms

#: Checks that this run does not have, or whose corruptions always make others unknown as well.
NOT_ALONE = {"H0", "H1", "H2", "J19", "J25"}

#: H2 of channels: what proves that a fault hit the engine at work is what the other checks judge as well.
NOT_ALONE_ON_CHANNELS = {"H2"}


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


def test_what_is_planted_is_what_a_history_proves(story: Story) -> None:
    """A refusal that came while its holder had only begun, was about to end or had ended proves nothing; nor does a tick that is
    late by the server's clock before there was a worker for as long as one may take to come."""
    for holder, sent, took in (("held", 43.9, 0.001), ("racing", 44.9, 0.001), ("new", 46.0, 0.05)):
        story.enqueue(holder, sent, took=took, unique=holder)
        story.run("worker-1", holder, sent + 0.3)
    for away, holder, sent in (("sure", "held", 44.0), ("a", "racing", 45.2595), ("b", "racing", 45.4), ("c", "new", 46.02)):
        story.enqueue(away, sent, unique=holder, result="duplicate", holder=holder)
    early, later = (range(1, 10), range(45, 54))
    for at in (*early, *later):
        item = {"job": f"cron:beat:{1_000 + at}", "schedule": "beat", "tick_ms": srv_ms(at), "result": "created"}
        story.operation("worker-1", "tick", at, [item])
    run = story.write()
    for seed in range(8):
        history = History(run, random.Random(seed))
        assert KINDS["key-taken-twice"].edit(history) == "sure"
        assert KINDS["tick-long-after-its-time"].edit(history) in {f"cron:beat:{1_000 + at}" for at in later}
    with pytest.raises(errors.JudgeError, match="the run has no such job: record a longer one"):
        KINDS["key-taken-twice"].edit(history)
    history.spec["recovery_bound_ms"] = 60_000
    with pytest.raises(errors.JudgeError, match="no schedule ticked without a fault about"):
        KINDS["tick-long-after-its-time"].edit(history)


def test_each_kind_says_what_the_engine_did_and_names_a_check() -> None:
    kinds = [*KINDS.values(), *CHANNEL_KINDS.values()]
    assert all(kind.edit.__doc__ for kind in kinds)
    assert {kind.check for kind in kinds} <= {check.id for check in checks.CHECKS}
    assert {kind.check[0] for kind in CHANNEL_KINDS.values()} == {"H", "P"}


def test_what_cannot_be_seen_is_listed_with_the_reason() -> None:
    assert all({**UNSEEABLE, **CHANNEL_UNSEEABLE}.values())
    kind = next(iter(CHANNEL_KINDS.values()))
    shown = render([Seen(kind, "wrap-01", (kind.check,))])
    assert all(f"{name}: {reason}" in shown for name, reason in CHANNEL_UNSEEABLE.items())
    assert shown.endswith("corrupt: kinds=1 seen=1")
